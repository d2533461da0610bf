//! A Gear1 that hangs or halts is reset from beyond: by the board's watchdog, and by a
//! microcontroller that watches a line.
//!
//! The debugger of QEMU makes a CPU hang: an endless loop at EL2, where all exceptions are masked.
//! QEMU's trace shows feedings and edges of the line as the hardware outside would see them. Time
//! is counted in instructions, so that a busy host changes nothing.
//!
//! Requirements: G1-SUP-005, G1-SUP-006.
//!
//! Nothing inside of the SoC can save a machine whose EL2 hangs. The chain outside has to be seen
//! whole: feeding, silence, reset, and a boot that is as good as the first.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use workbench::build_images::{self, Images};
use workbench::expect::Session;
use workbench::qemu::{Console, Machine, Qemu};
use workbench::{payloads, workspace};

use crate::gdb::Gdb;
use crate::halt;
use crate::part::{Part, Tally};

pub(crate) mod kills;
mod microcontroller;
mod trace;

use microcontroller::Microcontroller;
use trace::Trace;

/// Limit of a wait on the host; no result depends on it.
const PATIENCE: Duration = Duration::from_secs(300);
/// 2 to this power are the nanoseconds of an instruction: waits of seconds are short, and all idle
/// CPUs together skip time.
const SHIFT: u32 = 6;
/// The second half of the sequence that feeds i.MX's watchdog, as QEMU traces it. Offset 2 is the
/// service register; 0x5555 comes before.
const FED: &str = "imx2_wdt_write [0x2] <- 0xaaaa";
/// Feedings that last longer than two timeouts: four come within one. A watchdog that is fed too
/// late would expire meanwhile.
const FEEDINGS: usize = 9;
/// A function that runs only when Gear1 halts by an exception. Code is written over it, so it must
/// be code that nobody runs before the fault.
const UNUSED: &str = "gear1_halted";
/// `b .`, `wfi`, `b . - 4` and `udf #0`. Encodings of A64.
const LOOP: u32 = 0x1400_0000;
const WFI: u32 = 0xd503_207f;
const BACK: u32 = 0x17ff_ffff;
const UNDEFINED: u32 = 0;
/// No page is mapped there.
const NOWHERE: u64 = 0;
/// Bits 3 and 2 of PSTATE at EL2, in place. Gear1 is broken only at EL2: a guest that hangs is
/// another layer's business.
const EL2: u32 = 2 << 2;
/// Edges of the line before the guest makes Gear2 hang. The feeding has to be seen to work first.
const EDGES_BEFORE: usize = 8;
/// Looks at a CPU until it is at EL2. A CPU that is idle waits at EL2, so a look finds it there
/// soon.
const LOOKS: usize = 2000;
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(1);

pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("the board's watchdog resets a Gear1 that hangs", watchdog),
        Part::new("a microcontroller resets a Gear1 that hangs", heartbeat),
        Part::new(
            "a microcontroller resets a Gear2 that hangs and is not supervised",
            gear2_hangs,
        ),
    ]
}

/// A way to break Gear1 on a CPU. A halt prints its dump; the others leave no word.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The CPU loops at EL2.
    Hang(usize),
    /// The CPU takes an exception at EL2.
    Halt(usize),
    /// The CPU waits at EL2 for ever.
    Silence(usize),
    /// The CPU takes an exception at EL2, and one more at each handler's beginning.
    Loop(usize),
}

impl Fault {
    const fn cpu(self) -> usize {
        let (Self::Hang(cpu) | Self::Halt(cpu) | Self::Silence(cpu) | Self::Loop(cpu)) = self;
        cpu
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Hang(_) => "hang",
            Self::Halt(_) => "crash",
            Self::Silence(_) => "silence",
            Self::Loop(_) => "loop",
        }
    }
}

/// Feeds i.MX's watchdog for longer than its timeout, breaks Gear1 in each way, and sees the
/// machine come back each time. CPU 0 feeds. QEMU models this board's watchdog with its reset.
fn watchdog(tally: &mut Tally) -> Result<()> {
    let images = images("board-watchdog")?;
    let tree = payloads::imx8mp_evk_device_tree()?;
    let mut command = Qemu::prepare(10)?.imx8mp_evk([&images.gear1, &images.archive, &tree]);
    let mut trace = Trace::of(
        &mut command,
        "board-watchdog",
        &["imx2_wdt_write", "imx2_wdt_expired"],
    )?;
    let (mut session, mut gdb) = start(command, "board-watchdog", SHIFT)?;
    let outcome = live_through(&mut session, &mut gdb, &mut trace, tally);
    outcome.with_context(|| build_images::last_words(&session))
}

