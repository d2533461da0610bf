//! The second lane of a whole run: parts that no busy host disturbs run in a process of their own,
//! while QEMU, most of the time on one CPU of the host, keeps the first lane waiting.
//!
//! Some parts may run in either lane. Each lane comes to them once it has run its own parts: the
//! first lane in the order of the list, the second one from its end. Neither lane waits for the
//! other for longer than a part takes, whatever the parts of each cost.
//!
//! Invariants: each chosen part runs once, in one of the two: the file that claims a part is made
//! once. A part of this lane writes below folders of its own, or whole files that are the same in
//! both lanes.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use workbench::workspace;

use crate::part::{Part, Place, Tally};

/// A part that ran, and how long. The first lane prints the slowest of both lanes in one list.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Ran {
    pub(super) name: String,
    pub(super) seconds: f32,
    /// Time of the host's CPUs, which tells a part that computes from one that waits.
    pub(super) cpu_seconds: f32,
    pub(super) tally: Tally,
}

/// Folder with a file for each part that a lane has begun.
pub(super) struct Claims(PathBuf);

impl Claims {
    /// Finds the claims of the run, from whichever lane. Files serve two processes without a server
    /// or a lock that a killed process would keep.
    pub(super) fn of_run() -> Claims {
        Claims(workspace::output_dir().join("claims"))
    }

    /// Removes the claims of an earlier run, before the second lane is started.
    pub(super) fn clear(&self) -> Result<()> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        fs::create_dir_all(&self.0).with_context(|| self.0.display().to_string())
    }

    /// Claims a part by its number in the list; false if the other lane has it.
    pub(super) fn take(&self, number: usize) -> Result<bool> {
        let file = self.0.join(number.to_string());
        match File::create_new(&file) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error).with_context(|| file.display().to_string()),
        }
    }
}

/// Returns the parts that the first lane comes to, with their numbers in the list: its own, and
/// then those of either.
pub(super) fn first(chosen: &[Part]) -> Vec<(usize, &Part)> {
    of(chosen, Place::First)
        .chain(of(chosen, Place::Either))
        .collect()
}

/// Returns the parts that the second lane comes to: its own, and then from the end those of either.
pub(super) fn second(chosen: &[Part]) -> Vec<(usize, &Part)> {
    let either = of(chosen, Place::Either).rev();
    of(chosen, Place::Second).chain(either).collect()
}

/// Returns the parts of a place, in the order of the list.
fn of(chosen: &[Part], place: Place) -> impl DoubleEndedIterator<Item = (usize, &Part)> {
    let parts = chosen.iter().enumerate();
    parts.filter(move |(_, part)| part.place == place)
}

/// The process, ended when it is dropped.
pub(super) struct Lane {
    child: Child,
    printed: PathBuf,
    found: PathBuf,
}

impl Lane {
    /// Starts the lane at a lower priority than this process's: tests on QEMU have time limits.
    pub(super) fn start(slow: bool) -> Result<Lane> {
        let folder = workspace::output_dir();
        fs::create_dir_all(&folder)?;
        Claims::of_run().clear()?;
        let printed = folder.join("host-lane.log");
        let found = folder.join("host-lane.json");
        let _ = fs::remove_file(&found);
        let log = File::create(&printed).with_context(|| printed.display().to_string())?;
        // The child ends with its parent, as QEMU does.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--", "nice", "-n", "5"]);
        command.arg(std::env::current_exe()?);
        command.args(["test", "--host-lane"]).arg(&found);
        command.args(slow.then_some("--slow"));
        command.stdin(Stdio::null()).stderr(log.try_clone()?);
        let child = command.stdout(log).spawn().context("setpriv")?;
        println!(
            "tests that no busy host disturbs run beside: {}",
            printed.display()
        );
        Ok(Lane {
            child,
            printed,
            found,
        })
    }

    /// Waits for the end of the lane, prints its output, and returns its results. The output comes
    /// at once behind the first lane's: lines of two lanes between each other are nobody's.
    pub(super) fn finish(mut self) -> Result<Vec<Ran>> {
        let status = self.child.wait()?;
        print!("{}", String::from_utf8_lossy(&fs::read(&self.printed)?));
        let found = fs::read(&self.found)
            .with_context(|| format!("the second lane broke off: {status}"))?;
        Ok(serde_json::from_slice(&found)?)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // The child has usually ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Leaves what ran to the first lane.
pub(super) fn write(file: &Path, ran: &[Ran]) -> Result<()> {
    fs::write(file, serde_json::to_vec(ran)?).with_context(|| file.display().to_string())
}

#[cfg(test)]
mod tests;
