//! Functions and comments of each crate of the workspace, and what is longer than the house wants.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use workbench::{source, workspace};

use super::rules::{Crates, Rules};
use super::rust::{Counts, longer_functions, percentile};
use super::table::is_test;

/// The most lines of a function, and of a file. Limits of the house, for tests as well: a long test
/// hides what it tests.
const FUNCTION: usize = 80;
/// A file of more has more than one subject.
const FILE: usize = 600;

/// Returns a line for each crate, and says which goals the crate misses. Crates without code of
/// their own, which only hold tests, have no line.
pub(super) fn report(rules: &Rules) -> Result<Vec<String>> {
    let mut report = Vec::new();
    for directory in directories()? {
        let mut counts = Counts::default();
        for (file, text) in files(&directory)? {
            counts.add(&Counts::of(&text, is_test(Path::new(&file))));
        }
        if counts.code != 0 {
            report.push(row(&directory, &counts, rules.crates));
        }
    }
    Ok(report)
}

/// Returns the line of one crate. Hundredths are cut and not rounded: 0.249 is not 0.25.
fn row(directory: &str, counts: &Counts, goals: Crates) -> String {
    let p90 = percentile(&counts.functions, 90);
    let share = counts.comments * 100 / counts.code;
    let mut missed = String::new();
    if p90 > goals.function_p90 {
        missed += &too_many(&counts.functions, goals.function_p90);
    }
    #[expect(clippy::cast_precision_loss, reason = "hundredths of a small number")]
    if (share as f64) < goals.comments * 100.0 {
        missed += ", fewer comments than the goal";
    }
    format!(
        "{directory}: {} lines, function p90 {p90} (goal {}), comments {}.{:02} of the code (goal {}){missed}",
        counts.code,
        goals.function_p90,
        share / 100,
        share % 100,
        goals.comments
    )
}

/// Says how many functions are longer than the goal, and how many may be. The number that may be
/// longer tells how far the goal is, which the percentile does not: one function may be the whole
/// difference, or fifty.
fn too_many(functions: &[u64], goal: u64) -> String {
    let longer = functions.iter().filter(|lines| **lines > goal).count();
    let may_be = functions.len() / 10;
    format!(", {longer} functions longer than the goal where {may_be} may be")
}

/// Returns the functions and files of the workspace that are longer than the house wants, tests
/// included. The whole list is returned, to be mended in one go. Unlike the goals of [`row`], these
/// limits fail the audit: a goal is a direction, which a table of registers may miss with a reason,
/// and a limit is where a reader loses the thread.
pub(super) fn too_long() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for directory in directories()? {
        for (file, text) in files(&directory)? {
            let place = format!("{directory}/{file}");
            let lines = text.lines().count();
            if lines > FILE {
                found.push(format!("{place}: {lines} lines"));
            }
            for (line, name, lines) in longer_functions(&text, FUNCTION) {
                found.push(format!("{place}:{line}: {name}: {lines} lines"));
            }
        }
    }
    Ok(found)
}

/// Returns the directories of the workspace's crates. The workspace's list decides: what is no
/// member is not built either. A crate that is not built by the workspace, such as libFuzzer's, has
/// its own rules.
fn directories() -> Result<Vec<String>> {
    let root = workspace::root();
    let text = fs::read_to_string(root.join("Cargo.toml")).context("Cargo.toml")?;
    let manifest: toml::Table = toml::from_str(&text).context("Cargo.toml")?;
    let members = manifest.get("workspace").and_then(|workspace| {
        let members = workspace.get("members")?.as_array()?.iter();
        members
            .map(|member| Some(member.as_str()?.to_owned()))
            .collect::<Option<Vec<_>>>()
    });
    members.context("Cargo.toml: no members of the workspace")
}

/// Returns the sources of a crate by path below its directory, without those of crates inside. A
/// crate inside another one's folder, as the workbench in xtask, counts for itself.
fn files(directory: &str) -> Result<Vec<(String, String)>> {
    let top = workspace::root().join(directory);
    let inside: Vec<String> = directories()?
        .iter()
        .filter_map(|other| {
            Some(other.strip_prefix(directory)?.strip_prefix('/')?.to_owned() + "/")
        })
        .collect();
    let mut files = Vec::new();
    for path in source::files(&top, "rs")? {
        let file = path.strip_prefix(&top)?.to_string_lossy().into_owned();
        let is_other = inside.iter().any(|other| file.starts_with(other.as_str()));
        if is_other || file.starts_with("target/") {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        files.push((file, text));
    }
    Ok(files)
}
