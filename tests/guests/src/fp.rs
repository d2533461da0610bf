//! The FP/SIMD registers, which no compiled code of a guest uses.

use core::arch::{asm, global_asm};

use crate::{read_sysreg, write_sysreg};

/// Everything there is of FP/SIMD state.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Q0 to Q31.
    pub q: [u128; 32],
    /// FPCR.
    pub fpcr: u64,
    /// FPSR.
    pub fpsr: u64,
}

global_asm!(include_str!("fp.s"));

impl Registers {
    /// Returns a pattern that differs between any two seeds in every register.
    pub fn pattern(seed: u64) -> Self {
        let mut q = [0; 32];
        let mut state = u128::from(seed) << 1 | 1;
        for value in &mut q {
            state = state.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645);
            *value = state ^ state >> 64;
        }
        // Rounding mode and default NaN; cumulative flags and saturation.
        Self {
            q,
            fpcr: (seed & 3) << 22 | (seed & 4) << 23,
            fpsr: seed & 0x9f | 1 << 27,
        }
    }

    /// Loads all registers.
    pub fn load(&self) {
        // SAFETY: reads all of `self`; compiled code uses no FP/SIMD register.
        unsafe {
            asm!("bl fp_load", inout("x0") self => _, out("x1") _, out("x2") _, out("x30") _)
        };
    }

    /// Returns all registers as they are.
    pub fn current() -> Self {
        let mut registers = Self {
            q: [0; 32],
            fpcr: 0,
            fpsr: 0,
        };
        // SAFETY: writes all of `registers` and no more.
        unsafe {
            asm!("bl fp_store", inout("x0") &raw mut registers => _, out("x1") _, out("x2") _, out("x30") _);
        }
        registers
    }
}

/// Lets this CPU use FP/SIMD.
pub fn enable() {
    write_sysreg!("cpacr_el1", read_sysreg!("cpacr_el1") | 3 << 20);
}
