//! The second lane of a whole run: parts that no busy host disturbs run in a process of their own,
//! while QEMU, most of the time on one CPU of the host, keeps the first lane waiting.
//!
//! Invariants: each chosen part runs once, in one of the two; a part of this lane writes below
//! folders of its own, or whole files that are the same in both lanes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use workbench::workspace;

use crate::part::Tally;

/// A part that ran, and how long.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Ran {
    pub(super) name: String,
    pub(super) seconds: f32,
    pub(super) tally: Tally,
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

    /// Waits for the end of the lane, prints its output, and returns its results.
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
