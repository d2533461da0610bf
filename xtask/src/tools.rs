//! The outside programs that building and running GearV takes.

use std::path::PathBuf;
use std::process::Command;

/// A program and the libraries it needs, installed or unpacked in the cache.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
    library_path: Option<String>,
}

impl Program {
    /// Returns a command that runs the program with its own libraries.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        if let Some(libraries) = &self.library_path {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }
}

/// The build tools; QEMU is apart, since most commands do not run it.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    dtc: Program,
}

impl Tools {
    /// Finds the build tools, downloading what is missing.
    pub(crate) fn prepare() -> anyhow::Result<Tools> {
        Ok(Tools { dtc: Program { path: "dtc".into(), library_path: None } })
    }

    /// Returns the device tree compiler.
    pub(crate) fn dtc(&self) -> Command {
        self.dtc.command()
    }
}
