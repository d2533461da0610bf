//! Cost of a vCPU's move to another CPU, from a trace of all instructions of both gears.
//!
//! A *stretch* of a CPU begins with the exit of a guest, or with the decision before, if an event
//! was pending then. The stretch ends with Gear2's decision. A move has four legs, each in a
//! stretch of its own: the look and the offer of the CPU that has too much, the agreement of the
//! other one, the giving, and the arrival. Three of them begin with a poke. A stretch belongs to
//! the leg whose function it executes. The way back to a guest is counted apart, as any event has
//! one, with a world switch where another vCPU runs then.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use workbench::expect::Session;
use workbench::qemu::{Console, Qemu};
use workbench::workspace;

use super::case::Case;
use super::figures::{self, Figure, Leg};
use super::{gearv, guest};
use crate::bench::breakdown::{Program, log_instructions, make_pipe};
use crate::bench::column::log;

/// Where Gear2's moves are. A function is found by its name, because a trace has addresses only. A
/// function that is renamed leaves its leg without stretches, which `answer` refuses.
const MODULE: &str = "::cpu_loop::moves::";
/// Functions of the legs, in the order of a move.
const LEGS: [&str; 4] = ["::offer", "::judge", "::give", "::arrive"];
/// A64 instructions behind which a CPU may be elsewhere.
const ERET: u32 = 0xd69f_03e0;
const WFI: u32 = 0xd503_207f;
/// SVC with its immediate as zero, and the function of Gear2's that decides by one.
const SVC: u32 = 0xd400_0001;
const DECIDES: &str = "::svc_next";
/// Fewest moves that tell something. Of the eight spinners four have to move.
const LEAST: u64 = 4;

/// Part of the gears' code that an instruction is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Gear1,
    /// An instruction of Gear1 behind which a CPU may be elsewhere.
    Leaves,
    /// An instruction of Gear2, with the leg that it tells.
    Gear2(Option<usize>),
    /// Gear2's decision.
    Decides,
}

/// Code that a CPU executes at the moment.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    instructions: u64,
    leg: Option<usize>,
    /// The leg that was decided last, if nothing but Gear1 was executed since.
    decided: Option<usize>,
    /// Gear2 has the event and has not decided.
    in_event: bool,
    /// The last instruction was one behind which the CPU may be elsewhere.
    left: bool,
}

/// All stretches of a trace.
#[derive(Debug, Default)]
struct Stretches {
    cpus: BTreeMap<u32, Stretch>,
    legs: [Leg; LEGS.len()],
}

impl Stretches {
    /// Takes in an instruction of a CPU. Where Gear1 is left, and not for Gear2, a guest runs,
    /// unless an interrupt was pending: Gear2 may be interrupted before its next instruction.
    fn add(&mut self, cpu: u32, place: Place) {
        let stretch = self.cpus.entry(cpu).or_default();
        let in_gear2 = matches!(place, Place::Gear2(_) | Place::Decides);
        if stretch.left && !in_gear2 && !stretch.in_event {
            if let Some(leg) = stretch.decided.and_then(|leg| self.legs.get_mut(leg)) {
                leg.way_back += stretch.instructions;
            }
            *stretch = Stretch::default();
        }
        stretch.instructions += 1;
        stretch.left = place == Place::Leaves;
        match place {
            Place::Gear1 | Place::Leaves => {}
            Place::Gear2(leg) => {
                (stretch.decided, stretch.in_event) = (None, true);
                stretch.leg = stretch.leg.or(leg);
            }
            Place::Decides => {
                let done = std::mem::take(stretch);
                stretch.decided = done.leg;
                if let Some(leg) = done.leg.and_then(|leg| self.legs.get_mut(leg)) {
                    leg.count += 1;
                    leg.instructions += done.instructions;
                }
            }
        }
    }
}

/// The gears, whose code a trace is about.
struct Gears {
    gear1: Program,
    gear2: Program,
    /// Places that have been looked up. Looking up inlined functions takes far longer than reading
    /// a line, and a trace has far more lines than addresses.
    known: BTreeMap<u64, Place>,
}

