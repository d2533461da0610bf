//! `cargo xtask run --smoke`: boots a manifest's Linux guests and uses them as a person would.
//!
//! Prints one line a check. A check that fails ends the run, since the next ones would only
//! fail for the same reason; the end of the transcript then shows why.

mod absence;
pub mod desktop;
pub mod device_vm;
pub mod fio;
mod process;
mod session;
mod speculation;
pub mod top;

use anyhow::Result;
use workbench::build_images::Images;
use workbench::qemu::{Machine, Qemu};

use session::Smoke;
pub use session::{
    BOOT, ESCAPE, Extent, LONG, check_input, focus, hex, no_kernel_complains, power_off,
    reach_guest, ready, shell, shell_within,
};

/// Boots the machine, runs all checks and ends it. Lines are printed as they come: a boot takes
/// longer than a reader waits for the first.
pub fn run(qemu: &Qemu, machine: &Machine, images: &Images) -> Result<()> {
    let checks = check_all(qemu, machine, images, "smoke.log", Extent::FULL, &|line| {
        println!("{line}")
    })?;
    println!("{checks} checks passed");
    Ok(())
}

/// Runs all checks, tells `report` of each, and returns how many there were. With a disk of its own
/// there is a device VM to serve it.
pub fn check_all(
    qemu: &Qemu,
    machine: &Machine,
    images: &Images,
    log: &str,
    extent: Extent,
    report: &dyn Fn(&str),
) -> Result<usize> {
    let Some(disk) = &machine.disk else {
        return check_guests(qemu, machine, images, log, extent, report);
    };
    let mut smoke = Smoke::start(qemu, machine, images, log, extent, report)?;
    smoke.all_of_device_vm(&images.manifest, disk)?;
    smoke.check("no kernel complains", no_kernel_complains)?;
    Ok(smoke.checks)
}

/// Checks guests without a device VM, whatever the machine's disk is for.
pub fn check_guests(
    qemu: &Qemu,
    machine: &Machine,
    images: &Images,
    log: &str,
    extent: Extent,
    report: &dyn Fn(&str),
) -> Result<usize> {
    let mut smoke = Smoke::start(qemu, machine, images, log, extent, report)?;
    smoke.all(&images.manifest.vms, machine)?;
    smoke.check("no kernel complains", no_kernel_complains)?;
    Ok(smoke.checks)
}
