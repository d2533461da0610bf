//! Sources, time and command of a measurement.

use std::env;
use std::process::Command;

use workbench::workspace;

use super::figures::Facts;

/// Command that repeats a measurement. A figure without its origin cannot be measured again, and a
/// report outlives the tree that it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Commit of the sources; one that ends in `-dirty` was changed.
    pub commit: String,
    /// Date and time in UTC.
    pub date: String,
    /// Command line.
    pub command: String,
}

impl Origin {
    /// Name of the fact that is the commit.
    pub const COMMIT: &str = "commit";
    /// Name of the fact that is the date.
    pub const DATE: &str = "date";
    /// Name of the fact that is the command.
    pub const COMMAND: &str = "command";

    /// Returns the origin of a measurement that this program begins now. The commit is taken at the
    /// start, since a measurement is long enough for somebody to commit meanwhile.
    pub fn now() -> Origin {
        Origin {
            commit: first_line("git", &["describe", "--always", "--dirty", "--abbrev=10"]),
            date: first_line("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
            command: command_line(env::args().skip(1)),
        }
    }

    /// Returns the parts by their names. The parts are taken by name: a new one does not compile
    /// until it is a fact as well.
    pub fn facts(&self) -> Facts {
        let Origin {
            commit,
            date,
            command,
        } = self.clone();
        let facts = [
            (Origin::COMMIT, commit),
            (Origin::DATE, date),
            (Origin::COMMAND, command),
        ];
        Facts::from(facts.map(|(name, value)| (name.to_owned(), value)))
    }
}

/// Returns what a program prints; a clone without history has no commit, and a report without it is
/// better than none.
fn first_line(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    let output = command
        .args(arguments)
        .current_dir(workspace::root())
        .output();
    let printed = output.map(|output| output.stdout).unwrap_or_default();
    let printed = String::from_utf8_lossy(&printed);
    match printed.lines().next() {
        Some(line) => line.to_owned(),
        None => "unknown".to_owned(),
    }
}

/// Returns the command line to which xtask gave these arguments, as a shell takes it. The program's
/// own path is left out, because it is that of a build and differs between machines.
fn command_line(arguments: impl Iterator<Item = String>) -> String {
    let quoted = arguments.map(
        |argument| match argument.contains(' ') || argument.is_empty() {
            true => format!("'{argument}'"),
            false => argument,
        },
    );
    let words = ["cargo".to_owned(), "xtask".to_owned()]
        .into_iter()
        .chain(quoted);
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
