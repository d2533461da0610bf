//! The userland that measures, the same in every configuration: busybox, cyclictest and what makes
//! load.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::initramfs::with_busybox;
use crate::{kernel_modules, payloads, programs};

/// First process: one script for the host, the guest and the real-time VM, which runs what the
/// kernel's command line names.
const INIT: &str = include_str!("jitter_userland/init.sh");
/// The disk that the load writes to.
const MODULES: &[&str] = &["virtio_mmio", "virtio_blk"];
/// Load beside the measurement: processor, memory, disk and network at once.
const LOAD: &str = include_str!("jitter_userland/load.sh");

/// Builds the initramfs below `out_dir` and returns its path.
pub fn initramfs(out_dir: &Path) -> Result<PathBuf> {
    let mut tree = with_busybox()?;
    programs::add(&mut tree, &payloads::programs()?, &["cyclictest"])?;
    kernel_modules::add_from(&payloads::debian_rt_modules()?, &mut tree, MODULES)?;
    tree.program("usr/bin/load", LOAD);
    tree.program("init", INIT);
    tree.write_initramfs(out_dir.join("jitter-initramfs.cpio"))
}

/// Returns the load as commands of a shell.
pub fn load(kind: &str) -> String {
    format!("set -- {kind}\n{LOAD}")
}
