//! Real-time VMs beside what Gear2 does: it stops and starts them, and Gear1 restarts them by
//! itself.
//!
//! The VM under test owns the second serial port, whose output goes to a file; the terminal is
//! Gear2's console.
//!
//! A VM with its interrupts passed through never needs to leave its CPU, so a stop of the VM is the
//! hard case.

mod immunity;
mod linux;
mod machine;
pub(crate) mod planted;
mod windows;

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow};
use workbench::build_images::{self, Images, last_words};
use workbench::expect::Session;
use workbench::qemu::{Machine, Qemu};
use workbench::workspace;
use xtask::smoke::ESCAPE;

use crate::guests::{conclude, count_verdicts};
use crate::part::{Part, Tally};
use crate::table::target_tests;
use machine::TIMEOUT;
pub(crate) use machine::{CHECKING, Serial, images};
pub(crate) use windows::{undisturbed, windows};

/// Immunity, Linux and planted bugs have modules of their own.
pub(super) fn parts() -> Vec<Part> {
    let mut parts = Vec::new();
    for gic in [3, 2] {
        let name = format!("real-time VM stops and starts with GICv{gic}");
        parts.push(Part::new(name, move |tally| stop(gic, tally)));
    }
    parts.push(Part::new("real-time VMs take only their own locks", locks));
    parts.extend(immunity::parts());
    parts.extend(linux::parts());
    parts.extend(planted::parts());
    parts
}

/// Stops and starts a VM that spins, waits or is half on, and that ends in each way by itself.
/// Registers and rights of a passed-through interface differ with the GIC.
fn stop(gic: u32, tally: &mut Tally) -> Result<()> {
    stop_with(&images("rt-stop", None)?, gic, tally)
}

/// Runs the test under another Gear1.
pub(super) fn stop_other(gear1: PathBuf, tally: &mut Tally) -> Result<()> {
    stop_with(&images("rt-stop", Some(gear1))?, 3, tally)
}

/// G1-RT-001: in the checking build, a real-time VM's CPU that takes another lock halts the
/// machine. A lock that is free costs nothing, so no latency shows one that should not be taken;
/// the checking build does.
fn locks(tally: &mut Tally) -> Result<()> {
    let gear1 = build_images::build_gear1_of(workspace::root(), CHECKING, "image,check-locks")?;
    for manifest in ["rt-passthrough", "rt-emulated", "heartbeat"] {
        let row = target_tests().find(|row| row.manifest == manifest);
        let row = row.context("the manifest is in the table")?;
        let machine = Machine {
            cpus: row.cpus,
            icount: row.icount,
            turn_us: row.turn_us,
            ..Machine::default()
        };
        let log = workspace::output_dir().join(format!("{manifest}/{CHECKING}.log"));
        let images = images(manifest, Some(gear1.clone()))?;
        let session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
        conclude(session, row, tally)?;
    }
    stop_with(&images("rt-stop", Some(gear1.clone()))?, 3, tally)?;
    immunity::attack(&images("rt-immune", Some(gear1))?, 3, &["foe"], tally)
}

/// Verdicts of the VM are on its own port, and count even if the terminal's wait failed.
fn stop_with(images: &Images, gic: u32, tally: &mut Tally) -> Result<()> {
    let directory = workspace::output_dir().join(format!("rt-stop/gicv{gic}"));
    let serial = Serial::new(&directory)?;
    let machine = Machine {
        cpus: 3,
        gic,
        second_serial: Some(serial.file.clone()),
        ..Machine::default()
    };
    let qemu = Qemu::prepare(10)?;
    let mut session = images.start(&qemu, &machine, &directory.join("console.log"))?;
    let result = stops(&mut session, &serial, tally);
    count_verdicts(&serial.text()?, tally);
    result.map_err(|error| anyhow!("{error:#}\n{}", last_words(&session)))
}

/// Each start of the VM is in another state when the stop comes, by the number that it prints.
fn stops(session: &mut Session, serial: &Serial, tally: &mut Tally) -> Result<()> {
    // G1-RT-009: Gear1 refuses Gear2 to power off while the VM runs.
    serial.wait_for("ready 0", session)?;
    key(session, 'q')?;
    session.expect("gear2: no power off: a real-time VM runs", TIMEOUT)?;
    tally.pass(1);
    // Both CPUs spin, then both wait, then one is off and the other in the middle of an interrupt.
    for start in 0..3 {
        serial.wait_for(&format!("ready {start}"), session)?;
        key(session, 's')?;
        session.expect("gear2: rt stopped", TIMEOUT)?;
        key(session, 't')?;
        session.expect("gear2: rt restarted", TIMEOUT)?;
        tally.pass(1);
    }
    ends_by_itself(session, serial)?;
    tally.pass(1);
    logs_aborts(session)?;
    tally.pass(1);
    key(session, 't')?;
    serial.wait_for("ready 6", session)?;
    key(session, 'r')?;
    serial.wait_for("ready 7", session)?;
    tally.pass(1);
    // No interrupt reaches a CPU whose interface is off, and nothing else ends a WFI.
    key(session, 's')?;
    session.expect("gear2: rt does not stop", TIMEOUT)?;
    tally.pass(1);
    Ok(())
}

/// The VM faults, resets itself, and then turns itself off. The restart by Gear1 comes without
/// Gear2, which is told afterwards.
fn ends_by_itself(session: &mut Session, serial: &Serial) -> Result<()> {
    serial.wait_for("start 4", session)?;
    serial.wait_for("start 5", session)?;
    session.expect("gear2: rt restarted by Gear1", TIMEOUT)?;
    session.expect("gear2: rt turned itself off", TIMEOUT)?;
    key(session, 'l')?;
    session.expect("gear2: 0 rt stopped", TIMEOUT).map(drop)
}

/// G1-FLT-005: the log tells an access of the VM's that was decoded from one that could not be. The
/// two addresses are those that the guest `realtime_stop` goes for.
fn logs_aborts(session: &mut Session) -> Result<()> {
    key(session, 'L')?;
    for (what, address) in [
        ("abort reflected", "0xf0000100"),
        ("access without syndrome", "0xf0000200"),
    ] {
        session.wait_until(&format!("{what} at {address}"), TIMEOUT, |transcript| {
            let mut lines = transcript.lines();
            lines.any(|line| line.contains(what) && line.trim_end().ends_with(address))
        })?;
    }
    Ok(())
}

/// Gives Gear2 a command about the first VM.
fn key(session: &mut Session, key: char) -> Result<()> {
    session.send(&format!("{ESCAPE}0{ESCAPE}{key}"))
}
