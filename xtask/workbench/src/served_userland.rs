//! The device VM's userland while the benchmark guest is served by GDM: the rows of the userspace
//! device model.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::initramfs::with_busybox;
use crate::{device_userland, kernel_modules};

const INIT: &str = include_str!("served_userland/init.sh");
const PROGRAMS: [&str; 2] = ["gdm", "gearctl"];

/// Builds the device VM's initramfs below `out_dir` and returns its path.
pub fn initramfs(out_dir: &Path) -> Result<PathBuf> {
    let mut tree = with_busybox()?;
    kernel_modules::add(&mut tree, device_userland::MEMORY_MODULES)?;
    device_userland::add_programs(&mut tree, &PROGRAMS)?;
    tree.program("init", INIT);
    tree.write_initramfs(out_dir.join("bench-initramfs.cpio"))
}
