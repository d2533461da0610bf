//! QEMU's log of the translated parts of Gear1's runtime, which are the parts that ran.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};
use gear1_abi::layout::el2;

use crate::workspace;

/// Directory of QEMU's logs while machines are watched. Set once: machines of one run are all
/// watched, or none.
static WATCHED: OnceLock<PathBuf> = OnceLock::new();
/// More than the runtime's text has. The filter keeps guests' code out, of which a log would have
/// gigabytes.
pub const SPAN: u64 = 1 << 20;
/// The file of a Gear1 that is not the usual one. A planted bug's, or a build with a check: its
/// code lies elsewhere, and would count as coverage of the shipped one.
pub const OTHER_GEAR1: &str = "other-gear1.img";

/// Returns where the logs are, if machines are watched.
pub fn folder() -> Option<&'static Path> {
    WATCHED.get().map(PathBuf::as_path)
}

/// Returns the folder of the logs, one a machine.
fn directory() -> PathBuf {
    workspace::output_dir().join("coverage")
}

/// Watches all machines that are started from now on. Logs of an earlier run are deleted: addresses
/// of another build mean other lines.
pub fn watch() -> Result<()> {
    let directory = directory();
    if directory.is_dir() {
        fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())?;
    }
    fs::create_dir_all(&directory)?;
    WATCHED.get_or_init(|| directory);
    Ok(())
}

/// Watches them beside another process, which called [`watch`].
pub fn watch_beside() {
    WATCHED.get_or_init(directory);
}

/// Asks QEMU to log the runtime's code, if machines are watched and this one starts the usual
/// image: addresses in another one mean other lines.
pub fn add_to(command: &mut Command, gic: u32, kernel: &Path) {
    /// Numbers the logs of this process.
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let Some(directory) = WATCHED.get() else {
        return;
    };
    if kernel.file_name().is_some_and(|name| name == OTHER_GEAR1) {
        return;
    }
    // Machines of several processes start at the same time.
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let process = std::process::id();
    let log = directory.join(format!("{process}-{run}-gicv{gic}.log"));
    let filter = format!("{:#x}+{SPAN:#x}", el2::RUNTIME);
    command.args(["-d", "in_asm", "-dfilter", &filter, "-D"]);
    command.arg(log);
}
