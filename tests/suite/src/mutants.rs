//! Share of cargo-mutants' changes of gear1-core that the host tests find within a time limit.
//!
//! The changes come in random order, so the share is an estimate for all changes. Missed changes
//! are listed in the target directory: each needs a test, or has no effect.
//!
//! Planted bugs are those that somebody thought of. Mutations are made without thought, and ask
//! whether each expression of the code matters to some test.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use workbench::{cargo_tool, workspace};

use crate::part::{Part, Tally};
use crate::record;

/// Seconds that are given, and seconds for the tests of one change. A change that makes a loop
/// endless costs its limit.
const SECONDS: &str = "1500";
const SECONDS_EACH: &str = "120";
/// Also the name of the figure on the page of evidence.
const PART: &str = "mutants of gear1-core";

pub(super) fn parts() -> Vec<Part> {
    vec![Part::new(PART, mutants).slow(true)]
}

/// Missed changes count as skipped: many have no effect, and a person has to look. A timeout is a
/// find, since a test that never ends has failed.
fn mutants(tally: &mut Tally) -> Result<()> {
    let program = match cargo_tool::newest("cargo-mutants") {
        Ok(program) => program,
        Err(error) => {
            println!("skipped: {error:#}");
            tally.skip(1);
            return Ok(());
        }
    };
    let output = workspace::output_dir().join("mutants");
    fs::create_dir_all(&output)?;
    let mut command = limited(&program, &output);
    command.output().context("timeout cannot be run")?;
    let found = lines(&output, "caught.txt")? + lines(&output, "timeout.txt")?;
    let missed = lines(&output, "missed.txt")?;
    ensure!(found > 0, "nothing was tried: see {}", output.display());
    let all = found + missed;
    let share = 100.0 * found as f64 / all as f64;
    let figure = format!("{found} of {all} changes found, {share:.0} %");
    println!("{figure}; missed ones: mutants/mutants.out/missed.txt");
    let command = format!("cargo xtask test --slow \"{PART}\"");
    record::note(PART, &figure, &command)?;
    tally.pass(found);
    tally.skip(missed);
    Ok(())
}

/// Returns the command that runs cargo-mutants within the time limit. An interrupt makes
/// cargo-mutants write its results.
fn limited(program: &Path, output: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.current_dir(workspace::root());
    command.args(["-s", "INT", "-k", "60", SECONDS]);
    command
        .arg(program)
        .args(["mutants", "--package", "gear1-core"]);
    command.args(["--shuffle", "--no-times"]);
    command.args(["--timeout", SECONDS_EACH, "--output"]);
    command.arg(output).args(["--", "--lib"]);
    command
}

/// Counts the changes that a file of the results lists. Each file of cargo-mutants' results has a
/// change in a line.
fn lines(output: &Path, name: &str) -> Result<usize> {
    let path = output.join("mutants.out").join(name);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(text.lines().count())
}
