//! Results of test runs, kept for `cargo xtask evidence`.
//!
//! The page of evidence is written by another run than the tests', often on another day, so results
//! lie in files in between.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use workbench::workspace;

/// Result of a run of all tests. Fields with a default came later, and files of earlier runs lack
/// them.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Run {
    pub(crate) parts: Vec<PartRun>,
    /// Summary of the coverage.
    pub(crate) coverage: String,
    /// Duration of the run.
    #[serde(default)]
    pub(crate) seconds: u64,
    /// Commit that was checked out.
    #[serde(default)]
    pub(crate) commit: String,
}

/// Result of a part.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct PartRun {
    pub(crate) name: String,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    /// Figures that the part's tests report.
    #[serde(default)]
    pub(crate) figures: Vec<String>,
}

impl Run {
    /// Keeps the results for `cargo xtask evidence`. Only a run of all parts calls this.
    pub(crate) fn write(&self) -> Result<()> {
        let path = path();
        let text = serde_json::to_string_pretty(self)?;
        fs::write(&path, text).with_context(|| path.display().to_string())
    }

    /// Reads the results of the last run of all tests.
    pub(crate) fn read() -> Result<Run> {
        let path = path();
        let text = fs::read_to_string(&path)
            .with_context(|| format!("{}: run cargo xtask test first", path.display()))?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }
}

fn path() -> PathBuf {
    workspace::output_dir().join("tests.json")
}

/// Result of a test that is too long for each run. The commit tells how old a figure is.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Longer {
    pub(crate) name: String,
    pub(crate) figure: String,
    pub(crate) command: String,
    /// Commit that was checked out.
    pub(crate) commit: String,
}

/// The figures of longer runs in the repository: a clone has them without making the runs again.
fn longer_kept() -> PathBuf {
    workspace::root().join("docs/evidence/longer-runs.json")
}

fn longer_folder() -> PathBuf {
    workspace::output_dir().join("longer-runs")
}

/// Returns the commit that is checked out; empty outside of a repository. A source archive has no
/// repository, and tests run there as well.
pub(crate) fn commit() -> String {
    let mut git = Command::new("git");
    git.current_dir(workspace::root());
    git.args(["rev-parse", "--short", "HEAD"]);
    let commit = git.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&commit).trim().to_owned()
}

/// Keeps the figure of a longer run, with the command that repeats it, for `cargo xtask evidence`.
/// One file for each name: a repetition replaces the figure of the run before.
pub(crate) fn note(name: &str, figure: &str, command: &str) -> Result<()> {
    let longer = Longer {
        name: name.to_owned(),
        figure: figure.to_owned(),
        command: command.to_owned(),
        commit: commit(),
    };
    fs::create_dir_all(longer_folder())?;
    let file = longer_folder()
        .join(name.replace(' ', "-"))
        .with_extension("json");
    fs::write(file, serde_json::to_string_pretty(&longer)?)?;
    Ok(())
}

/// Returns all figures of longer runs, by name: those of the repository, and newer ones made here,
/// which the repository has then. Sorted by name, so that a new figure moves no other line.
pub(crate) fn longer_runs() -> Result<Vec<Longer>> {
    let mut runs = BTreeMap::new();
    if let Ok(text) = fs::read_to_string(longer_kept()) {
        let kept: Vec<Longer> = serde_json::from_str(&text)?;
        runs.extend(kept.into_iter().map(|run| (run.name.clone(), run)));
    }
    let folder = longer_folder();
    if folder.is_dir() {
        for entry in fs::read_dir(folder)? {
            let text = fs::read_to_string(entry?.path())?;
            let run: Longer = serde_json::from_str(&text)?;
            runs.insert(run.name.clone(), run);
        }
    }
    let runs: Vec<Longer> = runs.into_values().collect();
    keep(&longer_kept(), &runs)?;
    Ok(runs)
}

/// Writes what a run found into the repository. The line feed at the end makes it a text file for
/// editors and git.
pub(crate) fn keep(path: &Path, found: &impl Serialize) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let text = serde_json::to_string_pretty(found)? + "\n";
    fs::write(path, text).with_context(|| path.display().to_string())
}
