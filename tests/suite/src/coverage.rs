//! Coverage of Gear1's runtime in lines, measured by QEMU on the shipped image.
//!
//! QEMU logs each block of code when it first translates it, which is when it first runs it. DWARF
//! maps addresses of the runtime's text to lines of source. Invariant: the image has no additional
//! code, and a watched run executes the same path as an unwatched one.
//!
//! An instrumented build would be another image, with counters and without the checks of the linked
//! code. The figure is of lines, as a person can look at a line and say why it did not run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use gear1_abi::layout::el2;
use object::{Object as _, ObjectSection as _, SectionKind};
use workbench::source::function_at;
use workbench::{symbolize, trace, workspace};
use xtask::audit::Rules;

/// Lines of source, by file.
type Lines = BTreeMap<String, BTreeSet<u32>>;

/// Lines of the runtime for one interrupt controller: all, and those that ran. Runtimes for the two
/// GICs are two images of one source: a line counts once, wherever it ran.
struct Coverage {
    all: Lines,
    ran: Lines,
}

impl Coverage {
    /// Reads the logs of the watched machines. Machines of a run are all watched, or none is.
    fn read() -> Result<Coverage> {
        let mut coverage = Coverage {
            all: Lines::new(),
            ran: Lines::new(),
        };
        for (gic, directory) in [(3, ""), (2, "gicv2")] {
            let ran = addresses(gic)?;
            let elf = workspace::bare_elf_in(directory, "gear1-runtime");
            coverage.add(&elf, &ran)?;
        }
        Ok(coverage)
    }

    /// Inlined frames count as well: code that was inlined ran at its caller's address.
    fn add(&mut self, elf: &Path, ran: &BTreeSet<u64>) -> Result<()> {
        let bytes = fs::read(elf).with_context(|| elf.display().to_string())?;
        let file = object::File::parse(&*bytes)?;
        let text = file.sections().find(|s| s.kind() == SectionKind::Text);
        let text = text.context("no code")?;
        let fail = |error| anyhow!("{}: {error}", elf.display());
        let loader = addr2line::Loader::new(elf).map_err(fail)?;
        for address in (text.address()..text.address() + text.size()).step_by(4) {
            let mut frames = loader.find_frames(address).map_err(|e| anyhow!("{e}"))?;
            while let Some(frame) = frames.next().map_err(|e| anyhow!("{e}"))? {
                if let Some((path, line)) = frame.location.and_then(line_of_gear1) {
                    self.add_line(&path, line, ran.contains(&address));
                }
            }
        }
        Ok(())
    }

    /// One line has many addresses; one that ran is enough.
    fn add_line(&mut self, path: &str, line: u32, has_run: bool) {
        let ran = has_run.then_some(&mut self.ran);
        for list in [Some(&mut self.all), ran].into_iter().flatten() {
            list.entry(path.to_owned()).or_default().insert(line);
        }
    }

    /// Returns the lines that did not run. Files without a missing line are left out of the list.
    fn missed(&self) -> Lines {
        let mut missed = self.all.clone();
        for (file, lines) in &self.ran {
            if let Some(left) = missed.get_mut(file) {
                left.retain(|line| !lines.contains(line));
            }
        }
        missed.retain(|_, lines| !lines.is_empty());
        missed
    }
}

/// Returns the file and the line of Gear1's source that a location names. Line 0 is code that the
/// compiler made. The standard library and other crates are not ours to test.
fn line_of_gear1(location: addr2line::Location<'_>) -> Option<(String, u32)> {
    let path = symbolize::short(location.file?);
    let line = location.line.filter(|line| *line != 0)?;
    path.starts_with("gear1/").then(|| (path.to_owned(), line))
}

/// Says how much ran, writes down what did not, and tells whether it was enough. The limit is in
/// the audit's rules, beside the list of excuses.
pub(crate) fn report() -> Result<(String, bool)> {
    let coverage = Coverage::read()?;
    let rules = Rules::read()?;
    let missed = coverage.missed();
    let (all, count_missed) = (count(&coverage.all), count(&missed));
    let percent = 100.0 * (1.0 - count_missed as f64 / all.max(1) as f64);
    let open = write_missed(&missed, &rules)?;
    let least = rules.coverage.percent;
    let text = format!(
        "coverage of the runtime: {} of {all} lines ran, {percent:.1} % (at least {least} %); {open} without an excuse (coverage/missed.txt)",
        all - count_missed,
    );
    Ok((text, percent >= least))
}

/// Writes down the lines that did not run, and returns how many have no excuse. An excuse names a
/// function and a reason, such as a halt that no test may cause.
fn write_missed(missed: &Lines, rules: &Rules) -> Result<usize> {
    let mut text = String::new();
    let mut open = 0;
    for (file, lines) in missed {
        let source = fs::read_to_string(workspace::root().join(file)).context(file.clone())?;
        let excuses = rules.coverage.excused.get(file);
        for line in lines {
            let function = function_at(&source, *line).unwrap_or_default();
            let excuse = excuses.and_then(|excuses| excuses.get(function));
            open += usize::from(excuse.is_none());
            let excuse = excuse.map_or(String::new(), |why| format!(" (excused: {why})"));
            text += &format!("{file}:{line}: {function}{excuse}\n");
        }
    }
    let path = workspace::output_dir().join("coverage/missed.txt");
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(open)
}

/// Returns how many lines there are.
fn count(lines: &Lines) -> usize {
    lines.values().map(BTreeSet::len).sum()
}

/// Returns the addresses that were translated with one interrupt controller. The name of a log ends
/// with the GIC's version, since addresses of the two images overlap.
fn addresses(gic: u32) -> Result<BTreeSet<u64>> {
    let mut addresses = BTreeSet::new();
    let directory = trace::folder().context("no machine was watched")?;
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.ends_with(&format!("-gicv{gic}.log"))) {
            let text = fs::read(&path).with_context(|| path.display().to_string())?;
            addresses.extend(translated(&String::from_utf8_lossy(&text)));
        }
    }
    Ok(addresses)
}

/// Returns the addresses of a log: the first word of each line that begins with one. Addresses of
/// guests may be in the log, so only the runtime's range counts.
fn translated(log: &str) -> impl Iterator<Item = u64> + '_ {
    let words = log
        .lines()
        .filter_map(|line| line.strip_prefix("0x")?.split(':').next());
    let addresses = words.filter_map(|word| u64::from_str_radix(word, 16).ok());
    addresses.filter(|address| (el2::RUNTIME..el2::RUNTIME + trace::SPAN).contains(address))
}

#[cfg(test)]
mod tests;
