//! The package sources that this system is configured with, and the backports derived from them.
//!
//! Reads both formats that apt knows (one-line `sources.list`, deb822 `*.sources`) and writes
//! deb822. No mirror is named here: backports come from the mirror that already serves the release.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// A configured source: the contents of a deb822 stanza, for binary packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AptSource {
    uris: Vec<String>,
    suites: Vec<String>,
    components: Vec<String>,
    /// Architectures of the source; none means all.
    architectures: Vec<String>,
    /// Fields that say how to trust it, carried over as they stand.
    trust: Vec<(String, String)>,
}

/// Fields that are copied to derived sources.
const TRUST_FIELDS: [&str; 4] = ["signed-by", "trusted", "check-valid-until", "by-hash"];

/// Reads the sources below `etc_apt`, normally `/etc/apt`.
pub(crate) fn configured(etc_apt: &Path) -> Vec<AptSource> {
    let mut files = vec![etc_apt.join("sources.list")];
    if let Ok(entries) = fs::read_dir(etc_apt.join("sources.list.d")) {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.sort();
    let mut sources = Vec::new();
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => sources.extend(text.lines().filter_map(parse_one_line)),
            Some("sources") => sources.extend(parse_deb822(&text)),
            Some(_) | None => {}
        }
    }
    sources
}

/// Parses one line of a `sources.list`; anything but an active `deb` line gives nothing.
fn parse_one_line(line: &str) -> Option<AptSource> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb")?.strip_prefix([' ', '\t', '['])?;
    let bracketed = line["deb".len()..].trim_start().starts_with('[');
    let (options, rest) = match bracketed {
        true => rest.trim_start().trim_start_matches('[').split_once(']')?,
        false => ("", rest),
    };
    let mut words = rest.split_whitespace().map(str::to_owned);
    let mut source = AptSource {
        uris: vec![words.next()?],
        suites: vec![words.next()?],
        components: words.collect(),
        architectures: Vec::new(),
        trust: Vec::new(),
    };
    for (key, value) in options
        .split_whitespace()
        .filter_map(|option| option.split_once('='))
    {
        source.set_option(&key.to_lowercase(), &value.replace(',', " "));
    }
    Some(source)
}

/// Parses the stanzas of a deb822 file.
fn parse_deb822(text: &str) -> Vec<AptSource> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines
        .split(|line| line.trim().is_empty())
        .filter_map(parse_stanza)
        .collect()
}

fn parse_stanza(lines: &[&str]) -> Option<AptSource> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in lines {
        if line.starts_with([' ', '\t']) {
            fields.last_mut()?.1.push_str(&format!("\n{line}"));
        } else if let Some((key, value)) = line.split_once(':') {
            fields.push((key.trim().to_lowercase(), value.trim().to_owned()));
        }
    }
    let words = |key: &str| -> Vec<String> {
        let value = fields
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str());
        value
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    };
    let enabled = !matches!(
        words("enabled").first().map(String::as_str),
        Some("no" | "false")
    );
    if !enabled || !words("types").iter().any(|kind| kind == "deb") {
        return None;
    }
    let mut source = AptSource {
        uris: words("uris"),
        suites: words("suites"),
        components: words("components"),
        architectures: Vec::new(),
        trust: Vec::new(),
    };
    for (key, value) in &fields {
        source.set_option(key, value);
    }
    Some(source)
}

impl AptSource {
    fn set_option(&mut self, key: &str, value: &str) {
        if matches!(key, "arch" | "architectures") {
            self.architectures = value.split_whitespace().map(str::to_owned).collect();
        } else if TRUST_FIELDS.contains(&key) {
            self.trust.push((key.to_owned(), value.to_owned()));
        }
    }

    fn serves(&self, architecture: &str) -> bool {
        self.architectures.is_empty() || self.architectures.iter().any(|a| a == architecture)
    }

    fn to_deb822(&self) -> String {
        let mut text = format!(
            "Types: deb\nURIs: {}\nSuites: {}\nComponents: main\n",
            self.uris.join(" "),
            self.suites.join(" "),
        );
        for (key, value) in &self.trust {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{key}: {value}");
        }
        text
    }
}

/// Returns deb822 text with this release's sources among `sources` and its backports, for
/// packages of `architecture`; nothing if none of them serves the release.
pub(crate) fn release_with_backports(
    sources: &[AptSource],
    codename: &str,
    architecture: &str,
) -> Option<String> {
    let usable: Vec<&AptSource> = sources
        .iter()
        .filter(|s| s.serves(architecture) && s.components.iter().any(|c| c == "main"))
        .collect();
    let base = [codename, "stable", "oldstable", "testing"]
        .into_iter()
        .find(|base| {
            usable
                .iter()
                .any(|s| s.suites.iter().any(|suite| suite == base))
        })?;
    let backports = format!("{base}-backports");
    let known = ["", "-updates", "-security", "-backports"].map(|tail| format!("{base}{tail}"));
    let mut stanzas = Vec::new();
    for source in usable {
        let mut kept = source.clone();
        kept.suites.retain(|suite| known.contains(suite));
        if kept.suites.iter().any(|suite| suite == base) && !kept.suites.contains(&backports) {
            kept.suites.push(backports.clone());
        }
        if !kept.suites.is_empty() {
            stanzas.push(kept.to_deb822());
        }
    }
    Some(stanzas.join("\n"))
}

#[cfg(test)]
mod tests;
