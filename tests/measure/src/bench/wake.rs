//! `cargo xtask bench --wake`: from a signal to a program of the device VM, and natively.
//!
//! One initramfs runs in the device VM of `tests/manifests/wake.dts` and on the same Debian kernel
//! without GearV. There a program on one CPU causes what a program on the other one waits for: a
//! line of the board's PL061, or INTx of a PCI device by `uio_pci_generic`.

use std::process::Command;

use anyhow::Result;
use workbench::qemu::{Boot, Console, Machine, Qemu};
use workbench::{payloads, wake_userland, workspace};

/// The rows in order. The first two are the wake of a program alone, and the others are requests to
/// the device model with and without polling.
pub(super) const ROWS: [&str; 4] = ["wake_line", "wake_uio", "request_gdm", "request_gdm_poll"];

/// The kernel's driver owns the PL061, whose registers the program uses all the same.
const COMMAND_LINE: &str = "console=ttyAMA0 iomem=relaxed";

/// Returns the machine without GearV, with the PCI device. The PCI device `edu` makes its INTx
/// active on a store of the driver's.
pub(super) fn natively(qemu: &Qemu, machine: &Machine) -> Result<Command> {
    let kernel = payloads::debian_kernel()?;
    let initramfs = wake_userland::initramfs(&workspace::output_dir())?;
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