impl Gears {
    /// Reads the programs with their symbols. Both are built before, with the images.
    fn load() -> Result<Gears> {
        Ok(Gears {
            gear1: Program::load(&workspace::bare_elf_in("", "gear1-runtime"))?,
            gear2: Program::load(&workspace::bare_elf("gear2"))?,
            known: BTreeMap::new(),
        })
    }

    /// Returns the part of the code that an instruction is in. An instruction that decides is in
    /// `DECIDES` and is an SVC: the function has other instructions before it.
    fn place(&mut self, pc: u64) -> Place {
        if let Some(place) = self.known.get(&pc) {
            return *place;
        }
        let place = if self.gear2.code.contains(&pc) {
            let functions = self.gear2.functions(pc);
            let decides = functions.iter().any(|name| name.ends_with(DECIDES));
            match decides && self.gear2.word(pc) & 0xffe0_001f == SVC {
                true => Place::Decides,
                false => Place::Gear2(leg(&functions)),
            }
        } else if matches!(self.gear1.word(pc), ERET | WFI) {
            Place::Leaves
        } else {
            Place::Gear1
        };
        self.known.insert(pc, place);
        place
    }

    /// Reads QEMU's log, `Trace <cpu>: <host> [<flags>/<pc>/...`, to its end.
    fn read(mut self, pipe: &Path) -> Result<[Leg; LEGS.len()]> {
        let mut stretches = Stretches::default();
        let mut reader = BufReader::with_capacity(1 << 20, File::open(pipe)?);
        let mut line = String::new();
        while reader.read_line(&mut line)? > 0 {
            if let Some((cpu, pc)) = traced(&line) {
                stretches.add(cpu, self.place(pc));
            }
            line.clear();
        }
        Ok(stretches.legs)
    }
}

/// Returns the leg that one of the functions is of, which may be inlined in one another. The names
/// are compared at their ends, since generic and trait paths stand before them.
fn leg(functions: &[String]) -> Option<usize> {
    LEGS.iter().position(|name| {
        let mut functions = functions.iter();
        functions.any(|function| function.contains(MODULE) && function.ends_with(name))
    })
}

/// Returns CPU and program counter of a line. A line without these parts, such as one that QEMU's
/// end cut short, is left out.
fn traced(line: &str) -> Option<(u32, u64)> {
    let (cpu, rest) = line.strip_prefix("Trace ")?.split_once(':')?;
    let pc = u64::from_str_radix(rest.split('/').nth(1)?, 16).ok()?;
    Some((cpu.trim().parse().ok()?, pc))
}

/// Runs the case with all instructions of the gears logged.
pub(super) fn measure(qemu: &Qemu, guest: &Path, case: &Case) -> Result<Vec<Figure>> {
    let run = case.runs.first().context("there is no run")?;
    let (images, machine) = gearv::prepare(guest, case, run)?;
    let gears = Gears::load()?;
    let ranges = [gears.gear1.code.clone(), gears.gear2.code.clone()];
    let pipe = make_pipe()?;
    let mut command = qemu.command(&machine, &images.boot(), Console::Pipes);
    log_instructions(&mut command, &ranges, &pipe);
    let reader = thread::spawn(move || gears.read(&pipe));
    let mut session = Session::start(command, &log("sched-moves"))?;
    let printed = gearv::wait(&mut session, run);
    // The end of QEMU is that of the log.
    drop(session);
    // A QEMU that failed may never have opened the pipe, and the reader would wait for that for
    // ever.
    let printed = printed?;
    let legs = reader.join();
    guest::reports(run, &printed)?;
    answer(legs.map_err(|_| anyhow!("the trace cannot be read"))??)
}

/// Returns the figures: the mean of each leg, and their sum. A move that the trace has only a part
/// of would shorten the mean of a leg, and is an error.
fn answer(legs: [Leg; LEGS.len()]) -> Result<Vec<Figure>> {
    let count = |leg: Leg| leg.count;
    let [_, _, given, arrived] = legs.map(count);
    ensure!(
        given >= LEAST && arrived == given && legs.iter().all(|leg| leg.count >= given),
        "stretches of the legs: {:?}",
        legs.map(count)
    );
    Ok(figures::moves(given, legs))
}

#[cfg(test)]
mod tests;
