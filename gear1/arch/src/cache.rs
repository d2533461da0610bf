//! The lines of data caches, and maintenance of this CPU's instruction cache (Arm ARM D7.5.9).
//!
//! Requirements: G1-RUN-009, G1-MEM-015, G1-CPU-011.

use core::arch::asm;

use crate::barrier;
use crate::regs::{CTR_EL0, Readable as _};

/// Returns the smallest data cache line of this CPU in bytes (CTR_EL0.DminLine).
pub(crate) fn line_size() -> u64 {
    4_u64.wrapping_shl((CTR_EL0.get() >> 16) as u32 & 0xf)
}

/// Invalidates this CPU's instruction cache, for another CPU that has asked for it. The first
/// barrier completes the load that found the request, so that nothing is fetched again from before
/// the request.
#[inline(always)]
pub fn invalidate_instructions() {
    barrier::dsb_nsh();
    // SAFETY: dropping cached instructions changes no memory.
    // planted: a request to invalidate instruction caches does nothing
    unsafe { asm!("ic iallu", options(nostack, preserves_flags)) };
    barrier::dsb_nsh();
    barrier::isb();
}
