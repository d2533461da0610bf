//! A thousand kills of Gear1, each of which a microcontroller finds by its line: how long that
//! takes, and whether each boot after it is like the first.
//!
//! The clock is that of the machine, which counts seconds and goes on over a reset.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};

use anyhow::{Result, ensure};
use workbench::build_images;
use workbench::expect::Session;

use super::microcontroller::Microcontroller;
use super::{Fault, PATIENCE, break_gear1, start_with_microcontroller, unused_function};
use crate::gdb::Gdb;
use crate::part::{Tally, count_of};

/// Kills in all, unless `GEARV_KILLS` says another number.
const KILLS: u32 = 1000;
/// As [`SHIFT`](super::SHIFT), for 256 ns: a CPU that loops until the microcontroller loses
/// patience executes a quarter as much.
const SHIFT: u32 = 8;
/// Kills between two lines of progress.
const REPORT: u32 = 50;
/// Machines that QEMU itself may lose: QEMU 10 with `-icount` has been seen to run a CPU's thread
/// without end while its monitor and its debugger wait for a lock, on a busy host after 15 and
/// after 60 kills. A Gear1 that hangs keeps neither of them waiting.
const MACHINES_LOST: u32 = 40;
/// Edges of the line between two kills: several periods.
const EDGES: usize = 5;
/// Ways to fail, on the CPU that feeds and on the other one.
const FAULTS: [Fault; 8] = [
    Fault::Hang(0),
    Fault::Hang(1),
    Fault::Halt(0),
    Fault::Halt(1),
    Fault::Silence(0),
    Fault::Silence(1),
    Fault::Loop(0),
    Fault::Loop(1),
];

/// Kills of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kills {
    /// Number of kills.
    pub(crate) count: u64,
    /// The longest time until the machine was reset, in seconds, and until the VM was started
    /// again.
    pub(crate) found_s: u64,
    pub(crate) served_s: u64,
}

/// Facts of all kills so far.
#[derive(Default)]
struct Known {
    /// Number of kills.
    done: u32,
    by_fault: BTreeMap<&'static str, Kills>,
    /// Lines of the first boot.
    first_boot: Option<Vec<String>>,
}

/// Kills Gear1, and returns what that was like by the name of the fault.
pub(crate) fn run(tally: &mut Tally) -> Result<BTreeMap<&'static str, Kills>> {
    let count = count_of("GEARV_KILLS", KILLS);
    let mut known = Known::default();
    let mut lost = 0;
    while known.done < count {
        let ended = on_one_machine(&mut known, count, tally);
        match ended {
            Err(error) if is_timeout(&error) && lost < MACHINES_LOST => {
                lost += 1;
                let done = known.done;
                println!("QEMU answers no more after {done} kills; another machine goes on");
            }
            ended => ended?,
        }
    }
    tally.figures.push(format!(
        "{count} kills of Gear1; QEMU hung {lost} times, and another machine went on"
    ));
    Ok(known.by_fault)
}

/// Tells whether a socket of QEMU's was read for longer than it may take.
fn is_timeout(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref());
    causes.any(|error: &io::Error| {
        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
    })
}

/// Kills Gear1 on a machine until there are `count` kills. Faults take turns, so each has as many
/// kills as any other.
fn on_one_machine(known: &mut Known, count: u32, tally: &mut Tally) -> Result<()> {
    let (mut session, mut gdb, mut controller) =
        start_with_microcontroller(None, "gpio-heartbeat", "gear1-kills", SHIFT)?;
    let unused = unused_function("")?;
    while known.done < count {
        let fault = FAULTS[known.done as usize % FAULTS.len()];
        let ended = kill_once(&mut session, &mut gdb, &mut controller, (fault, unused));
        let (boot, found_s, served_s) = ended.map_err(|error| {
            let last = build_images::last_words(&session);
            error.context(format!("kill {}, {fault:?}\n{last}", known.done))
        })?;
        let first = known.first_boot.get_or_insert_with(|| boot.clone());
        ensure!(
            boot == *first,
            "boot {} says {boot:?}, the first one {first:?}",
            known.done
        );
        let kills = known.by_fault.entry(fault.name()).or_default();
        kills.count += 1;
        kills.found_s = kills.found_s.max(found_s);
        kills.served_s = kills.served_s.max(served_s);
        tally.pass(1);
        known.done += 1;
        if known.done.is_multiple_of(REPORT) {
            println!("{} kills of Gear1", known.done);
        }
    }
    Ok(())
}

/// Breaks Gear1 once it feeds, and returns what its boot had said, and the seconds until the reset
/// and until the VM was started again.
fn kill_once(
    session: &mut Session,
    gdb: &mut Gdb,
    controller: &mut Microcontroller,
    (fault, unused): (Fault, u64),
) -> Result<(Vec<String>, u64, u64)> {
    let begin = session.transcript().len();
    session.expect("gear2: program started", PATIENCE)?;
    let boot = said(session.transcript().get(begin..).unwrap_or_default());
    controller.see_edges(EDGES, PATIENCE)?;
    break_gear1(gdb, fault, unused)?;
    let broken = controller.seconds()?;
    controller.reset_when_silent(PATIENCE)?;
    let found = controller.seconds()?;
    session.expect("gearv: Gear1 ", PATIENCE)?;
    let served = controller.seconds()?;
    Ok((boot, found - broken, served - broken))
}

/// Returns what the gears say of memory and of CPUs. Memory that a boot lost, or a CPU that did not
/// come back, would change these lines.
fn said(boot: &str) -> Vec<String> {
    let lines = boot
        .lines()
        .filter(|line| line.starts_with("gearv: program: ") || line.starts_with("gear2: 0."));
    lines.map(str::to_owned).collect()
}
