//! `cargo xtask bench --wake`: from a signal to a program of the device VM, and natively.
//!
//! One initramfs runs in the device VM of `tests/manifests/wake.dts` and on the same Debian kernel
//! without GearV. There a program on one CPU causes what a program on the other one waits for: a
//! line of the board's PL061, or INTx of a PCI device by `uio_pci_generic`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::initramfs::with_busybox;
use crate::qemu::{Boot, Console, Machine, Qemu};
use crate::{device_userland, kernel_modules, payloads, workspace};

/// The rows in order.
pub(super) const ROWS: [&str; 4] = ["wake_line", "wake_uio", "request_gdm", "request_gdm_poll"];

const INIT: &str = include_str!("wake/init.sh");
const PROGRAMS: [&str; 3] = ["gdm", "gearctl", "wake"];
/// The kernel's driver owns the PL061, whose registers the program uses all the same.
const COMMAND_LINE: &str = "console=ttyAMA0 iomem=relaxed";

/// Builds the initramfs below `out_dir` and returns its path.
pub(crate) fn initramfs(out_dir: &Path) -> Result<PathBuf> {
    let mut tree = with_busybox()?;
    let modules = [device_userland::MEMORY_MODULES, &["uio_pci_generic"]].concat();
    kernel_modules::add(&mut tree, &modules)?;
    let paths = workspace::build_static(device_userland::PACKAGE, &PROGRAMS)?;
    for (name, path) in PROGRAMS.iter().zip(paths) {
        tree.program(&format!("usr/bin/{name}"), fs::read(path)?);
    }
    tree.program("init", INIT);
    tree.write_initramfs(out_dir.join("wake-initramfs.cpio"))
}

/// Returns the machine without GearV, with the PCI device.
pub(super) fn natively(qemu: &Qemu, machine: &Machine) -> Result<Command> {
    let kernel = payloads::debian_kernel()?;
    let initramfs = initramfs(&workspace::output_dir())?;
    let boot = Boot {
        kernel: &kernel,
        initrd: Some(&initramfs),
        command_line: Some(COMMAND_LINE),
    };
    let machine = machine.clone().without_el2();
    let mut command = qemu.command(&machine, &boot, Console::Pipes);
    command.args(["-device", "edu"]);
    Ok(command)
}