/// CPU 1 does not feed: a feeder that looked only at itself would go on while CPU 1 hangs.
fn live_through(
    session: &mut Session,
    gdb: &mut Gdb,
    trace: &mut Trace,
    tally: &mut Tally,
) -> Result<()> {
    for fault in [Fault::Hang(1), Fault::Hang(0), Fault::Halt(2)] {
        // QEMU's reset clears WRSR, so that no boot there is told of the watchdog's.
        session.expect(
            "watchdog /soc@0/bus@30000000/watchdog@30280000: 10000 ms; the last reset was not by",
            PATIENCE,
        )?;
        session.expect("gear2: 0.", PATIENCE)?;
        let seen = trace.wait_for(FED, FEEDINGS, PATIENCE)?;
        ensure!(!seen.contains("expired"), "it is fed, and expires:\n{seen}");
        break_gear1(gdb, fault, unused_function("")?)?;
        if matches!(fault, Fault::Halt(_)) {
            session.expect("gear1: HALT: exception inside EL2", PATIENCE)?;
        }
        trace.wait_for("imx2_wdt_expired", 1, PATIENCE)?;
        session.expect("gearv: Gear1 ", PATIENCE)?;
        tally.pass(1);
    }
    // The last boot is as good as the first.
    session.expect("gear2: 0.", PATIENCE)?;
    trace.wait_for(FED, FEEDINGS, PATIENCE)?;
    tally.pass(1);
    Ok(())
}

/// Has a microcontroller watch a line of `virt`'s PL061, breaks Gear1 in each way, and sees the
/// microcontroller reset the machine, and watch the line again. The line is an output of the GPIO
/// controller that `virt` has.
fn heartbeat(tally: &mut Tally) -> Result<()> {
    see_resets_of(None, tally)
}

