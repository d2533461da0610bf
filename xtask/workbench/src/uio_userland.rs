//! The userland of a guest that uses channels by UIO: a shell, the driver and the program
//! `uio_ring`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::kernel_modules::Built;
use crate::{device_userland, initramfs, kernel_modules, uio_module};

/// Value of `compatible` by which the driver finds a channel.
const OPTIONS: &str = "of_id=generic-uio";

/// Builds the initramfs below `out_dir` and returns its path.
pub fn initramfs(out_dir: &Path) -> Result<PathBuf> {
    let mut tree = initramfs::with_shell()?;
    let driver = Built {
        name: "uio_pdrv_genirq",
        content: fs::read(uio_module::build(out_dir)?)?,
        options: OPTIONS,
    };
    kernel_modules::add_built(&mut tree, driver)?;
    device_userland::add_programs(&mut tree, &["uio_ring"])?;
    tree.write_initramfs(out_dir.join("uio-initramfs.cpio"))
}
