//! Counts what a hypervisor executes between two marks of its guest, by kind.
//!
//! A count of instructions hides what they cost: a barrier and an addition are one each. The kinds
//! are those that a CPU executes at very different speeds. Whatever lies outside of the guests'
//! addresses is the hypervisor's, at each exception level.
//!
//! Each instruction of the hypervisor's has a callback: QEMU 10's addition in line with the
//! translated code reads a wrong address under `-icount`. Its loads and stores have one more, since
//! only QEMU knows whether a device is behind an address.
//!
//! Arguments: `guests=<first address in hex>-<end in hex>`, `out=<file>`. A line is written at
//! each end of a measurement: `<kind>=<count> ...`.

use std::ffi::{c_uint, c_void};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::qemu::{self, Block, Id, Memory};

/// HINT #0x70 and #0x71: hints that the architecture has not allocated, which execute as NOP (Arm
/// DDI 0487, C6.2, HINT). The guest executes them around a measurement.
pub(crate) const BEGIN: u32 = 0xd503_2e1f;
pub(crate) const END: u32 = 0xd503_2e3f;

/// Kinds of instructions. The order is that of [`NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// MRS of a register that has no kind of its own.
    Read,
    /// MSR of such a register.
    Write,
    /// MRS and MSR of the thread pointers and SP_EL0, which select no translation and no trap.
    Thread,
    /// MSR (immediate): PSTATE.DAIF and others.
    Pstate,
    /// ICC_*, ICV_* and ICH_*.
    Gic,
    Isb,
    Dsb,
    Dmb,
    Tlbi,
    /// DC and IC.
    Cache,
    /// AT.
    Translate,
    /// ERET, one an exception that was taken.
    Return,
    /// Load-exclusive, store-exclusive, atomic and ordered accesses.
    Atomic,
    /// Any other load or store.
    Memory,
    /// An access whose address is a device's: it counts as a load or store as well.
    Device,
    Other,
}

/// Names of the kinds in the output, which `tests/measure` reads.
const NAMES: [&str; 16] = [
    "read",
    "write",
    "thread",
    "pstate",
    "gic",
    "isb",
    "dsb",
    "dmb",
    "tlbi",
    "cache",
    "translate",
    "return",
    "atomic",
    "memory",
    "device",
    "other",
];

impl Kind {
    /// Classifies an A64 instruction (Arm DDI 0487, C4.1): the masks are of fixed fields.
    fn of(word: u32) -> Kind {
        if word == 0xd69f_03e0 {
            return Kind::Return;
        }
        if word & 0xffc0_0000 == 0xd500_0000 {
            return Kind::of_system(word);
        }
        let is_ordered = word & 0x3f00_0000 == 0x0800_0000;
        let is_atomic = word & 0x3b20_0c00 == 0x3820_0000;
        if is_ordered || is_atomic {
            Kind::Atomic
        } else if word >> 25 & 0b101 == 0b100 {
            Kind::Memory
        } else {
            Kind::Other
        }
    }

    /// Classifies a system instruction (Arm DDI 0487, C4.1.94) by op0, op1, CRn, CRm and op2.
    fn of_system(word: u32) -> Kind {
        let [op1, crn, crm, op2] =
            [(16, 7), (12, 15), (8, 15), (5, 7)].map(|(shift, mask)| word >> shift & mask);
        match (word >> 19 & 3, crn) {
            (0, 3) => match op2 {
                4 => Kind::Dsb,
                5 => Kind::Dmb,
                6 => Kind::Isb,
                _ => Kind::Other,
            },
            (0, 4) => Kind::Pstate,
            (1, 7) if crm == 8 || crm == 9 => Kind::Translate,
            (1, 7) => Kind::Cache,
            (1, 8 | 9) => Kind::Tlbi,
            (3, 12) if (8..=13).contains(&crm) => Kind::Gic,
            // ICC_PMR_EL1.
            (3, 4) if crm == 6 => Kind::Gic,
            // SP_EL0, and TPIDR_EL0, TPIDRRO_EL0, TPIDR_EL1 and TPIDR_EL2.
            (3, 4) if (op1, crm, op2) == (0, 1, 0) => Kind::Thread,
            (3, 13) if crm == 0 && op2 >= 2 => Kind::Thread,
            (2 | 3, _) if word >> 21 & 1 != 0 => Kind::Read,
            (2 | 3, _) => Kind::Write,
            _ => Kind::Other,
        }
    }
}

