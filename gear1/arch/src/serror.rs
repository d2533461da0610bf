//! Physical SErrors that become pending while EL2 runs, where they are masked.
//!
//! A pending SError would be taken by the context that is entered next. Therefore Gear1 collects it
//! before it enters another context, and charges it to the one that ran.
//!
//! Requirements: G1-FLT-006.

use core::arch::asm;

use crate::entry::gear1_take_serror;

/// DISR_EL1.A: ESB has deferred an SError.
const DEFERRED: u64 = 1 << 31;
/// Distance from ISR_EL1.A, a physical SError is pending, to DISR_EL1.A: both ways end in one test.
const FROM_PENDING_TO_DEFERRED: u32 = 31 - 8;

/// Tells whether the accesses made so far may have ended in an SError, which [`collect`] finds then.
/// Nothing is cleared: an ESB without a pending SError leaves DISR_EL1 as it is (Arm ARM, ESB).
#[inline(always)]
pub fn is_noted(has_ras: bool) -> bool {
    let noted: u64;
    if has_ras {
        // SAFETY: ESB (hint 16) makes a pending SError one in DISR_EL1; no memory of Rust's
        // changes.
        unsafe {
            asm!("hint #16", "mrs {}, S3_0_C12_C1_1", out(reg) noted, options(nostack, preserves_flags));
        };
    } else {
        let pending: u64;
        // SAFETY: barriers, and a register that only tells what is pending.
        unsafe {
            asm!("dsb sy", "isb", "mrs {}, isr_el1", out(reg) pending, options(nostack, preserves_flags));
        };
        noted = pending << FROM_PENDING_TO_DEFERRED;
    }
    noted & DEFERRED != 0
}

/// Returns whether the accesses made so far ended in an SError, and clears it.
#[inline(always)]
pub fn collect(has_ras: bool) -> bool {
    if !is_noted(has_ras) {
        return false;
    }
    if has_ras {
        // SAFETY: DISR_EL1 holds nothing else.
        unsafe { asm!("msr S3_0_C12_C1_1, xzr", options(nostack, preserves_flags)) };
        return true;
    }
    gear1_take_serror() != 0
}
