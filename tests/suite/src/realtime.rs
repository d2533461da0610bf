//! Real-time VMs beside what Gear2 does: it stops and starts them, and Gear1 restarts them by
//! itself.
//!
//! The VM under test owns the second serial port, whose output goes to a file; the terminal is
//! Gear2's console.

mod immunity;
mod linux;
mod planted;
mod windows;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use workbench::build_images::{self, Images, last_words};
use workbench::expect::Session;
use workbench::qemu::{Machine, Qemu};
use workbench::workspace;
use xtask::smoke::ESCAPE;

use crate::guests::{conclude, count_verdicts};
use crate::part::{Part, Tally};
use crate::table::TARGET_TESTS;

const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait for slow steps.
const PATIENCE: Duration = Duration::from_secs(180);
/// Line of the guest `realtime` when it has turned its second CPU on and off often enough.
const NOTHING_PENDING: &str = "starts-with-nothing-pending";
/// The target directory of the checking build.
pub(super) const CHECKING: &str = "check-locks";

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

/// Output of a serial port.
struct Serial {
    file: PathBuf,
}

impl Serial {
    /// Makes the file for a machine to write to.
    fn new(directory: &Path) -> Result<Serial> {
        fs::create_dir_all(directory)?;
        let file = directory.join("second-serial.log");
        fs::write(&file, "")?;
        Ok(Serial { file })
    }

    fn text(&self) -> Result<String> {
        let text = String::from_utf8_lossy(&fs::read(&self.file)?).into_owned();
        Ok(text.replace('\r', ""))
    }

    /// Waits until a line stands there.
    fn wait_for(&self, line: &str, session: &mut Session) -> Result<()> {
        self.wait_until(session, TIMEOUT, |text| {
            text.lines().any(|found| found == line)
        })
        .with_context(|| format!("no {line:?}"))
    }

    /// Waits until what stands there is `done`.
    fn wait_until(
        &self,
        session: &mut Session,
        timeout: Duration,
        done: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let end = Instant::now() + timeout;
        loop {
            let text = self.text()?;
            if done(&text) {
                return Ok(());
            }
            let last = text.lines().next_back().unwrap_or("nothing");
            let in_time = Instant::now() < end;
            ensure!(in_time, "the second serial port's last line is {last:?}");
            session.listen(Duration::from_millis(20))?;
        }
    }
}

/// Stops and starts a VM that spins, waits or is half on, and that ends in each way by itself.
fn stop(gic: u32, tally: &mut Tally) -> Result<()> {
    stop_with(&images("rt-stop", None)?, gic, tally)
}

/// Runs the test under another Gear1.
pub(super) fn stop_other(gear1: PathBuf, tally: &mut Tally) -> Result<()> {
    stop_with(&images("rt-stop", Some(gear1))?, 3, tally)
}

/// Builds what a manifest needs, with another Gear1.
fn images(manifest: &str, gear1: Option<PathBuf>) -> Result<Images> {
    let manifest = format!("tests/manifests/{manifest}.dts");
    let mut images = build_images::build(&workspace::root().join(manifest))?;
    images.gear1 = gear1.unwrap_or(images.gear1);
    Ok(images)
}

/// G1-RT-001: in the checking build, a real-time VM's CPU that takes another lock halts the
/// machine.
fn locks(tally: &mut Tally) -> Result<()> {
    let gear1 = build_images::build_gear1_of(workspace::root(), CHECKING, "image,check-locks")?;
    for manifest in ["rt-passthrough", "rt-emulated"] {
        let row = TARGET_TESTS.iter().find(|row| row.manifest == manifest);
        let row = row.context("the manifest is in the table")?;
        let machine = Machine {
            cpus: row.cpus,
            ..Machine::default()
        };
        let log = workspace::output_dir().join(format!("{manifest}/{CHECKING}.log"));
        let images = images(manifest, Some(gear1.clone()))?;
        conclude(
            images.start(&Qemu::prepare(10)?, &machine, &log)?,
            row,
            tally,
        )?;
    }
    stop_with(&images("rt-stop", Some(gear1.clone()))?, 3, tally)?;
    immunity::attack(&images("rt-immune", Some(gear1))?, 3, &["foe"], tally)
}

/// A CPU of the VM's is turned on and off by another one: no kick waits for it, as the VM itself
/// looks.
fn starts(gear1: PathBuf) -> Result<()> {
    let machine = Machine {
        cpus: 3,
        icount: true,
        turn_us: Some(1),
        ..Machine::default()
    };
    let log = workspace::output_dir().join("rt-passthrough/late-kick.log");
    let images = images("rt-passthrough", Some(gear1))?;
    let mut session = images.start(&Qemu::prepare(10)?, &machine, &log)?;
    let [pass, fail] = ["PASS", "FAIL"].map(|word| format!("{word} {NOTHING_PENDING}"));
    let (_, which) = session.expect_any(&[&pass, &fail], PATIENCE)?;
    ensure!(which == 0, "{}", session.tail(1));
    Ok(())
}

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
    // The VM faults, resets itself, and then turns itself off.
    serial.wait_for("start 4", session)?;
    serial.wait_for("start 5", session)?;
    session.expect("gear2: rt restarted by Gear1", TIMEOUT)?;
    session.expect("gear2: rt turned itself off", TIMEOUT)?;
    key(session, 'l')?;
    session.expect("gear2: 0 rt stopped", TIMEOUT)?;
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

/// G1-FLT-005: the log tells an access of the VM's that was decoded from one that could not be.
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
