//! Debug and performance monitors of the loaded guest, in hardware.
//!
//! Invariants: MDSCR_EL1 is 0 and PMCR_EL0.E clear whenever Gear2, or a guest without them, runs,
//! so that nothing of what else is left in these registers acts; no counter counts at EL2.
//!
//! Requirements: G1-CPU-007, G1-CPU-008.

use core::arch::asm;
use core::mem::offset_of;

use gear1_core::monitors::{
    Bank, DEBUG, MAX_COUNTERS, MAX_POINTS, Monitors, PMCR_ENABLE, PMCR_GUEST, PMU, PmuReg,
    TYPE_GUEST,
};

use crate::barrier;
use crate::regs::{
    ID_AA64DFR0_EL1, MDSCR_EL1, OSLAR_EL1, OSLSR_EL1, PMCCNTR_EL0, PMCEID0_EL0, PMCEID1_EL0,
    PMCNTENCLR_EL0, PMCNTENSET_EL0, PMCR, PMCR_EL0, PMINTENCLR_EL1, PMINTENSET_EL1, PMOVSCLR_EL0,
    PMOVSSET_EL0, PMSELR_EL0, PMSWINC_EL0, PMUSERENR_EL0, PMXEVCNTR_EL0, PMXEVTYPER_EL0,
    Readable as _, Writeable as _,
};

/// PMEVTYPER: counts at EL2.
const NSH: u64 = 1 << 27;
/// PMEVTYPER: the event.
const EVENT: u64 = 0xffff;
const SW_INCR: u64 = 0;
/// PMSELR_EL0: PMXEVTYPER_EL0 is PMCCFILTR_EL0.
const FILTER: u8 = 31;

/// Makes the monitors stand still: a guest that has some is left.
#[cold]
pub(crate) fn leave(monitors: &mut Monitors) {
    if monitors.has & DEBUG != 0 {
        monitors.mdscr = MDSCR_EL1.get();
        // planted: a breakpoint acts in other VMs
        MDSCR_EL1.set(0);
    }
    if monitors.has & PMU != 0 {
        monitors.pmcr = PMCR_EL0.get();
        // planted: counters count in other VMs
        PMCR_EL0.set(monitors.pmcr & !PMCR_ENABLE);
    }
}

/// Resumes the guest's monitors.
#[cold]
pub(crate) fn enter(monitors: &Monitors) {
    if monitors.has & DEBUG != 0 {
        MDSCR_EL1.set(monitors.mdscr);
    }
    if monitors.has & PMU != 0 {
        PMCR_EL0.set(monitors.pmcr);
        // QEMU derives the PMU's interrupt line from PMCR_EL0.E, but only at writes of the overflow
        // and interrupt enable registers. Without this write, which enables nothing, the line of an
        // overflow stays low after a change of the vCPU.
        PMINTENSET_EL1.set(0);
    }
    // ERET looks at MDSCR_EL1.SS.
    barrier::isb();
}

/// Returns OSLSR_EL1.
pub fn lock_status() -> u64 {
    OSLSR_EL1.get()
}

/// Tells whether the OS lock is locked.
pub fn is_locked() -> bool {
    OSLSR_EL1.get() & 2 != 0
}

/// Locks or unlocks (OSLAR_EL1).
pub fn lock(value: u64) {
    OSLAR_EL1.set(value);
}

/// Returns MDSCR_EL1.
pub fn debug_control() -> u64 {
    MDSCR_EL1.get()
}

/// Sets MDSCR_EL1.
pub fn set_debug_control(value: u64) {
    MDSCR_EL1.set(value);
}

/// Returns the number of breakpoints, or for the banks behind theirs of watchpoints, that a guest
/// has: 2 to 8.
pub fn points(bank: usize) -> usize {
    let id = ID_AA64DFR0_EL1.extract();
    let last = if bank < 2 {
        id.read(ID_AA64DFR0_EL1::BRPs)
    } else {
        id.read(ID_AA64DFR0_EL1::WRPs)
    };
    last.wrapping_add(1).min(MAX_POINTS as u64) as usize
}

