//! Registers that Gear2 sees: nothing of a guest's but what the event contains.
//!
//! Two guests fill their registers with secrets and leave their VMs in every way that leads to
//! Gear2 (`tests/guests/src/bin/secrets.rs`). The debugger stops the machine at each return of
//! Gear2's call `NEXT`: no register of EL0 holds a secret, the event is exactly the documented one,
//! and the FP registers, which Gear1 switches when another guest uses them, are out of Gear2's
//! reach.
//!
//! Requirements: G1-RUN-003, G1-RUN-005.
//!
//! Gear2 is code that Gear1 does not trust, so an extra register is a leak even if Gear2 never
//! looks at it. A test at EL0 sees its registers too late, after its own code has used them.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, ensure};
use gear1_abi::call::number;
use gear1_abi::event::{Event, Mmio};
use gear1_abi::guest::GEAR2_NOP;
use object::{Object as _, ObjectSection as _, SectionKind};
use workbench::build_images::{self, Images};
use workbench::expect::Session;
use workbench::qemu::{Console, Machine, Qemu};
use workbench::workspace;
use xtask::run;

use crate::gdb::{Gdb, General};
use crate::guests;
use crate::part::{Part, Tally};
use crate::table::target_tests;

const MANIFEST: &str = "secrets";
/// The returns of `NEXT` that are looked at, unless one way to Gear2 is rare. Each stop costs
/// several questions to the debugger.
const STOPS: u64 = 800;
const MOST_STOPS: u64 = 4 * STOPS;
/// Least number of observations of each way. A way that was never taken would be judged clean.
const LEAST: u64 = 20;
/// Four nanoseconds an instruction: a guest's loop takes three time slices. With `sleep=off`, QEMU
/// 10 stands still after a resume. The host's time between stops must not count as the guests'.
const INSTRUCTION_TIME: [&str; 2] = ["-icount", "shift=2,sleep=on"];
/// `SVC #NEXT`. The call's number is the immediate.
const SVC: u32 = 0xd400_0001 | (number::NEXT as u32) << 5;
/// PSTATE.M of EL0 in AArch64. Zero in these bits is EL0t.
const PSTATE_MODE: u32 = 0x1f;
/// CPTR_EL2.TFP: FP registers trap. The FP registers may keep a guest's values meanwhile, as long
/// as an access of EL0 traps.
const CPTR_TFP: u64 = 1 << 10;
/// The guest's store goes to the PL011's IBRD. Nothing depends on the register's value.
const IBRD: u64 = 0x24;

pub(super) fn parts() -> Vec<Part> {
    vec![Part::new("gear2 registers", gear2_registers)]
}

/// The ways that a guest took to Gear2. Each is a different path from a guest's registers to
/// Gear2's.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    hypercalls: u64,
    loads: u64,
    stores: u64,
    waits: u64,
    slices: u64,
}

/// Numbers of system registers that Gear2 can read, and of the one that keeps it from FP. Gear2 can
/// read the first two at EL0 without any call.
struct System {
    thread: [u32; 2],
    cptr: u32,
}

fn gear2_registers(tally: &mut Tally) -> Result<()> {
    registers_under(None, tally)
}

/// Looks at what Gear2 sees under another Gear1, or under the usual one. The guests' own verdicts
/// are asked for as well: they check that their registers come back.
pub(super) fn registers_under(gear1: Option<PathBuf>, tally: &mut Tally) -> Result<()> {
    let row = target_tests().find(|row| row.manifest == MANIFEST);
    let row = row.with_context(|| format!("the table has no {MANIFEST}"))?;
    let manifest = workspace::root().join(format!("tests/manifests/{MANIFEST}.dts"));
    let mut images = build_images::build(&manifest)?;
    images.gear1 = gear1.unwrap_or(images.gear1);
    let (session, gdb) = start(&images)?;
    match watch(gdb, returns_of_next()?) {
        Ok(()) => {
            tally.pass(1);
            guests::conclude(session, row, tally)
        }
        Err(error) => Err(anyhow!("{error:#}\n{}", build_images::last_words(&session))),
    }
}

/// Starts the machine, which waits for the debugger. Its time passes with instructions, not with
/// the host's time between two stops: the ways that guests take are always the same. One CPU, as
/// the guests of this manifest have one.
fn start(images: &Images) -> Result<(Session, Gdb)> {
    let machine = Machine {
        cpus: 1,
        memory_mib: run::memory_for(images)?,
        ..Machine::default()
    };
    let mut command = Qemu::prepare(10)?.command(&machine, &images.boot(), Console::Pipes);
    command.args(INSTRUCTION_TIME);
    let log: PathBuf = workspace::output_dir().join(format!("{MANIFEST}/gdb.log"));
    Gdb::start(command, &log)
}

/// Returns the addresses after `SVC #NEXT` at which Gear2 continues. The linked code is searched,
/// since an inlined call may stand in several places.
pub(super) fn returns_of_next() -> Result<Vec<u64>> {
    let elf = fs::read(workspace::bare_elf("gear2"))?;
    let file = object::File::parse(&*elf)?;
    let mut returns = Vec::new();
    for section in file.sections().filter(|s| s.kind() == SectionKind::Text) {
        let addresses = (section.address()..).step_by(4);
        let instructions = section.data()?.chunks_exact(4).zip(addresses);
        returns.extend(
            instructions
                .filter(|(instruction, _)| *instruction == SVC.to_le_bytes())
                .map(|(_, address)| address + 4),
        );
    }
    ensure!(!returns.is_empty(), "Gear2 never calls NEXT");
    Ok(returns)
}

