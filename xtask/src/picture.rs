//! `cargo xtask picture`: a real session of GearV as a picture, docs/picture.svg.
//!
//! Runs the system of `manifests/mixed-criticality.dts`, types a few commands as a person would,
//! and draws what was printed. Nothing in the picture is written by hand.

use std::fs;

use anyhow::{Context as _, Result};
use workbench::expect::Session;
use workbench::manifest::VmSummary;
use workbench::qemu::Qemu;
use workbench::{build_images, device_userland, workspace};

use crate::run;
use crate::smoke::device_vm::{answers, enter, leave, widen};
use crate::smoke::{BOOT, power_off, ready, shell};
use drawing::{Line, svg};

mod drawing;

/// Manifest that runs in the picture.
const MANIFEST: &str = "manifests/mixed-criticality.dts";
/// Where the picture is.
const PICTURE: &str = "docs/picture.svg";
/// Commands typed in the device VM, and in the guest.
const DEVICE_COMMANDS: [&str; 2] = ["gearctl list", "gearctl stats control"];
const GUEST_COMMANDS: [&str; 2] = ["uname -srm", "grep -h ' / ' /proc/mounts"];

/// Runs the system and draws the picture.
pub fn command() -> Result<()> {
    let images = build_images::build(&workspace::root().join(MANIFEST))?;
    let qemu = Qemu::prepare(10)?;
    let machine = run::machine_for(&images)?;
    let log = workspace::output_dir().join("picture.log");
    let mut session = images.start(&qemu, &machine, &log)?;
    let guests = &mut images.manifest.vms.iter();
    let guest = guests.find(|vm| vm.may_power_off);
    let guest = guest.context("no guest may power the machine off")?;
    let lines = lines(&mut session, guest)?;
    enter(&mut session, guest)?;
    power_off(&mut session, "poweroff -f")?;
    let picture = workspace::root().join(PICTURE);
    fs::write(&picture, svg(&lines)).with_context(|| PICTURE.to_owned())?;
    println!("{}", picture.display());
    Ok(())
}

/// Boots and types the commands; returns what a person would see, the device VM's commands first.
fn lines(session: &mut Session, guest: &VmSummary) -> Result<Vec<Line>> {
    let start = format!("cargo xtask run --manifest {MANIFEST}");
    let mut lines = vec![Line::typed("$", &start)];
    let booted = session.expect(device_userland::READY, BOOT)?;
    lines.extend(said_by_gearv(&booted).map(Line::printed));
    shell(session, "until gearctl version; do sleep 0.2; done")?;
    widen(session)?;
    // The picture has all VMs at work, so the guest's boot is waited for first.
    session.send(&format!("{}\n", guest.console_command()))?;
    session.expect(&ready(&guest.name), BOOT)?;
    answers(session, &guest.name)?;
    let mut in_guest = Vec::new();
    typed(session, &guest.name, &GUEST_COMMANDS, &mut in_guest)?;
    leave(session)?;
    typed(session, "device", &DEVICE_COMMANDS, &mut lines)?;
    lines.push(Line::typed("device:~#", &guest.console_command()));
    lines.extend(in_guest);
    Ok(lines)
}

/// Runs commands at a prompt and appends what a person would see.
fn typed(session: &mut Session, vm: &str, commands: &[&str], lines: &mut Vec<Line>) -> Result<()> {
    for command in commands {
        lines.push(Line::typed(&format!("{vm}:~#"), command));
        let printed = shell(session, command)?;
        lines.extend(printed.lines().map(Line::printed));
    }
    Ok(())
}

/// Returns what the two gears said while the machine booted.
fn said_by_gearv(printed: &str) -> impl Iterator<Item = &str> {
    let starts = ["gearv:", "gear2:"];
    printed
        .lines()
        .filter(move |line| starts.iter().any(|start| line.starts_with(start)))
}
