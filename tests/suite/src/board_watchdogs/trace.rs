//! Events of QEMU's devices, in a file that grows.
//!
//! A trace shows what a device did without any code of GearV's in between.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use workbench::workspace;

/// Time between two looks at the file. QEMU writes its log without a signal, so the file is read
/// again and again.
const LOOK: Duration = Duration::from_millis(20);

/// A trace that is read while QEMU writes it.
pub(super) struct Trace {
    file: File,
    path: PathBuf,
}

impl Trace {
    /// Has a machine trace these events.
    pub(super) fn of(command: &mut Command, name: &str, events: &[&str]) -> Result<Trace> {
        for event in events {
            command.args(["-trace", event]);
        }
        // QEMU has one log: a machine that is watched for coverage has a file already.
        let watched = command.get_args().skip_while(|word| *word != "-D").nth(1);
        let path = match watched.map(PathBuf::from) {
            Some(path) => path,
            None => {
                let path = workspace::output_dir().join(format!("{name}-trace.log"));
                command.arg("-D").arg(&path);
                path
            }
        };
        fs::write(&path, "")?;
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        Ok(Trace { file, path })
    }

    /// Returns the events since the last call. The offset of the open file remembers how far it was
    /// read.
    pub(super) fn read(&mut self) -> Result<String> {
        let mut fresh = String::new();
        self.file.read_to_string(&mut fresh)?;
        Ok(fresh)
    }

    /// Waits for so many more events that contain `text`. Returns all events meanwhile. Everything
    /// in between is returned, so that a caller can exclude other events.
    pub(super) fn wait_for(
        &mut self,
        text: &str,
        count: usize,
        patience: Duration,
    ) -> Result<String> {
        let begin = Instant::now();
        let mut seen = String::new();
        while seen.matches(text).count() < count {
            ensure!(
                begin.elapsed() < patience,
                "{text} is not {count} times in {}",
                self.path.display()
            );
            sleep(LOOK);
            seen += &self.read()?;
        }
        Ok(seen)
    }
}
