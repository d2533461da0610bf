//! A machine whose device VM has a shell, from which `gearctl` asks and changes what a part judges.
//!
//! The manifests are tests' own, without disks: the device VM boots to its prompt, and a part
//! begins when the device model answers. QEMU's CPUs run on those of a busy host, so each wait is
//! long; a machine that fails shows its last lines.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use workbench::build_images::{self, last_words};
use workbench::expect::Session;
use workbench::manifest::Compiled;
use workbench::qemu::{Machine, Qemu};
use workbench::{device_userland, workspace};
use xtask::run;
use xtask::smoke::device_vm::widen;
use xtask::smoke::shell;

/// Longest boot of the device VM's Linux.
const BOOT: Duration = Duration::from_secs(180);
/// Longest way from `poweroff` to QEMU's end.
const END: Duration = Duration::from_secs(60);

/// Boots `tests/manifests/NAME.dts` on a machine with the memory that its VMs need, and runs `check`
/// at the device VM's prompt, with a device model that answers. `check` gets the manifest in short,
/// by which other VMs' consoles are reached.
pub(crate) fn on_machine(
    name: &str,
    machine: Machine,
    check: impl FnOnce(&mut Session, &Compiled) -> Result<()>,
) -> Result<()> {
    under(None, name, machine, check)
}

/// Does the same under another Gear1 than the usual one.
pub(crate) fn under(
    gear1: Option<PathBuf>,
    name: &str,
    machine: Machine,
    check: impl FnOnce(&mut Session, &Compiled) -> Result<()>,
) -> Result<()> {
    at_prompt(gear1, name, machine, |session, manifest| {
        shell(session, "until gearctl version; do sleep 0.2; done")?;
        check(session, manifest)
    })
}

/// Boots `tests/manifests/NAME.dts` like [`under`], and runs `check` at the prompt of the device VM's
/// userland, whichever kind of VM has it.
pub(crate) fn at_prompt(
    gear1: Option<PathBuf>,
    name: &str,
    machine: Machine,
    check: impl FnOnce(&mut Session, &Compiled) -> Result<()>,
) -> Result<()> {
    let manifest = workspace::root().join(format!("tests/manifests/{name}.dts"));
    let mut images = build_images::build(&manifest)?;
    if let Some(gear1) = gear1 {
        images.gear1 = gear1;
    }
    let machine = Machine {
        memory_mib: run::memory_for(&images)?,
        ..machine
    };
    let log = images.archive.with_file_name("test.log");
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    let ready = wait_for_prompt(&mut session);
    let result = ready.and_then(|()| check(&mut session, &images.manifest));
    result.with_context(|| last_words(&session))
}

/// Waits for the prompt, and widens it.
pub(crate) fn wait_for_prompt(session: &mut Session) -> Result<()> {
    session.expect(device_userland::READY, BOOT)?;
    widen(session)
}

/// Turns the machine off by the device VM, which may do that, and waits for QEMU's end.
pub(crate) fn power_off(session: &mut Session) -> Result<()> {
    session.send("poweroff -f\n")?;
    let status = session.expect_end(END)?;
    ensure!(status.success(), "QEMU ended with {status}");
    Ok(())
}
