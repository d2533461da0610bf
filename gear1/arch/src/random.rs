//! The CPU's source of random numbers (FEAT_RNG, Arm ARM D23.2, RNDRRS).
//!
//! RNDRRS, and not RNDR: RNDR gives the next number of a generator that reseeds itself at a rate
//! that is the implementation's, while before each read of RNDRRS it is reseeded from the true
//! source. What TRNG_RND gives has to be conditioned entropy (Arm DEN 0098).
//!
//! Requirements: G1-CPU-016.

use core::arch::asm;

use crate::regs::{ID_AA64ISAR0_EL1, ISAR0, Readable as _};

/// Tells whether this CPU has the source. On one that has none a read is UNDEFINED, at EL2 as well.
#[must_use]
pub fn exists() -> bool {
    ISAR0::RNDR.is_set(ID_AA64ISAR0_EL1.get())
}

/// Reads 64 bits. `None`: the CPU has none within the time that it gives itself.
///
/// # Safety
///
/// [`exists`] holds on this CPU.
#[must_use]
pub unsafe fn reseeded() -> Option<u64> {
    let (value, is_valid): (u64, u64);
    // SAFETY: MRS of RNDRRS (S3_3_C2_C4_1), which exists by the caller's condition, touches no
    // memory. It sets NZCV to 0b0100 without a number, and to 0b0000 with one: `ne` is Z clear.
    unsafe {
        asm!("mrs {}, S3_3_C2_C4_1", "cset {}, ne", out(reg) value, out(reg) is_valid,
            options(nomem, nostack));
    }
    (is_valid != 0).then_some(value)
}