/// Does so with another Gear1, whose runtime is in this folder of builds.
pub(super) fn see_resets_of(
    other: Option<(PathBuf, &'static str)>,
    tally: &mut Tally,
) -> Result<()> {
    let folder = other.as_ref().map_or("", |(_, folder)| *folder);
    let gear1 = other.map(|(gear1, _)| gear1);
    let (mut session, mut gdb, mut controller) =
        start_with_microcontroller(gear1, "gpio-heartbeat", "gpio-heartbeat", SHIFT)?;
    let outcome = see_resets(&mut session, &mut gdb, &mut controller, (folder, tally));
    outcome.with_context(|| build_images::last_words(&session))
}

/// Fifty edges show a steady line before each fault.
fn see_resets(
    session: &mut Session,
    gdb: &mut Gdb,
    controller: &mut Microcontroller,
    (folder, tally): (&str, &mut Tally),
) -> Result<()> {
    for fault in [Fault::Hang(1), Fault::Hang(0), Fault::Halt(1)] {
        session.expect("gear2: program started", PATIENCE)?;
        controller.see_edges(50, PATIENCE)?;
        break_gear1(gdb, fault, unused_function(folder)?)?;
        controller.reset_when_silent(PATIENCE)?;
        session.expect("gearv: Gear1 ", PATIENCE)?;
        tally.pass(1);
    }
    session.expect("gear2: program started", PATIENCE)?;
    controller.see_edges(50, PATIENCE)?;
    tally.pass(1);
    Ok(())
}

/// Has a guest make Gear2 hang where `watchdog-ms` is 0: feeding stops, and Gear1 neither restarts
/// Gear2 nor halts. Feeding depends on Gear2 there, because nothing else watches it.
fn gear2_hangs(tally: &mut Tally) -> Result<()> {
    let name = "gpio-heartbeat-gear2";
    let (mut session, _gdb, mut controller) = start_with_microcontroller(None, name, name, SHIFT)?;
    let outcome = hangs_twice(&mut session, &mut controller, tally);
    outcome.with_context(|| build_images::last_words(&session))
}

/// Twice, since the first reset could leave a state in which nobody watches.
fn hangs_twice(
    session: &mut Session,
    controller: &mut Microcontroller,
    tally: &mut Tally,
) -> Result<()> {
    for _ in 0..2 {
        session.expect("gear2: program started", PATIENCE)?;
        controller.see_edges(EDGES_BEFORE, PATIENCE)?;
        controller.reset_when_silent(PATIENCE)?;
        let said = session.expect("gearv: Gear1 ", PATIENCE)?;
        let is_quiet = ["HALT", "gear2: restarted", "FAIL"]
            .iter()
            .all(|word| !said.contains(word));
        ensure!(is_quiet, "the console says {said}");
        tally.pass(1);
    }
    Ok(())
}

/// Starts a machine that a microcontroller watches, with another Gear1 if one is given. The
/// debugger connects even where it breaks nothing: it lets the machine run.
fn start_with_microcontroller(
    gear1: Option<PathBuf>,
    manifest: &str,
    name: &str,
    shift: u32,
) -> Result<(Session, Gdb, Microcontroller)> {
    let mut images = images(manifest)?;
    images.gear1 = gear1.unwrap_or(images.gear1);
    let machine = Machine::default();
    let qemu = Qemu::prepare(10)?;
    let mut command = qemu.command(&machine, &images.boot(), Console::Pipes);
    let trace = Trace::of(&mut command, name, &["pl061_set_output"])?;
    let monitor = Microcontroller::connect_to(&mut command);
    let (session, gdb) = start(command, name, shift)?;
    Ok((session, gdb, monitor.start(trace)?))
}

fn images(name: &str) -> Result<Images> {
    build_images::build(&workspace::root().join(format!("tests/manifests/{name}.dts")))
}

/// Starts a machine with a debugger, which lets it run; an instruction takes 2 to the power of
/// `shift` nanoseconds. The machine's own clock counts for its devices, too (`-rtc clock=vm`).
fn start(mut command: Command, name: &str, shift: u32) -> Result<(Session, Gdb)> {
    command.args(["-icount", &format!("shift={shift},sleep=off")]);
    command.args(["-rtc", "clock=vm"]);
    let log = workspace::output_dir().join(format!("{name}.log"));
    let (mut session, mut gdb) = Gdb::start(command, &log)?;
    session.give_up_on(&[]);
    gdb.let_run()?;
    Ok((session, gdb))
}

/// Breaks Gear1 on a CPU, once that is at EL2. A function that does not run lies at `unused`. Stops
/// come at arbitrary moments, as a fault would.
fn break_gear1(gdb: &mut Gdb, fault: Fault, unused: u64) -> Result<()> {
    let cpu = fault.cpu();
    let mut last = None;
    for _ in 0..LOOKS {
        gdb.interrupt()?;
        gdb.select_cpu(cpu)?;
        let registers = gdb.general()?;
        last = Some((registers.pc, registers.cpsr));
        if registers.cpsr & 0xc == EL2 {
            let pc = prepare(gdb, fault, unused)?;
            gdb.set_pc(pc)?;
            return gdb.let_run();
        }
        gdb.let_run()?;
        // QEMU's CPUs take turns: a stop at once would find the same one in its turn again.
        thread::sleep(LOOK);
    }
    anyhow::bail!("CPU {cpu} never waits at EL2; PC and PSTATE at the last look: {last:x?}")
}

/// Returns the address of a function of the runtime that does not run. The runtime is in this
/// folder of builds.
fn unused_function(folder: &str) -> Result<u64> {
    halt::address_in_runtime(&workspace::bare_elf_in(folder, "gear1-runtime"), UNUSED)
}

/// Writes what the fault needs at `unused`, and returns where the CPU has to go on. `NOWHERE` makes
/// the CPU take an abort at EL2.
fn prepare(gdb: &mut Gdb, fault: Fault, unused: u64) -> Result<u64> {
    let (instructions, pc): (&[u32], u64) = match fault {
        Fault::Hang(_) => (&[LOOP], unused),
        Fault::Silence(_) => (&[WFI, BACK], unused),
        Fault::Loop(_) => (&[UNDEFINED], NOWHERE),
        Fault::Halt(_) => (&[], NOWHERE),
    };
    for (place, instruction) in (unused..).step_by(4).zip(instructions) {
        gdb.write_instruction(place, *instruction)?;
    }
    Ok(pc)
}