macro_rules! load_pairs {
    ($values:expr, $controls:expr, $count:expr, $value:literal, $control:literal) => {
        // SAFETY: the two arrays have 8 entries, of which the first `count` (1 to 8, no more than
        // the CPU has registers) are read. These registers act only where MDSCR_EL1 lets them,
        // never at EL2 (MDCR_EL2.TDE is 0).
        unsafe {
            asm!(
                ".irp i,0,1,2,3,4,5,6,7",
                r"cmp {n}, #\i",
                "b.ls 3f",
                r"ldr {t}, [{v}, #8*\i]",
                concat!("msr ", $value, r"\i\()_el1, {t}"),
                r"ldr {t}, [{c}, #8*\i]",
                concat!("msr ", $control, r"\i\()_el1, {t}"),
                ".endr",
                "3:",
                t = out(reg) _,
                n = in(reg) $count,
                v = in(reg) $values,
                c = in(reg) $controls,
                options(nostack, readonly),
            );
        }
    };
}

/// Loads the breakpoints and watchpoints.
#[inline(never)]
pub fn load_points(bank: &Bank) {
    let [bvr, bcr, wvr, wcr] = &bank.points;
    load_pairs!(bvr, bcr, points(0), "dbgbvr", "dbgbcr");
    load_pairs!(wvr, wcr, points(2), "dbgwvr", "dbgwcr");
}

/// Returns the number of event counters (PMCR_EL0.N).
pub fn counters() -> u8 {
    PMCR::N.read(PMCR_EL0.get()) as u8
}

/// Tells whether the PMU asks for its interrupt: something that overflowed and may interrupt.
pub fn wants_interrupt() -> bool {
    PMCR_EL0.get() & PMCR_ENABLE != 0 && PMOVSSET_EL0.get() & PMINTENSET_EL1.get() != 0
}

fn select(counter: u8) {
    PMSELR_EL0.set(u64::from(counter));
    barrier::isb();
}

/// Reads a register; `selected` is the guest's PMSELR_EL0. A counter that is not there reads as
/// zero.
#[inline(never)]
pub fn read(reg: PmuReg, selected: u8) -> u64 {
    match reg {
        PmuReg::Pmcr => PMCR_EL0.get(),
        PmuReg::Pmcntenset | PmuReg::Pmcntenclr => PMCNTENSET_EL0.get(),
        PmuReg::Pmovsset | PmuReg::Pmovsclr => PMOVSSET_EL0.get(),
        PmuReg::Pmintenset | PmuReg::Pmintenclr => PMINTENSET_EL1.get(),
        PmuReg::Pmselr => u64::from(selected),
        PmuReg::Pmceid0 => PMCEID0_EL0.get(),
        PmuReg::Pmceid1 => PMCEID1_EL0.get(),
        PmuReg::Pmccntr => PMCCNTR_EL0.get(),
        PmuReg::Pmuserenr => PMUSERENR_EL0.get(),
        PmuReg::Pmevcntr(counter) if counter < counters() => {
            select(counter);
            PMXEVCNTR_EL0.get()
        }
        PmuReg::Pmevtyper(counter) if counter == FILTER || counter < counters() => {
            select(counter);
            PMXEVTYPER_EL0.get()
        }
        PmuReg::Pmswinc | PmuReg::Pmmir | PmuReg::Pmevcntr(_) | PmuReg::Pmevtyper(_) => 0,
    }
}

