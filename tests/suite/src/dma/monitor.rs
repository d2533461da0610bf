//! QEMU's monitor: reads the machine's memory.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

/// Where QEMU's monitor is.
pub(super) struct Socket(PathBuf);

/// QEMU's monitor.
pub(super) struct Monitor(BufReader<UnixStream>);

impl Monitor {
    /// Gives a machine a monitor.
    pub(super) fn add_to(command: &mut Command) -> Socket {
        // The path of a socket must be short.
        let socket = std::env::temp_dir().join(format!("gearv-dma-{}", std::process::id()));
        let option = format!("unix:{},server=on,wait=off", socket.display());
        command.args(["-qmp", &option]);
        Socket(socket)
    }

    /// Writes physical memory to a file. QEMU writes the file itself, which is much faster than a
    /// debugger's packets.
    pub(super) fn save(&mut self, start: u64, size: u64, file: &Path) -> Result<()> {
        let arguments = json!({ "val": start, "size": size, "filename": file });
        self.execute(&json!({ "execute": "pmemsave", "arguments": arguments }))
    }

    /// Executes a command. Events of the machine come before its answer.
    fn execute(&mut self, command: &Value) -> Result<()> {
        writeln!(self.0.get_mut(), "{command}")?;
        loop {
            let mut line = String::new();
            ensure!(self.0.read_line(&mut line)? != 0, "the monitor has gone");
            let answer: Value = serde_json::from_str(&line)?;
            ensure!(answer.get("error").is_none(), "{command}: {line}");
            if answer.get("return").is_some() {
                return Ok(());
            }
        }
    }
}

impl Socket {
    /// Connects to the monitor of a machine that runs.
    pub(super) fn connect(self) -> Result<Monitor> {
        let stream = UnixStream::connect(&self.0);
        let stream = stream.with_context(|| self.0.display().to_string())?;
        // QEMU has it open.
        let _ = fs::remove_file(&self.0);
        let mut monitor = Monitor(BufReader::new(stream));
        monitor.execute(&json!({ "execute": "qmp_capabilities" }))?;
        Ok(monitor)
    }
}
