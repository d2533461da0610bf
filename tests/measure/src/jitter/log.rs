//! Output of init on its console, and logs of it that were captured elsewhere.
//!
//! A log of a board is what a person captured: parts may be missing, several measurements may
//! follow each other, and lines may end with a carriage return. A measurement that is broken costs
//! its own figures alone.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum as _;
use flate2::read::GzDecoder;

use super::configuration::Configuration;
use super::exits::Exits;
use super::fact;
use super::setup::{self, ROW};
use crate::report::{self, Facts, Figure, Figures, Results};

/// End of the name of a log of Gear2's console beside that of the VM's own line. The instructions
/// for a board (`board.rs`) name the files in this way.
pub(super) const OF_GEAR2: &str = "-gear2";

/// Messages of init, in this order. The first carries the kernel's release, the configuration and
/// the number of SGIs that the kernel has sent to its own CPUs; the third carries that number
/// again. In a log each line with the first message begins a measurement.
pub(super) const READY: &str = "JITTER-READY ";
pub(super) const BEGINS: &str = "JITTER-BEGINS";
pub(super) const MEASURED: &str = "JITTER-MEASURED ";
pub(super) const END: &str = "JITTER-END";

/// Start of each line with samples, which are in `report`'s format, compressed by gzip and encoded
/// in base64. A character on its console costs a guest of KVM's some milliseconds in an emulated
/// machine. Other lines may stand between them, such as messages of the kernel, and are skipped.
const PACKED: &str = "PACKED ";

/// Decodes the samples from init's output after [`MEASURED`]. gzip's checksum finds a character
/// that the line has lost.
pub(super) fn samples(printed: &str) -> Result<Figures> {
    let packed = printed.lines().filter_map(|line| line.split_once(PACKED));
    let packed: String = packed.map(|(_, base64)| base64.trim()).collect();
    let mut text = String::new();
    GzDecoder::new(bytes(&packed)?.as_slice())
        .read_to_string(&mut text)
        .context("the samples cannot be unpacked")?;
    Ok(report::parse(&text))
}

/// Reads base64 (RFC 4648, section 4). A character outside of the alphabet is an error with that
/// character, as a serial line that another program also writes to has such. Bits that are left at
/// the end are padding and are dropped.
fn bytes(base64: &str) -> Result<Vec<u8>> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for letter in base64.trim_end_matches('=').bytes() {
        let value = ALPHABET.iter().position(|one| *one == letter);
        let value = value.with_context(|| format!("{:?} is no base64", char::from(letter)))?;
        bits = bits << 6 | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Ok(bytes)
}

/// Reads earlier measurements: the JSON of runs, and logs, each of which may hold several. A file
/// replaces what earlier files say of its configurations, and nothing else. Logs of Gear2's console
/// are read last, because each belongs to a measurement of another file. The kind of a file is told
/// by its contents, as results and logs come in one list.
pub(super) fn read(files: &[PathBuf]) -> Result<Results> {
    let mut results = Results::default();
    let mut of_gear2 = Vec::new();
    for file in files {
        let text = fs::read(file).with_context(|| file.display().to_string())?;
        let text = String::from_utf8_lossy(&text).replace('\r', "");
        if text.starts_with('{') {
            take_in(&mut results, Results::load(file)?, file)?;
        } else if text.contains(READY) {
            take_in_log(&mut results, &text, file);
        } else {
            of_gear2.push((file, text));
        }
    }
    for (file, text) in of_gear2 {
        take_in_exits(&mut results, &text, file).with_context(|| file.display().to_string())?;
    }
    setup::sort(&mut results);
    Ok(results)
}

/// Takes in the results of another run, which must have been measured alike. Figures under other
/// conditions would stand in one table as if they compared.
fn take_in(results: &mut Results, other: Results, file: &Path) -> Result<()> {
    let differences = setup::differences(results, &other);
    ensure!(
        differences.is_empty(),
        "{} was measured otherwise: {}",
        file.display(),
        differences.join("; ")
    );
    let Results {
        guest,
        conditions,
        columns,
        counts,
        mut facts,
    } = other;
    results.guest = guest;
    results.conditions.extend(conditions);
    results.counts.extend(counts);
    for (name, figures) in columns {
        let facts = facts.remove(&name).unwrap_or_default();
        results.replace(&name, figures, facts);
    }
    // What is left is about configurations without figures.
    results.facts.extend(facts);
    Ok(())
}

