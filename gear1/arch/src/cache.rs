//! Maintenance of data caches by address, and of this CPU's instruction cache (Arm ARM D7.5.9).
//!
//! Requirements: G1-RUN-009, G1-MEM-015, G1-CPU-011.

use core::arch::asm;

use crate::barrier;
use crate::regs::{CTR_EL0, Readable as _};

/// Returns the smallest data cache line of this CPU in bytes (CTR_EL0.DminLine).
pub(crate) fn line_size() -> u64 {
    4_u64.wrapping_shl((CTR_EL0.get() >> 16) as u32 & 0xf)
}

macro_rules! by_line {
    ($(#[$doc:meta])* $name:ident = $text:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// The bytes are mapped at EL2.
        pub(crate) unsafe fn $name(start: u64, size: u64) {
            let line = line_size();
            let end = start.saturating_add(size);
            let mut address = start & !line.wrapping_sub(1);
            if address >= end {
                return barrier::dsb_sy();
            }
            // Bound: the range's size / line size.
            loop {
                // SAFETY: the caller's bytes are mapped, and maintenance by VA loses nothing: the
                // lines are cleaned, never only invalidated.
                unsafe { asm!($text, in(reg) address, options(nostack, preserves_flags)) };
                address = address.wrapping_add(line);
                if address >= end {
                    break;
                }
            }
            barrier::dsb_sy();
        }
    };
}

by_line! {
    /// Cleans and invalidates `size` bytes from the EL2 address `start` to the
    /// point of coherency, and waits for it.
    clean_invalidate_range = "dc civac, {}"
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
