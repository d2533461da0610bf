//! A Raspberry Pi 4's card: what its firmware reads besides the images.

use std::fs;

use anyhow::Result;
use workbench::payloads;

use super::card::CardFile;

/// Names of the files.
pub(super) const NAMES: [&str; 2] = ["config.txt", "bcm2711-rpi-4-b.dtb"];

/// Boot configuration for the firmware: Gear1 starts in 64-bit state, with the archive as initial
/// RAM disk on a page of its own, and with PL011 on the pins of the header.
const CONFIG: &str = "\
# Written by GearV's `cargo xtask flash`.
[pi4]
arm_64bit=1
enable_gic=1
kernel=gear1.img
initramfs archive.cpio 0x08000000
device_tree=bcm2711-rpi-4-b.dtb
enable_uart=1
dtoverlay=disable-bt
gpu_mem=64
";

/// Returns the files.
pub(super) fn files() -> Result<Vec<CardFile>> {
    let tree = fs::read(payloads::rpi4_device_tree()?)?;
    let bytes = [CONFIG.into(), tree];
    Ok(NAMES.map(str::to_owned).into_iter().zip(bytes).collect())
}
