//! Barriers, and the hints a CPU waits with.
//!
//! Requirements: G1-MEM-014.

use core::arch::asm;

macro_rules! instructions {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)+) => {
        $(
            $(#[$doc])*
            #[inline(always)]
            pub fn $name() {
                // SAFETY: a barrier or hint only orders or delays; without `nomem`
                // the compiler moves no memory access across it.
                unsafe { asm!($text, options(nostack, preserves_flags)) };
            }
        )+
    };
}

instructions! {
    /// Makes earlier register writes visible to what follows.
    isb = "isb";
    /// Waits until earlier accesses are complete, full system.
    dsb_sy = "dsb sy";
    /// Waits until earlier accesses are complete, inner shareable.
    dsb_ish = "dsb ish";
    /// Waits until earlier stores are complete, inner shareable.
    dsb_ishst = "dsb ishst";
    /// Waits until earlier accesses are complete, this CPU.
    dsb_nsh = "dsb nsh";
    /// Completes earlier loads before later accesses, full system.
    dmb_ld = "dmb ld";
    /// Waits for an interrupt.
    wfi = "wfi";
    /// Wakes the CPUs that wait in WFE.
    sev = "sev";
    /// Lets another hardware thread (or emulated CPU) go first.
    yield_hint = "yield";
}

/// Waits with YIELD: the bound is CPUs x longest hold, since tickets are served in order.
pub struct YieldRelax;

impl spin::RelaxStrategy for YieldRelax {
    #[inline(always)]
    fn relax() {
        yield_hint();
    }
}
