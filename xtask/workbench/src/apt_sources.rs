//! The package sources that this system is configured with, and the backports derived from them.
//!
//! Reads both formats that apt knows (one-line `sources.list`, deb822 `*.sources`) and writes
//! deb822. No mirror is named here: backports come from the mirror that already serves the release.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// A configured source: the contents of a deb822 stanza, for binary packages. Only what a derived
/// source needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AptSource {
    /// Mirrors, which serve the same packages.
    uris: Vec<String>,
    /// A codename with a tail, or a class such as `stable`.
    suites: Vec<String>,
    /// `main` decides whether the source is of use.
    components: Vec<String>,
    /// Architectures of the source; none means all.
    architectures: Vec<String>,
    /// Fields that say how to trust it, carried over as they stand.
    trust: Vec<(String, String)>,
}

/// Fields that are copied to derived sources. A derived source is trusted as its origin is, and in
/// no other way.
const TRUST_FIELDS: [&str; 4] = ["signed-by", "trusted", "check-valid-until", "by-hash"];

/// Reads the sources below `etc_apt`, normally `/etc/apt`. Files that cannot be read are passed
/// over, as a user may not read credentials.
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

/// Parses one line of a `sources.list`; anything but an active `deb` line gives nothing. `deb-src`
/// begins with `deb` too, and is none.
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

/// Parses the stanzas of a deb822 file. Comments go before stanzas are split: one may stand between
/// two fields.
fn parse_deb822(text: &str) -> Vec<AptSource> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines
        .split(|line| line.trim().is_empty())
        .filter_map(parse_stanza)
        .collect()
}

/// Parses a stanza; anything but an enabled source of binary packages gives nothing. apt takes
/// `Enabled: no` for a source that is switched off.
fn parse_stanza(lines: &[&str]) -> Option<AptSource> {
    let fields = fields(lines)?;
    let words = |key: &str| words_of(&fields, key);
    let enabled = words("enabled");
    let is_disabled = matches!(enabled.first().map(String::as_str), Some("no" | "false"));
    if is_disabled || !words("types").iter().any(|kind| kind == "deb") {
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

/// Returns the words of a field, none if the stanza lacks it: blanks and ends of lines part words
/// (sources.list(5)).
fn words_of(fields: &[(String, String)], key: &str) -> Vec<String> {
    let field = fields.iter().find(|(name, _)| name == key);
    let words = field
        .into_iter()
        .flat_map(|(_, value)| value.split_whitespace());
    words.map(str::to_owned).collect()
}

/// Returns the fields of a stanza, their names in lower case; a line that begins with a blank goes
/// on with the field before (deb822(5)). A signature may be embedded in `Signed-By`, over many
/// lines.
fn fields(lines: &[&str]) -> Option<Vec<(String, String)>> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in lines {
        if line.starts_with([' ', '\t']) {
            fields.last_mut()?.1.push_str(&format!("\n{line}"));
        } else if let Some((key, value)) = line.split_once(':') {
            fields.push((key.trim().to_lowercase(), value.trim().to_owned()));
        }
    }
    Some(fields)
}

impl AptSource {
    /// Takes an option of a one-line source that matters here; others are left out. Names are
    /// compared in lower case, as apt does.
    fn set_option(&mut self, key: &str, value: &str) {
        if matches!(key, "arch" | "architectures") {
            self.architectures = value.split_whitespace().map(str::to_owned).collect();
        } else if TRUST_FIELDS.contains(&key) {
            self.trust.push((key.to_owned(), value.to_owned()));
        }
    }

    /// Tells whether the source has packages of an architecture. No list means every architecture
    /// that apt is configured for.
    fn serves(&self, architecture: &str) -> bool {
        self.architectures.is_empty() || self.architectures.iter().any(|a| a == architecture)
    }

    /// Compared as written.
    fn has_suite(&self, name: &str) -> bool {
        self.suites.iter().any(|suite| suite == name)
    }

    /// Returns the source with the suites of one release only, and with its backports where the
    /// release itself comes from. Backports lie on the mirror of the release, under the same
    /// signature.
    fn of_release(&self, base: &str) -> AptSource {
        let mut kept = self.clone();
        let known = ["", "-updates", "-security", "-backports"];
        let known = known.map(|tail| format!("{base}{tail}"));
        kept.suites.retain(|suite| known.contains(suite));
        let backports = format!("{base}-backports");
        if kept.has_suite(base) && !kept.has_suite(&backports) {
            kept.suites.push(backports);
        }
        kept
    }

    /// Returns the source as a stanza of `sources.list(5)`. The component is `main` alone: nothing
    /// that this project takes is elsewhere. deb822 alone can carry an embedded key.
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

/// Returns deb822 text with this release's sources among `sources` and its backports, for packages
/// of `architecture`; nothing if none of them serves the release. The first name that the machine
/// uses wins, since one release has several.
pub(crate) fn release_with_backports(
    sources: &[AptSource],
    codename: &str,
    architecture: &str,
) -> Option<String> {
    let is_usable = |source: &&AptSource| {
        source.serves(architecture) && source.components.iter().any(|c| c == "main")
    };
    let usable: Vec<&AptSource> = sources.iter().filter(is_usable).collect();
    // The release may be configured by its name or by what it is now.
    let base = [codename, "stable", "oldstable", "testing"]
        .into_iter()
        .find(|base| usable.iter().any(|source| source.has_suite(base)))?;
    let releases = usable.into_iter().map(|source| source.of_release(base));
    let releases = releases.filter(|source| !source.suites.is_empty());
    let stanzas: Vec<String> = releases.map(|source| source.to_deb822()).collect();
    Some(stanzas.join("\n"))
}

#[cfg(test)]
mod tests;