/// Writes a register that has no state outside of the hardware.
#[inline(never)]
pub fn write(reg: PmuReg, value: u64) {
    match reg {
        PmuReg::Pmcr => PMCR_EL0.set(value & PMCR_GUEST),
        PmuReg::Pmcntenset => PMCNTENSET_EL0.set(value),
        PmuReg::Pmcntenclr => PMCNTENCLR_EL0.set(value),
        PmuReg::Pmovsset => PMOVSSET_EL0.set(value),
        PmuReg::Pmovsclr => PMOVSCLR_EL0.set(value),
        PmuReg::Pmintenset => PMINTENSET_EL1.set(value),
        PmuReg::Pmintenclr => PMINTENCLR_EL1.set(value),
        PmuReg::Pmswinc => increment(value),
        PmuReg::Pmccntr => PMCCNTR_EL0.set(value),
        PmuReg::Pmuserenr => PMUSERENR_EL0.set(value & 0xf),
        PmuReg::Pmevcntr(counter) if counter < counters() => {
            select(counter);
            PMXEVCNTR_EL0.set(value);
        }
        PmuReg::Pmevtyper(counter) if counter == FILTER || counter < counters() => {
            select(counter);
            PMXEVTYPER_EL0.set(value & TYPE_GUEST);
        }
        PmuReg::Pmselr
        | PmuReg::Pmceid0
        | PmuReg::Pmceid1
        | PmuReg::Pmmir
        | PmuReg::Pmevcntr(_)
        | PmuReg::Pmevtyper(_) => {}
    }
    barrier::isb();
}

/// Software increments of the guest's, carried out here: only where counters count at EL2, and so
/// just now. Bound: 31 counters.
fn increment(mask: u64) {
    // Bound: 31 counters (PMCR_EL0.N).
    for counter in 0..counters() {
        let bit = 1_u64.wrapping_shl(u32::from(counter));
        select(counter);
        let kind = PMXEVTYPER_EL0.get();
        if mask & bit != 0 && kind & EVENT == SW_INCR {
            PMXEVTYPER_EL0.set(kind | NSH);
            barrier::isb();
            PMSWINC_EL0.set(bit);
            barrier::isb();
            PMXEVTYPER_EL0.set(kind);
        }
    }
}

/// Stores what the PMU holds; it stands still, and has nothing to interrupt for from here on.
pub fn save_pmu(bank: &mut Bank) {
    bank.sets = [
        PMCNTENSET_EL0.get(),
        PMOVSSET_EL0.get(),
        PMINTENSET_EL1.get(),
    ];
    PMINTENCLR_EL1.set(u64::MAX);
    bank.cycles = PMCCNTR_EL0.get();
    bank.user = PMUSERENR_EL0.get();
    select(FILTER);
    bank.filter = PMXEVTYPER_EL0.get();
    // Bound: 31 counters (PMCR_EL0.N).
    for (number, [kind, count]) in (0..counters()).zip(&mut bank.counters) {
        select(number);
        *kind = PMXEVTYPER_EL0.get();
        *count = PMXEVCNTR_EL0.get();
    }
}

/// Restores the PMU, stopped.
pub fn load_pmu(bank: &Bank) {
    PMCNTENCLR_EL0.set(u64::MAX);
    PMOVSCLR_EL0.set(u64::MAX);
    PMINTENCLR_EL1.set(u64::MAX);
    let [enabled, overflown, interrupts] = bank.sets;
    PMCNTENSET_EL0.set(enabled);
    PMOVSSET_EL0.set(overflown);
    PMINTENSET_EL1.set(interrupts);
    PMCCNTR_EL0.set(bank.cycles);
    PMUSERENR_EL0.set(bank.user);
    select(FILTER);
    PMXEVTYPER_EL0.set(bank.filter);
    // Bound: 31 counters (PMCR_EL0.N).
    for (number, [kind, count]) in (0..counters()).zip(&bank.counters) {
        select(number);
        PMXEVTYPER_EL0.set(*kind);
        PMXEVCNTR_EL0.set(*count);
    }
}

const _: () = assert!(MAX_COUNTERS == 31 && MAX_POINTS == 8 && offset_of!(Bank, points) % 8 == 0);
