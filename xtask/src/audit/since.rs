//! Lines that a change added to Gear1, by subject: those of the tree beside another revision.
//!
//! Lines here are all lines of the sources, resident or not: what a link makes of an older revision
//! is not known without building it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use workbench::workspace;

use super::rules::Rules;
use super::rust::Counts;
use super::source::is_test;
use super::subjects::{DIRECTORIES, files, subject};

/// Lines of code by subject. Sums and no files: a file that was split is no change of a subject.
type Lines = BTreeMap<String, u64>;

/// Returns the table of the subjects that differ, in Markdown. The subjects of today name the files
/// of both sides.
pub(super) fn table(rules: &Rules, revision: &str) -> Result<String> {
    let before = count(rules, &at(revision)?);
    let now = count(rules, &files()?);
    Ok(text(revision, &before, &now))
}

/// Tests are left out, as in the totals.
fn count(rules: &Rules, files: &BTreeMap<String, String>) -> Lines {
    let mut lines = Lines::new();
    for (file, text) in files {
        let subject = subject(rules, file).to_owned();
        *lines.entry(subject).or_default() += Counts::of(text, false).code;
    }
    lines
}

/// Returns the sources of a revision that count. git's objects are read, and no tree is checked
/// out: the working tree may have changes.
fn at(revision: &str) -> Result<BTreeMap<String, String>> {
    let mut list = vec!["ls-tree", "-r", "--name-only", revision, "--"];
    list.extend(DIRECTORIES);
    let mut files = BTreeMap::new();
    for file in git(&list)?.lines() {
        if file.ends_with(".rs") && !is_test(file) {
            let text = git(&["show", &format!("{revision}:{file}")])?;
            files.insert(file.to_owned(), text);
        }
    }
    Ok(files)
}

/// The error has git's own words, such as of an unknown revision.
fn git(arguments: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    git.current_dir(workspace::root()).args(arguments);
    let output = git.output().context("git cannot be run")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "git {arguments:?}: {}",
        error.trim()
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// Subjects without a change are left out, for a commit message to hold the table.
fn text(revision: &str, before: &Lines, now: &Lines) -> String {
    let mut text = format!("| subject | lines at {revision} | now | more |\n|---|---|---|---|");
    let subjects: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let mut sums = [0_u64; 2];
    for subject in subjects {
        let of = |lines: &Lines| lines.get(subject).copied().unwrap_or(0);
        let (old, new) = (of(before), of(now));
        sums = [sums[0] + old, sums[1] + new];
        if old != new {
            text += &row(subject, old, new);
        }
    }
    text + &row("all", sums[0], sums[1])
}

/// The sign is always there: a subject that shrinks is good news.
fn row(name: &str, old: u64, new: u64) -> String {
    let more = i128::from(new) - i128::from(old);
    format!("\n| {name} | {old} | {new} | {more:+} |")
}

#[cfg(test)]
mod tests;
