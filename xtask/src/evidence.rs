//! `cargo xtask evidence`: the page with the figure of each piece of evidence (docs/evidence.md).
//!
//! Figures come from the linked images, the requirements, and what the last whole run of the tests
//! left behind. Invariant: nothing is written that was not measured.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::requirements::Requirements;
use crate::test::planted::Score;
use crate::{audit, workspace};

/// What a run of all tests found.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Run {
    pub(crate) parts: Vec<PartRun>,
    /// What was said of coverage.
    pub(crate) coverage: String,
}

/// What a part found.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct PartRun {
    pub(crate) name: String,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Run {
    /// Keeps the results for `cargo xtask evidence`.
    pub(crate) fn write(&self) -> Result<()> {
        let path = path();
        let text = serde_json::to_string_pretty(self)?;
        fs::write(&path, text).with_context(|| path.display().to_string())
    }

    fn read() -> Result<Run> {
        let path = path();
        let text = fs::read_to_string(&path)
            .with_context(|| format!("{}: run cargo xtask test first", path.display()))?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }
}

fn path() -> PathBuf {
    workspace::output_dir().join("tests.json")
}

/// What a run found that is too long for each run of the tests.
#[derive(Debug, Deserialize, Serialize)]
struct Longer {
    name: String,
    figure: String,
    command: String,
    /// The commit that was checked out.
    commit: String,
}

fn longer_folder() -> PathBuf {
    workspace::output_dir().join("longer-runs")
}

/// Keeps the figure of a longer run, with the command that repeats it, for `cargo xtask evidence`.
pub(crate) fn note(name: &str, figure: &str, command: &str) -> Result<()> {
    let mut git = Command::new("git");
    git.current_dir(workspace::root());
    git.args(["rev-parse", "--short", "HEAD"]);
    let commit = git.output().map(|output| output.stdout).unwrap_or_default();
    let longer = Longer {
        name: name.to_owned(),
        figure: figure.to_owned(),
        command: command.to_owned(),
        commit: String::from_utf8_lossy(&commit).trim().to_owned(),
    };
    fs::create_dir_all(longer_folder())?;
    let file = longer_folder()
        .join(name.replace(' ', "-"))
        .with_extension("json");
    fs::write(file, serde_json::to_string_pretty(&longer)?)?;
    Ok(())
}

/// Returns all figures that were kept, by name.
fn longer_runs() -> Result<Vec<Longer>> {
    let mut runs = Vec::new();
    let folder = longer_folder();
    if folder.is_dir() {
        for entry in fs::read_dir(folder)? {
            let text = fs::read_to_string(entry?.path())?;
            runs.push(serde_json::from_str::<Longer>(&text)?);
        }
    }
    runs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(runs)
}

/// Writes the page.
pub(crate) fn command() -> Result<()> {
    let planted = Score::read().summary()?;
    let mut page = page(
        &Run::read()?,
        &audit::run()?,
        &Requirements::read()?,
        &planted,
    );
    page += "\n## Longer runs\n\n| what | figure | command | commit |\n|---|---|---|---|\n";
    for run in longer_runs()? {
        let Longer {
            name,
            figure,
            command,
            commit,
        } = run;
        page += &format!("| {name} | {figure} | `{command}` | {commit} |\n");
    }
    let path = workspace::root().join("docs/evidence.md");
    fs::write(&path, page).with_context(|| path.display().to_string())?;
    println!("{}", path.display());
    Ok(())
}

fn page(run: &Run, audit: &audit::Findings, requirements: &Requirements, planted: &str) -> String {
    let sum = |of: fn(&PartRun) -> usize| run.parts.iter().map(of).sum::<usize>();
    let mut page = String::from(
        "# Evidence\n\nWritten by `cargo xtask evidence` after `cargo xtask test`; do not edit. What it is evidence of: \
         [the safety manual](safety-manual.md).\n\n",
    );
    page += &format!(
        "## Tests: `cargo xtask test`\n\n{} passed, {} failed, {} skipped in {} parts.\n\n| part | passed | failed | skipped |\n|---|---|---|---|\n",
        sum(|part| part.passed),
        sum(|part| part.failed),
        sum(|part| part.skipped),
        run.parts.len(),
    );
    for PartRun {
        name,
        passed,
        failed,
        skipped,
    } in &run.parts
    {
        page += &format!("| {name} | {passed} | {failed} | {skipped} |\n");
    }
    page += &format!(
        "\n## Coverage: the end of `cargo xtask test`\n\n{}\n",
        run.coverage
    );
    page += &format!(
        "\n## Requirements: `cargo xtask requirements`\n\n{} requirements, {} faults. [The matrix](requirements/matrix.md).\n",
        requirements.count(),
        requirements.faults().len(),
    );
    page += &format!(
        "\n## Planted bugs: `cargo xtask test --slow \"planted bug\"`\n\n{}\n",
        planted
    );
    page += "\n## The linked runtime images: `cargo xtask audit`\n\n";
    for line in &audit.holds {
        page += &format!("- {}\n", line.replace('<', "\\<"));
    }
    for line in &audit.fails {
        page += &format!("- **FAIL** {line}\n");
    }
    page
}
