//! Whether the planted bugs compile, all at once.
//!
//! A bug that does not compile is found by nothing, and the search that plants one bug after
//! another, for hours, is seldom run. Here bugs are planted together and checked, in minutes: as
//! many in a round as do not change the same statement.
//!
//! The compiler stops at names that it does not know before it looks at types, so that a mended bug
//! may show the next.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use workbench::workspace;

use super::bug::Bug;
use super::list::bugs;
use crate::change;
use crate::copy;
use crate::host::BARE_PACKAGES;
use crate::part::Tally;

/// The copy that all bugs are planted in. The copies of the search hold one bug at a time, which a
/// round here would leave among others.
const COPY: &str = "planted-copy-of-all";
/// The directory that they are checked in, beside the copy: no other build may take a file of
/// theirs for the workspace's. What is checked once of crates.io stays for the next run.
const TARGET: &str = "planted-target-of-all";
/// Word that cargo and the compiler begin each error with. Cargo's own has no place below it.
const ERROR: &str = "error";

/// Plants all bugs, round by round, and has each compiler error fail. A round that plants none
/// would be the last for ever: a bug that has its statement to itself can always be planted, or its
/// place is wrong, which is an error of its own.
pub(super) fn all(tally: &mut Tally) -> Result<()> {
    let mut left: Vec<&'static Bug> = bugs().collect();
    while !left.is_empty() {
        let copy = copy::fresh(COPY)?;
        let before = left.len();
        left = plant(left, &copy)?;
        ensure!(left.len() < before, "no bug of {before} can be planted");
        for complaint in complaints(&copy)? {
            tally.fail(complaint);
        }
        tally.pass(before - left.len());
        println!(
            "{} planted together, {} left",
            before - left.len(),
            left.len()
        );
    }
    Ok(())
}

/// Plants the bugs that change statements of their own; returns the others. Bugs are taken by file,
/// as only those of one file can overlap, and a file is read and written once.
fn plant(bugs: Vec<&'static Bug>, copy: &Path) -> Result<Vec<&'static Bug>> {
    let mut by_file: BTreeMap<&str, Vec<&'static Bug>> = BTreeMap::new();
    for bug in bugs {
        by_file
            .entry(change::file(bug.name)?)
            .or_default()
            .push(bug);
    }
    let mut left = Vec::new();
    for (file, bugs) in by_file {
        let path = copy.join(file);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let (text, others) = plant_in(&text, bugs)?;
        fs::write(&path, text)?;
        left.extend(others);
    }
    Ok(left)
}

/// Plants bugs in a file's text. Of changes that overlap one is planted, and the others later. The
/// extents are those in the text without a bug: a change of one place moves the others, and each
/// is found by its comment again.
fn plant_in(text: &str, bugs: Vec<&'static Bug>) -> Result<(String, Vec<&'static Bug>)> {
    let (mut planted, mut left) = (text.to_owned(), Vec::new());
    let mut taken: Vec<Range<usize>> = Vec::new();
    for bug in bugs {
        let extent = bug.change.extent(bug.name, text)?;
        let overlaps = |other: &Range<usize>| other.start < extent.end && extent.start < other.end;
        if taken.iter().any(overlaps) {
            left.push(bug);
            continue;
        }
        planted = bug.change.make(bug.name, &planted)?;
        taken.push(extent);
    }
    Ok((planted, left))
}

/// Returns the compiler's errors, each with its place: of the packages of the host, and of those of
/// the images on the bare target. Code for AArch64 alone is left out on another host, and code for
/// hosts alone on the target, so that each sees what the other does not.
fn complaints(copy: &Path) -> Result<Vec<String>> {
    let mut host = check(copy);
    let bare = BARE_PACKAGES
        .iter()
        .flat_map(|package| ["--package", package]);
    let mut images = check(copy);
    images.args(["--target", workspace::BARE_TARGET, "--features", "image"]);
    images.args(bare);
    // Init takes the runtimes in as files, of which the check reads no byte.
    for variable in ["GEAR1_RUNTIME_BIN", "GEAR1_RUNTIME_GICV2_BIN"] {
        images.env(variable, workspace::root().join("Cargo.toml"));
    }
    let mut list = Vec::new();
    for command in [&mut host, &mut images] {
        let output = command.output().context("cargo cannot be run")?;
        let errors = errors(&String::from_utf8_lossy(&output.stderr));
        ensure!(
            output.status.success() || !errors.is_empty(),
            "cargo check fails"
        );
        list.extend(errors);
    }
    Ok(list)
}

/// Returns cargo that checks the copy. The check goes on behind a package that fails, since the
/// bugs of the next ones are of interest, too. Lints are not looked at: a bug leaves much without a
/// use.
fn check(copy: &Path) -> Command {
    let mut command = workspace::cargo();
    command.current_dir(copy);
    command.args(["check", "--locked", "--keep-going", "--target-dir"]);
    command.arg(workspace::output_dir().join(TARGET));
    command
}

/// Returns the errors in what cargo printed: the message, and the line below with the place. A
/// library that its tests compile again has each of them twice.
fn errors(printed: &str) -> Vec<String> {
    let lines: Vec<&str> = printed.lines().collect();
    let pairs = lines.windows(2);
    let errors = pairs.filter(|pair| pair[0].starts_with(ERROR) && pair[1].contains("-->"));
    let errors = errors.map(|pair| format!("{} {}", pair[1].trim(), pair[0]));
    let unique: BTreeSet<String> = errors.collect();
    unique.into_iter().collect()
}
