//! The plugin of QEMU that counts instructions (`tests/exit-counter`).

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use workbench::workspace;

/// Builds the plugin, and returns its file. An optimised build, as the plugin runs at each instruction of the machine.
/// Cargo decides whether a build is needed, so a plugin of older sources is never used.
pub(crate) fn build() -> Result<PathBuf> {
    let mut command = workspace::cargo();
    command.args(["build", "--quiet", "--release", "--package", "exit-counter"]);
    let status = command.status().context("cargo cannot be run")?;
    ensure!(status.success(), "the plugin does not build");
    Ok(workspace::target_dir().join("release/libexit_counter.so"))
}