/// Settings and state of the callbacks.
struct Costs {
    guests: Range<u64>,
    state: Mutex<State>,
}

/// Changed by callbacks.
struct State {
    /// Counts at the last begin of a measurement.
    begin: [u64; NAMES.len()],
    out: File,
}

/// Counts of all CPUs, by kind. A lock would be taken at each instruction.
static COUNTS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];
/// QEMU's callbacks carry no pointer of a plugin's own.
static COSTS: OnceLock<Costs> = OnceLock::new();

/// Takes in the arguments and has QEMU count. `None`: one of them is missing or wrong.
pub(crate) fn install(id: Id, arguments: &[String]) -> Option<()> {
    let argument = |name: &str| arguments.iter().find_map(|text| text.strip_prefix(name));
    let (first, end) = argument("guests=")?.split_once('-')?;
    let [first, end] = [first, end].map(|text| u64::from_str_radix(text, 16).ok());
    let costs = Costs {
        guests: first?..end?,
        state: Mutex::new(State {
            begin: [0; NAMES.len()],
            out: File::create(argument("out=")?).ok()?,
        }),
    };
    COSTS.set(costs).ok()?;
    qemu::register_translation(id, on_translation);
    Some(())
}

/// Has each instruction counted. A guest's own are none of the hypervisor's work.
extern "C" fn on_translation(_: Id, block: *mut Block) {
    let Some(costs) = COSTS.get() else {
        return;
    };
    for (instruction, address, word) in qemu::instructions(block) {
        if costs.guests.contains(&address) {
            match word {
                BEGIN => qemu::before(instruction, on_begin, false, 0),
                END => qemu::before(instruction, on_end, false, 0),
                _ => {}
            }
            continue;
        }
        let kind = Kind::of(word);
        qemu::before(instruction, on_instruction, false, kind as u64);
        if matches!(kind, Kind::Memory | Kind::Atomic) {
            qemu::at_access(instruction, on_access);
        }
    }
}

/// Notes the counts at the begin of a measurement.
extern "C" fn on_begin(_: c_uint, _: *mut c_void) {
    if let Some(costs) = COSTS.get() {
        let mut state = costs.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.begin = counts();
    }
}

/// Writes what was executed since the begin.
extern "C" fn on_end(_: c_uint, _: *mut c_void) {
    let Some(costs) = COSTS.get() else {
        return;
    };
    let mut state = costs.state.lock().unwrap_or_else(PoisonError::into_inner);
    let mut line = String::new();
    for ((name, now), before) in NAMES.iter().zip(counts()).zip(state.begin) {
        let _ = write!(line, "{name}={} ", now - before);
    }
    let _ = writeln!(state.out, "{}", line.trim_end());
}

/// Counts an instruction. `-icount` has one thread execute all CPUs, so no addition is lost.
extern "C" fn on_instruction(_: c_uint, kind: *mut c_void) {
    count(kind.addr());
}

/// Counts an access of a device.
extern "C" fn on_access(_: c_uint, access: Memory, address: u64, _: *mut c_void) {
    if qemu::is_device(access, address) {
        count(Kind::Device as usize);
    }
}

fn count(kind: usize) {
    if let Some(counter) = COUNTS.get(kind) {
        counter.store(counter.load(Relaxed) + 1, Relaxed);
    }
}

fn counts() -> [u64; NAMES.len()] {
    COUNTS.each_ref().map(|counter| counter.load(Relaxed))
}
