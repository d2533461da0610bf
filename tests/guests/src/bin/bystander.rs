//! Has neither debug registers nor a PMU, and shares its CPU with guests that have (`monitors`):
//! their registers are invisible here, and none of their breakpoints and watchpoints fires here.
//!
//! Breakpoints and watchpoints compare addresses, and know no VM. The watchpoints of `monitors`
//! cover the lowest 4 GiB at EL0 and EL1: one that a world switch leaves in the CPU fires here at
//! the next access (G1-CPU-007).
#![no_std]
#![no_main]

use core::arch::asm;

use test_guests::exception::{catch, esr};
use test_guests::monitors::{self, PMU_INTID};
use test_guests::{Machine, check, gic, guest, read_sysreg, report, timer, write_sysreg};

guest!(main, irq = irq);

/// 50 ms in all, of which the others get their shares.
const SLEEPS: u64 = 100;

/// The PMU's PPI is enabled: a counter of another VM that overflows must not interrupt this one
/// (G1-CPU-008).
fn irq(intid: u32) {
    report::fail("interrupt", format_args!("{intid}"));
}

/// PSTATE.D and PSTATE.I are cleared, or nothing could fire. Writes to the debug registers are
/// ignored, so each round must read 0 again (G1-CPU-003). A register of the PMU is UNDEFINED, as
/// ID_AA64DFR0_EL1 announces none.
fn main(_machine: &Machine) {
    gic::enable(PMU_INTID);
    monitors::forget(false);
    // SAFETY: the vector records each debug exception.
    unsafe { asm!("msr daifclr, #10", "isb") };
    let mut wrong = 0;
    for round in 0..SLEEPS {
        timer::delay_us(500);
        wrong += read_sysreg!("mdscr_el1")
            | read_sysreg!("dbgbvr0_el1")
            | read_sysreg!("dbgbvr1_el1")
            | read_sysreg!("dbgwvr1_el1")
            | read_sysreg!("dbgwcr0_el1");
        write_sysreg!("dbgbvr0_el1", round);
        write_sysreg!("mdscr_el1", round);
    }
    report::equal("no-debug-registers", wrong, 0);
    report::equal("no-debug-exception", monitors::seen().count, 0);
    let dfr0 = read_sysreg!("id_aa64dfr0_el1");
    report::equal("no-pmu-announced", dfr0 >> 8 & 15, 0);
    let caught = catch(|| _ = read_sysreg!("pmccntr_el0"));
    let undefined = caught.is_some_and(|caught| caught.class() == esr::EC_UNKNOWN);
    check!("no-pmu", undefined, "{caught:x?}");
}