/// Stops the machine again and again, and lets it go on alone at last. Stops are counted with a
/// limit: a rare way makes the test longer, and not endless.
fn watch(mut gdb: Gdb, returns: Vec<u64>) -> Result<()> {
    let [a, b, cptr] = gdb.system_registers(["TPIDR_EL0", "TPIDRRO_EL0", "CPTR_EL2"])?;
    let system = System {
        thread: [a, b],
        cptr,
    };
    for address in &returns {
        gdb.set_breakpoint(*address)?;
    }
    let mut seen = Seen::default();
    let mut stops = 0;
    while stops < STOPS || seen.least() < LEAST && stops < MOST_STOPS {
        gdb.resume()
            .with_context(|| format!("after {stops} returns of NEXT, {seen:?}"))?;
        stops += 1;
        let general = gdb.general()?;
        ensure!(
            returns.contains(&general.pc) && general.cpsr & PSTATE_MODE == 0,
            "stopped outside of Gear2: {general:x?}"
        );
        look(&mut gdb, &system, &general, &mut seen)
            .with_context(|| format!("return {stops} of NEXT, {general:x?}"))?;
    }
    ensure!(seen.least() >= LEAST, "too few of some: {seen:?}");
    for address in returns {
        gdb.clear_breakpoint(address)?;
    }
    gdb.detach()
}

/// Checks what Gear2 sees at one return of `NEXT`. All 31 registers, the stack pointer and the
/// thread registers.
fn look(gdb: &mut Gdb, system: &System, general: &General, seen: &mut Seen) -> Result<()> {
    for (number, value) in general.x.into_iter().enumerate() {
        ensure!(!has_secret(value), "X{number} holds a guest's {value:#x}");
    }
    ensure!(!has_secret(general.sp), "SP holds a guest's");
    for number in system.thread {
        let value = gdb.register(number)?;
        ensure!(!has_secret(value), "a thread register holds {value:#x}");
    }
    let fp_traps = gdb.register(system.cptr)? & CPTR_TFP != 0;
    ensure!(fp_traps, "Gear2 can read the FP registers");
    check_event(general, seen)
}

/// Checks that X0 to X6 hold an event and nothing beside it, and that the event holds what the
/// guest handed over and nothing beside that. Decoding and encoding again makes zeroes of all that
/// the event does not define; what differs is more.
fn check_event(general: &General, seen: &mut Seen) -> Result<()> {
    let [x0, x1, x2, x3, x4, x5, x6, x7, ..] = general.x;
    let event = Event::decode(&[x0, x1, x2, x3, x4, x5, x6, x7]).context("no event")?;
    // X7 is left out of the comparison: its value is taken from what is encoded.
    let [.., time] = event.encode();
    ensure!(
        event.encode() == [x0, x1, x2, x3, x4, x5, x6, time],
        "there is more than the event"
    );
    seen.count(event);
    ensure!(
        holds_given(event, [x2, x3, x4, x5, x6]),
        "{event:x?} is not what the guest handed over"
    );
    Ok(())
}

/// Tells whether an event holds what the guest handed over, and whether the registers of any other
/// event hold nothing of it. A guest hands over some registers on purpose, with another pattern
/// than its secrets. Those may be in that event alone.
fn holds_given(event: Event, registers: [u64; 5]) -> bool {
    match event {
        Event::Hypercall(_, arguments) => {
            arguments == [GEAR2_NOP.into(), given(1), given(2), given(3), given(4)]
        }
        Event::Mmio(_, Mmio { ipa, store, .. }) => match store {
            // A store of W9 shows only its 32 bits.
            Some(value) if ipa & 0xfff == IBRD => value == given(9) & 0xffff_ffff,
            Some(value) => !is_given(value),
            None => true,
        },
        Event::Deadline(_)
        | Event::Wfi(_)
        | Event::Wfe(_)
        | Event::Off(_)
        | Event::VmEnd(..)
        | Event::Fault(..)
        | Event::Wake(_)
        | Event::Irq(..)
        | Event::Poke(_)
        | Event::Doorbell(_)
        | Event::Refused(_) => registers.iter().all(|value| !is_given(*value)),
    }
}

impl Seen {
    /// Only ways by which these two guests leave count. A new kind of event must be given a place
    /// here.
    fn count(&mut self, event: Event) {
        let count = match event {
            Event::Hypercall(..) => &mut self.hypercalls,
            Event::Mmio(_, mmio) if mmio.store.is_some() => &mut self.stores,
            Event::Mmio(..) => &mut self.loads,
            Event::Wfi(_) => &mut self.waits,
            Event::Deadline(Some(_)) => &mut self.slices,
            Event::Deadline(None)
            | Event::Wfe(_)
            | Event::Off(_)
            | Event::VmEnd(..)
            | Event::Fault(..)
            | Event::Wake(_)
            | Event::Irq(..)
            | Event::Poke(_)
            | Event::Doorbell(_)
            | Event::Refused(_) => return,
        };
        *count += 1;
    }

    /// Returns how often the rarest way was taken.
    fn least(&self) -> u64 {
        let Seen {
            hypercalls,
            loads,
            stores,
            waits,
            slices,
        } = *self;
        let ways = [hypercalls, loads, stores, waits, slices];
        ways.into_iter().min().unwrap_or(0)
    }
}

/// Tells whether either half of a register is a secret's, whose low byte numbers it. Halves are
/// compared, because a secret may be shown by 32 bits of it alone.
fn has_secret(value: u64) -> bool {
    has_half(value, 0xa55e_c200)
}

/// Returns what the guest hands over in register `number`.
fn given(number: u64) -> u64 {
    0x617e_4000_617e_4000 | number << 32 | number
}

fn is_given(value: u64) -> bool {
    has_half(value, 0x617e_4000)
}

fn has_half(value: u64, pattern: u64) -> bool {
    [value >> 32, value & 0xffff_ffff]
        .iter()
        .any(|half| half & !0xff == pattern)
}
