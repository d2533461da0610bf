//! The userland in which a program waits for a signal, in the device VM of
//! `tests/manifests/wake.dts` and natively.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::initramfs::with_busybox;
use crate::{device_userland, kernel_modules};

const INIT: &str = include_str!("wake_userland/init.sh");
const PROGRAMS: [&str; 3] = ["gdm", "gearctl", "wake"];

/// Builds the initramfs below `out_dir` and returns its path.
pub fn initramfs(out_dir: &Path) -> Result<PathBuf> {
    let mut tree = with_busybox()?;
    let modules = [device_userland::MEMORY_MODULES, &["uio_pci_generic"]].concat();
    kernel_modules::add(&mut tree, &modules)?;
    device_userland::add_programs(&mut tree, &PROGRAMS)?;
    tree.program("init", INIT);
    tree.write_initramfs(out_dir.join("wake-initramfs.cpio"))
}
