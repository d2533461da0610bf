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
/// ISR_EL1.A: a physical SError is pending.
const PENDING: u64 = 1 << 8;

/// Tells whether the accesses made so far may have ended in an SError, which [`collect`] finds then.
/// Nothing is cleared: an ESB without a pending SError leaves DISR_EL1 as it is (Arm ARM, ESB).
#[inline(always)]
pub fn is_noted(has_ras: bool) -> bool {
    if has_ras {
        let syndrome: u64;
        // SAFETY: ESB (hint 16) makes a pending SError one in DISR_EL1; no memory of Rust's
        // changes.
        unsafe {
            asm!("hint #16", "mrs {}, S3_0_C12_C1_1", out(reg) syndrome, options(nostack, preserves_flags));
        };
        return syndrome & DEFERRED != 0;
    }
    let pending: u64;
    // SAFETY: barriers, and a register that only tells what is pending.
    unsafe {
        asm!("dsb sy", "isb", "mrs {}, isr_el1", out(reg) pending, options(nostack, preserves_flags));
    };
    pending & PENDING != 0
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
