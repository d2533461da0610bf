//! The figures of GearV that must not get worse: `tests/bench-baseline.txt`, a line
//! `<column>: <row> <median>` each, written by `bench --accept`.
//!
//! Figures of KVM and of the native machine are not in the baseline: no change of GearV moves them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use workbench::qemu::Qemu;
use workbench::workspace;

use super::footprint;
use crate::report::{Counts, Figure, Figures, Results};

/// Tolerated growth of a median: per cent, and instructions. Both must be exceeded. Two per cent of
/// a short path are less than one instruction, and three instructions of a long one are no growth.
const TOLERATED_PERCENT: u64 = 2;
const TOLERATED: u64 = 3;

/// Column and row of the boot of a real-time VM, and how the figure is accepted.
pub const BOOT: &str = "boot";
const BOOT_ROW: &str = "real-time-VM";
const ACCEPT_BOOT: &str = "cargo xtask bench --footprint --accept";
const ACCEPT: &str = "cargo xtask bench --only GearV --accept";

/// Rows that `test` does not measure: each would be a boot of Linux more. A change of these rows
/// shows in `cargo xtask bench` alone.
const SERVED: &str = "mmio_user";

/// Returns the file of the baseline. The file is committed, so that a change of a path's length
/// shows in a review.
fn path() -> PathBuf {
    workspace::root().join("tests/bench-baseline.txt")
}

/// Medians by column and row. The order of the map is that of the file's lines, so that a new
/// baseline differs by the changed lines only.
type Baseline = BTreeMap<(String, String), u64>;

/// Writes the figures of GearV's columns, and that of the boot if it is there, over those in the
/// baseline.
pub(super) fn accept(results: &Results) -> Result<()> {
    let mut accepted = Baseline::new();
    let columns = results.columns.iter();
    for (column, figures) in columns.filter(|(name, _)| name.starts_with("GearV")) {
        for (row, figure) in figures.iter().filter(|(row, _)| !row.starts_with(SERVED)) {
            accepted.insert((column.clone(), row.clone()), figure.median);
        }
    }
    accepted.extend(boot(&results.counts));
    write(accepted)
}

/// Writes the instructions of a boot over those in the baseline.
pub(super) fn accept_boot(counts: &Counts) -> Result<()> {
    let accepted: Baseline = boot(counts).into_iter().collect();
    ensure!(!accepted.is_empty(), "{BOOT}: not measured");
    write(accepted)
}

/// Returns the line of the boot, if it was measured.
fn boot(counts: &Counts) -> Option<((String, String), u64)> {
    let count = counts.get(footprint::START)?;
    Some(((BOOT.to_owned(), BOOT_ROW.to_owned()), *count))
}

/// Writes lines over those of the same columns and rows. What was not measured keeps its lines, as a
/// run may have been filtered by `--only`.
fn write(accepted: Baseline) -> Result<()> {
    let path = path();
    let mut baseline = match path.is_file() {
        true => parse(&fs::read_to_string(&path)?)?,
        false => Baseline::new(),
    };
    baseline.extend(accepted);
    let lines = baseline
        .iter()
        .map(|((column, row), median)| format!("{column}: {row} {median}\n"));
    fs::write(&path, lines.collect::<String>())?;
    println!("written: {}", path.display());
    Ok(())
}

/// Measures the boot of a real-time VM, as `bench --footprint --only "real-time VM"` does, with the
/// sizes of the images. A count of 0 was not counted.
pub fn measure_boot(qemu: &Qemu) -> Result<Figures> {
    let counts = footprint::measure(qemu, footprint::REAL_TIME_VM)?;
    let nothing = counts.iter().find(|(_, count)| **count == 0);
    ensure!(nothing.is_none(), "--footprint counts nothing: {nothing:?}");
    let boot = boot(&counts).context("--footprint has no boot of a real-time VM")?;
    let (_, median) = boot;
    let figure = Figure {
        median,
        ..Figure::default()
    };
    Ok(Figures::from([(BOOT_ROW.to_owned(), figure)]))
}

/// Returns what of a column has become worse, a line each.
pub fn regressions(column: &str, figures: &Figures) -> Result<Vec<String>> {
    let path = path();
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(worse(&parse(&text)?, column, figures))
}

/// Returns the rows that have grown by more than is tolerated. A row or a column that is missing is
/// told as well: a test that compares nothing would pass.
fn worse(baseline: &Baseline, column: &str, figures: &Figures) -> Vec<String> {
    let mut lines = Vec::new();
    let accept = if column == BOOT { ACCEPT_BOOT } else { ACCEPT };
    for ((_, row), &then) in baseline.iter().filter(|((name, _), _)| name == column) {
        match figures.get(row).map(|figure| figure.median) {
            None => lines.push(format!("{row}: was not measured")),
            Some(now) if now > then + TOLERATED && now * 100 > then * (100 + TOLERATED_PERCENT) => {
                lines.push(format!(
                    "{row}: {now} instructions, {then} in the baseline (if that must be: {accept})"
                ));
            }
            Some(_) => {}
        }
    }
    if baseline.keys().all(|(name, _)| name != column) {
        lines.push(format!("{column}: not in the baseline"));
    }
    lines
}

/// Reads the baseline. A line of another form is an error, because a figure that is not read is
/// never compared.
fn parse(text: &str) -> Result<Baseline> {
    text.lines()
        .map(|line| {
            let words: Option<_> = line
                .split_once(": ")
                .and_then(|(column, rest)| Some((column, rest.split_once(' ')?)));
            match words.map(|(column, (row, median))| (column, row, median.parse())) {
                Some((column, row, Ok(median))) => {
                    Ok(((column.to_owned(), row.to_owned()), median))
                }
                _ => bail!("the baseline has a line {line:?}"),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