/// Takes in the measurements of a log. One that is not whole costs its own figures alone. The
/// failure names the file and stays beside figures of an earlier file, if there are any: the page
/// shows both.
fn take_in_log(results: &mut Results, text: &str, file: &Path) {
    for (name, run) in runs(text) {
        match run {
            Ok((figures, mut facts)) => {
                facts.insert(fact::LOG.to_owned(), file.display().to_string());
                results.replace(&name, figures, facts);
            }
            Err(error) => {
                let failure = format!("{}: {error:#}", file.display());
                let facts = results.facts.entry(name).or_default();
                facts.insert(fact::FAILURE.to_owned(), failure);
            }
        }
    }
}

/// Takes in the exits that Gear2's console counted before and after the measurement of another log,
/// whose name its own extends. The first and the last count are those around the measurement, as
/// the board's steps say when to press the keys.
fn take_in_exits(results: &mut Results, text: &str, file: &Path) -> Result<()> {
    let counts = Exits::all_in(text, Configuration::PassThrough.vm());
    let (Some(before), Some(after)) = (counts.first(), counts.last()) else {
        bail!("it holds neither a line that begins with {READY}nor Gear2's counts of exits");
    };
    let name = file.to_string_lossy();
    let name = name
        .strip_suffix(".log")
        .and_then(|name| name.strip_suffix(OF_GEAR2));
    let measured = name.map(|name| format!("{name}.log"));
    let facts = results.facts.values_mut();
    let mut facts = facts.filter(|facts| facts.get(fact::LOG) == measured.as_ref());
    let facts = facts.next().filter(|_| measured.is_some());
    let facts = facts.with_context(|| {
        format!("it has counts of exits, and there is no measurement of NAME.log for a NAME{OF_GEAR2}.log")
    })?;
    let own = facts.get(fact::OWN).and_then(|own| own.parse().ok());
    facts.extend(after.since(before, own.unwrap_or(0)).facts());
    Ok(())
}

/// Figures of a measurement and facts about it, or the reason why there are none. Both are of one
/// measurement and replace an earlier one's together.
type Run = Result<(Figures, Facts)>;

/// Returns the measurements in a log by the names of their configurations. The part before the
/// first of these lines is the boot, and is skipped.
fn runs(text: &str) -> Vec<(String, Run)> {
    text.split(READY).skip(1).map(named_run).collect()
}

/// Reads a measurement and the name of its configuration. A measurement whose name is unknown keeps
/// its figures under the word that the log has. The figures are not thrown away, as a log of a
/// board may come from an init of another version.
fn named_run(text: &str) -> (String, Run) {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let words: Vec<&str> = first.split_whitespace().collect();
    let word = words.get(1).copied().unwrap_or_default();
    let configuration = Configuration::from_str(word, false).ok();
    let name = match configuration {
        Some(configuration) => configuration.text().to_owned(),
        None => format!("unnamed {word}").trim_end().to_owned(),
    };
    let vm = configuration.map_or("", Configuration::vm);
    (name, run(&words, rest, vm))
}

/// Reads a measurement from the words of its first line and the lines behind it. Counts of exits in
/// the log itself are the last before and the first after the measurement, which leaves out most of
/// the time around it.
fn run(words: &[&str], rest: &str, vm: &str) -> Run {
    let (before, after) = rest
        .split_once(MEASURED)
        .with_context(|| format!("it has no {MEASURED:?}"))?;
    let (printed, _) = after
        .split_once(END)
        .with_context(|| format!("it has no {END:?}"))?;
    let figures = samples(printed)?;
    let count = figures.get(ROW).map_or(0, Figure::count);
    ensure!(count > 0, "no sample is left of it");
    let mut facts = Facts::new();
    if let Some(kernel) = words.first() {
        facts.insert(fact::KERNEL.to_owned(), (*kernel).to_owned());
    }
    let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
    let earlier = number(words.get(2).copied());
    let later = number(printed.split_whitespace().next());
    if let Some((earlier, later)) = earlier.zip(later) {
        let own = later.saturating_sub(earlier);
        facts.insert(fact::OWN.to_owned(), own.to_string());
        let counts = (Exits::all_in(before, vm), Exits::all_in(printed, vm));
        if let (Some(before), Some(after)) = (counts.0.last(), counts.1.first()) {
            facts.extend(after.since(before, own).facts());
        }
    }
    Ok((figures, facts))
}

#[cfg(test)]
mod tests;
