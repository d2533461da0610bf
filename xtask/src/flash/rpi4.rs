//! A Raspberry Pi 4's card: what its firmware reads besides the images.
//!
//! The device tree is that of Debian's kernel package, whose labels are Linux's. Overlays that come
//! with the board's firmware are made for another tree and need labels that this one lacks, so the
//! card has an overlay of its own for the console.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use workbench::manifest::compile_text;
use workbench::tools::{self, Tools};
use workbench::{payloads, workspace};

use super::card::CardFile;

/// Names of the files. Paths on the card, in the order of the contents below.
pub(super) const NAMES: [&str; 3] = ["config.txt", "bcm2711-rpi-4-b.dtb", "overlays/gearv.dtbo"];

/// Boot configuration for the firmware: Gear1 starts in 64-bit state, with the archive as initial
/// RAM disk on a page of its own, and with PL011 on the pins of the header. The options are
/// documented at raspberrypi.com (config.txt); `enable_gic` chooses the GIC-400, and without
/// `gpu_mem` the firmware takes more memory.
const CONFIG: &str = "\
# Written by GearV's `cargo xtask flash`.
[pi4]
arm_64bit=1
enable_gic=1
kernel=gear1.img
initramfs archive.cpio 0x08000000
device_tree=bcm2711-rpi-4-b.dtb
enable_uart=1
gpu_mem=64
# PL011 as the console, on pins 8 and 10 of the header.
dtoverlay=gearv
gpio=14,15=a0
";

/// Overlay that makes PL011 the console: Bluetooth, which has it otherwise, and the mini-UART are
/// off. Labels are those of Linux's tree (bcm2711-rpi-4-b.dts), which the firmware resolves.
const OVERLAY: &str = "\
/dts-v1/;
/plugin/;

/ {
	compatible = \"brcm,bcm2711\";
};

&uart0 {
	pinctrl-0 = <&uart0_gpio14>;
	status = \"okay\";
};

&bt {
	status = \"disabled\";
};

&uart1 {
	status = \"disabled\";
};

&{/chosen} {
	stdout-path = \"serial0:115200n8\";
};
";

/// Returns the files, of which the overlay fits the tree. The overlay is applied here once, so that
/// a label that Linux renamed is found before a card is written.
pub(super) fn files(tools: &Tools) -> Result<Vec<CardFile>> {
    let tree = payloads::rpi4_device_tree()?;
    let scratch = workspace::output_dir().join(format!("rpi4-{}.dtbo", std::process::id()));
    let overlay = compile_text(OVERLAY, tools, &scratch)?;
    fs::remove_file(scratch.with_extension("dts"))?;
    fs::write(&scratch, &overlay)?;
    ensure_fits(&scratch, &tree)?;
    fs::remove_file(scratch)?;
    let bytes = [CONFIG.into(), fs::read(tree)?, overlay];
    Ok(NAMES.map(str::to_owned).into_iter().zip(bytes).collect())
}

/// Applies an overlay to a tree, as the firmware does, and discards the result. The firmware drops
/// an overlay that does not fit without a word.
fn ensure_fits(overlay: &Path, tree: &Path) -> Result<()> {
    let merged = overlay.with_extension("dtb");
    let mut fdtoverlay = tools::fdtoverlay()?.command();
    fdtoverlay.arg("-i").arg(tree).arg("-o").arg(&merged);
    let output = fdtoverlay.arg(overlay).output();
    let output = output.context("cannot run fdtoverlay")?;
    ensure!(
        output.status.success(),
        "GearV's overlay does not fit {}: {}",
        tree.display(),
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    fs::remove_file(merged)?;
    Ok(())
}
