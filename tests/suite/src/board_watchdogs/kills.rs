//! A thousand kills of Gear1, each of which a microcontroller finds by its line: how long that
//! takes, and whether each boot after it is like the first.
//!
//! The clock is that of the machine, which counts seconds and goes on over a reset.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use workbench::build_images;
use workbench::expect::Session;

use super::microcontroller::Microcontroller;
use super::{Fault, PATIENCE, break_gear1, start_with_microcontroller, unused_function};
use crate::gdb::Gdb;
use crate::part::{Tally, count_of};

/// Kills in all, unless `GEARV_KILLS` says another number.
const KILLS: u32 = 1000;
/// As [`SHIFT`](super::SHIFT), for 256 ns: a CPU that loops until the microcontroller loses patience
/// executes a quarter as much.
const SHIFT: u32 = 8;
/// Kills between two lines of progress.
const REPORT: usize = 50;
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
    /// Their number.
    pub(crate) count: u64,
    /// The longest time until the machine was reset, in seconds, and until the VM was started again.
    pub(crate) found_s: u64,
    pub(crate) served_s: u64,
}

/// Kills Gear1, and returns what that was like by the name of the fault.
pub(crate) fn run(tally: &mut Tally) -> Result<BTreeMap<&'static str, Kills>> {
    let (mut session, mut gdb, mut controller) =
        start_with_microcontroller(None, "gpio-heartbeat", "gear1-kills", SHIFT)?;
    let unused = unused_function("")?;
    let mut all = BTreeMap::new();
    let mut first = None;
    for kill in 0..count_of("GEARV_KILLS", KILLS) as usize {
        let fault = FAULTS[kill % FAULTS.len()];
        let ended = kill_once(&mut session, &mut gdb, &mut controller, (fault, unused));
        let (boot, found_s, served_s) = ended.map_err(|error| {
            let last = build_images::last_words(&session);
            error.context(format!("kill {kill}, {fault:?}\n{last}"))
        })?;
        let first = first.get_or_insert_with(|| boot.clone());
        ensure!(
            boot == *first,
            "boot {kill} says {boot:?}, the first one {first:?}"
        );
        let kills: &mut Kills = all.entry(fault.name()).or_default();
        kills.count += 1;
        kills.found_s = kills.found_s.max(found_s);
        kills.served_s = kills.served_s.max(served_s);
        tally.pass(1);
        if (kill + 1) % REPORT == 0 {
            println!("{} kills of Gear1", kill + 1);
        }
    }
    Ok(all)
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

/// Returns what the gears say of memory and of CPUs.
fn said(boot: &str) -> Vec<String> {
    let lines = boot
        .lines()
        .filter(|line| line.starts_with("gearv: program: ") || line.starts_with("gear2: 0."));
    lines.map(str::to_owned).collect()
}
