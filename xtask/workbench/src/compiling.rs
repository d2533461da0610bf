//! Runs of `cargo build` that show how far they are, and keep what the compiler says.
//!
//! Cargo draws its own bar on a terminal alone, and would leave its lines behind. Here cargo writes
//! the bar into a pipe, and a step shows the figures.

use std::io::{BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result};

use crate::progress::Step;

/// Width of cargo's bar, which leaves room for the names of crates. Without a width, cargo takes
/// the terminal's, and a pipe has none.
const WIDTH: &str = "120";
/// Words of cargo that begin a line about the course of a build. Everything else is a complaint.
/// Cargo has no other mark for them on its standard error.
const COURSE: [&str; 12] = [
    "Adding ",
    "Blocking ",
    "Building ",
    "Compiling ",
    "Downloaded ",
    "Downloading ",
    "Finished ",
    "Fetch ",
    "Fresh ",
    "Locking ",
    "Updating ",
    "Waiting ",
];

/// Runs cargo, and shows what it compiles. Returns its status, and what the compiler and cargo
/// complain of. Output of the compiler is kept for an error, and shown by nobody else.
pub(crate) fn run(mut command: Command, what: &str) -> Result<(ExitStatus, String)> {
    command.env("CARGO_TERM_PROGRESS_WHEN", "always");
    command.env("CARGO_TERM_PROGRESS_WIDTH", WIDTH);
    command.env("CARGO_TERM_COLOR", "never");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.stderr(Stdio::piped()).spawn();
    let mut child = child.context("cargo cannot be run")?;
    let printed = child.stderr.take().context("cargo has no pipe")?;
    let mut build = Build::new(what);
    build.follow(printed)?;
    let status = child.wait()?;
    Ok((status, build.end()))
}

/// A build in progress. The line of progress replaces cargo's own.
struct Build<'a> {
    /// Name of the crate that is compiled, for the progress.
    what: &'a str,
    /// Shown as soon as something is compiled; a build that has nothing to do is silent.
    step: Option<Step>,
    /// Lines of cargo beside its progress, shown when the build fails.
    complaint: String,
}

impl<'a> Build<'a> {
    fn new(what: &'a str) -> Build<'a> {
        Build {
            what,
            step: None,
            complaint: String::new(),
        }
    }

    /// Takes in all that cargo prints; the bar's lines end with a carriage return. Byte by byte: a
    /// bar ends without a line feed.
    fn follow(&mut self, printed: impl Read) -> Result<()> {
        let mut line = Vec::new();
        for byte in BufReader::new(printed).bytes() {
            match byte.context("cargo's output")? {
                end @ (b'\n' | b'\r') => {
                    let text = String::from_utf8_lossy(&line).into_owned();
                    self.take(&text, end == b'\n');
                    line.clear();
                }
                byte => line.push(byte),
            }
        }
        self.take(&String::from_utf8_lossy(&line), false);
        Ok(())
    }

    /// Takes a line of cargo's: progress is shown in one line, and the rest is kept. A line that is
    /// cut off by the bar counts only if it says something.
    fn take(&mut self, line: &str, is_whole: bool) {
        let said = line.trim_start();
        let is_course = line.starts_with("  ") && COURSE.iter().any(|word| said.starts_with(word));
        if !is_course && !counts_warnings(line) {
            if is_whole || !said.is_empty() {
                self.complaint += line;
                self.complaint.push('\n');
            }
            return;
        }
        if said.starts_with("Compiling ") && self.step.is_none() {
            self.step = Some(Step::start(&format!("compiling {}", self.what)));
        }
        if let (Some(step), Some(now)) = (&self.step, position(said)) {
            step.say(format!("compiling {}: {now}", self.what));
        }
    }

    /// Ends the live line, and returns the complaint. The complaint has warnings too, where cargo
    /// shows them.
    fn end(self) -> String {
        if let Some(step) = self.step {
            step.clear();
        }
        self.complaint
    }
}

/// Tells whether a line only counts the warnings of a crate, which `--quiet` leaves out as well.
/// The warnings themselves stand above.
fn counts_warnings(line: &str) -> bool {
    let count = line
        .strip_prefix("warning: `")
        .and_then(|rest| rest.split_once(") generated "));
    count.is_some_and(|(_, count)| count.contains(" warning"))
}

/// Returns how far a build is by cargo's bar: `12 of 45, gear1-core`. The format is cargo's own and
/// may change: without a match no position is shown.
fn position(bar: &str) -> Option<String> {
    let (_, rest) = bar.strip_prefix("Building [")?.split_once("] ")?;
    let (count, crates) = rest.split_once(": ").unwrap_or((rest, ""));
    let (done, all) = count.trim().split_once('/')?;
    let first = crates.split([',', '(', '.']).next().unwrap_or_default();
    Some(match first.trim() {
        "" => format!("{done} of {all}"),
        first => format!("{done} of {all}, {first}"),
    })
}

#[cfg(test)]
mod tests;
