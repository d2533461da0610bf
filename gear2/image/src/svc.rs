//! The two instructions that Gear2 needs beyond Rust: `SVC`, at EL1 `HVC`, and `YIELD`.
//!
//! Gear2 has no exception to return from and no interrupt to mask, so these are all. An SVC at EL1
//! would be taken to EL1 itself; hence HVC there.

use core::arch::asm;

use gear1_abi::call::number;
use gear1_abi::regs::Regs;
use gear2_core::Conduit;
use spin::RelaxStrategy;

/// The call as the assembler reads it, by the level that Gear2 runs at.
#[cfg(not(feature = "el1"))]
macro_rules! instruction {
    () => {
        "svc #{number}"
    };
}
#[cfg(feature = "el1")]
macro_rules! instruction {
    () => {
        "hvc #{number}"
    };
}

/// The way to Gear1 on the target.
pub(crate) struct Supervisor;

impl Conduit for Supervisor {
    #[inline(always)]
    fn svc<const NUMBER: u16>(&mut self, arguments: Regs) -> Regs {
        call::<NUMBER>(arguments)
    }

    #[inline(always)]
    fn svc_next(&mut self, arguments: Regs) -> (Regs, [u64; 2]) {
        next(arguments)
    }
}

/// Makes a call. Eight registers go in and come out; a call with fewer arguments passes zeroes.
#[inline(always)]
fn call<const NUMBER: u16>(arguments: Regs) -> Regs {
    let [
        mut x0,
        mut x1,
        mut x2,
        mut x3,
        mut x4,
        mut x5,
        mut x6,
        mut x7,
    ] = arguments;
    // SAFETY: to Gear2 a call is a function call (`gear1_abi::call`): Gear1 touches no memory
    // that Gear2 can see and keeps X19 to X30 and SP. What it may lose is declared lost.
    unsafe {
        asm!(
            instruction!(),
            number = const NUMBER,
            inout("x0") x0,
            inout("x1") x1,
            inout("x2") x2,
            inout("x3") x3,
            inout("x4") x4,
            inout("x5") x5,
            inout("x6") x6,
            inout("x7") x7,
            // X8 to X18 are the callee's to change, as by AAPCS64.
            lateout("x8") _,
            lateout("x9") _,
            lateout("x10") _,
            lateout("x11") _,
            lateout("x12") _,
            lateout("x13") _,
            lateout("x14") _,
            lateout("x15") _,
            lateout("x16") _,
            lateout("x17") _,
            lateout("x18") _,
            options(nostack),
        );
    }
    [x0, x1, x2, x3, x4, x5, x6, x7]
}

/// Makes the call NEXT. A decision is in four registers, and X8 and X9 come out beside the others.
#[inline(always)]
fn next([mut x0, mut x1, mut x2, mut x3, ..]: Regs) -> (Regs, [u64; 2]) {
    let (x4, x5, x6, x7): (u64, u64, u64, u64);
    let (mut x8, mut x9) = (0, 0);
    // SAFETY: as in `call`.
    unsafe {
        asm!(
            instruction!(),
            number = const number::NEXT,
            inout("x0") x0,
            inout("x1") x1,
            inout("x2") x2,
            inout("x3") x3,
            lateout("x4") x4,
            lateout("x5") x5,
            lateout("x6") x6,
            lateout("x7") x7,
            // Zeroes go in: NEXT leaves X8 as it is when an event was pending, and X9 when the vCPU
            // has not waited inside Gear1.
            inout("x8") x8,
            inout("x9") x9,
            // X10 to X18 are the callee's to change, as by AAPCS64.
            lateout("x10") _,
            lateout("x11") _,
            lateout("x12") _,
            lateout("x13") _,
            lateout("x14") _,
            lateout("x15") _,
            lateout("x16") _,
            lateout("x17") _,
            lateout("x18") _,
            options(nostack),
        );
    }
    ([x0, x1, x2, x3, x4, x5, x6, x7], [x8, x9])
}

/// Waiting for another loop.
pub(crate) struct Yield;

impl RelaxStrategy for Yield {
    /// Tells the CPU that this one spins: with Gear2's loops each on a CPU of its own, no loop
    /// waits for one that is not running.
    #[inline(always)]
    fn relax() {
        pause();
    }
}

/// Lets other CPUs go on while this one spins.
#[inline(always)]
pub(crate) fn pause() {
    // SAFETY: YIELD is a hint without effect on registers or memory.
    unsafe { asm!("yield", options(nomem, nostack, preserves_flags)) }
}
