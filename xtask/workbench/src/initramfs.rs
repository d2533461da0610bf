//! The small Linux userland that guests without devices boot into: busybox and one init script.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::tree::Tree;
use crate::{kernel_modules, payloads, programs};

/// Line that init prints when the shell is ready; the guest's name stands in between.
pub const READY: (&str, &str) = ("GearV guest ", ": shell ready");

/// Mounts what a shell needs, says that it is ready, and starts the shell.
const INIT: &str = include_str!("initramfs/init.sh");
/// The file that every init reads first.
const BEGIN: &str = include_str!("initramfs/begin.sh");
/// Profile that every shell reads first.
pub const PROFILE: &str = include_str!("initramfs/profile.sh");

/// Modules of sockets to the device VM, of input devices with what programs read of them, and of
/// the watchdog.
const PERIPHERALS: &[&str] = &[
    "virtio_mmio",
    "vmw_vsock_virtio_transport",
    "virtio_input",
    "evdev",
    "sbsa_gwdt",
];

/// Settings of Debian's watchdog daemon: nothing but the device, which knows its own time.
const WATCHDOG: &str = "watchdog-device = /dev/watchdog\nwatchdog-timeout = 10\ninterval = 1\n\
                        realtime = no\n";

/// Builds the initramfs below `out_dir` and returns its path.
pub fn build(out_dir: &Path) -> Result<PathBuf> {
    with_shell()?.write_initramfs(out_dir.join("busybox-initramfs.cpio"))
}

/// Returns a userland whose init starts a shell on the console.
pub(crate) fn with_shell() -> Result<Tree> {
    let mut tree = with_busybox()?;
    tree.program("init", INIT);
    Ok(tree)
}

/// Builds the same with stress-ng in it.
pub fn with_stress(out_dir: &Path) -> Result<PathBuf> {
    let mut tree = with_busybox()?;
    programs::add(&mut tree, &payloads::programs()?, &["stress-ng"])?;
    tree.program("init", INIT);
    tree.write_initramfs(out_dir.join("stress-initramfs.cpio"))
}

/// Builds the same with the modules of virtual peripherals, and programs that use them.
pub fn with_peripherals(out_dir: &Path) -> Result<PathBuf> {
    let mut tree = with_busybox()?;
    kernel_modules::add(&mut tree, PERIPHERALS)?;
    let root = payloads::peripherals()?;
    programs::add(&mut tree, &root, &["socat", "evtest"])?;
    programs::add_with(&mut tree, &root, &payloads::watchdog()?, &["watchdog"])?;
    tree.file("etc/watchdog.conf", WATCHDOG);
    tree.directory("var/log/watchdog");
    tree.link("var/run", "../run");
    tree.program("init", INIT);
    tree.write_initramfs(out_dir.join("peripherals-initramfs.cpio"))
}

/// Returns a userland that consists of busybox, still without an init program.
pub fn with_busybox() -> Result<Tree> {
    let mut tree = Tree::userland();
    tree.console();
    tree.program("usr/bin/busybox", fs::read(payloads::busybox()?)?);
    tree.link("usr/bin/sh", "busybox");
    tree.file("etc/begin", BEGIN);
    tree.file("etc/profile", PROFILE);
    Ok(tree)
}
