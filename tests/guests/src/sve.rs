//! The registers of SVE, which no compiled code of a guest uses.

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;

use crate::{MAX_CPUS, cpu, read_sysreg, write_sysreg};

/// Bytes of the longest vectors of the architecture.
const LONGEST: usize = 256;
/// Bytes of Z0 to Z31, of P0 to P15 and of FFR with the longest vectors.
const SIZE: usize = 32 * LONGEST + 17 * LONGEST / 8;

/// Everything there is of SVE state, at the length of this moment: vectors, predicates, FFR. The rest
/// is zero.
#[repr(C, align(16))]
#[derive(PartialEq, Eq)]
pub struct Registers {
    bytes: [u8; SIZE],
    /// ZCR_EL1.
    zcr: u64,
}

/// Two copies of the registers for each CPU: a stack has no room for them.
struct Copies([UnsafeCell<[Registers; 2]>; MAX_CPUS]);

// SAFETY: `copies` gives each CPU its own, and once.
unsafe impl Sync for Copies {}

const CLEAR: Registers = Registers {
    bytes: [0; SIZE],
    zcr: 0,
};
static COPIES: Copies = Copies([const { UnsafeCell::new([CLEAR; 2]) }; MAX_CPUS]);

/// Returns this CPU's two copies, for whoever calls this first in the CPU's life.
pub fn copies() -> &'static mut [Registers; 2] {
    // SAFETY: the function that a CPU runs calls this once, and its former life has ended.
    unsafe { &mut *COPIES.0[cpu::index()].get() }
}

global_asm!(include_str!("sve.s"));

impl Registers {
    /// Becomes a pattern for a length in bytes that differs between any two seeds in every vector and
    /// predicate. FFR has its first bits set, as many as the seed says: other values have no defined
    /// effect.
    pub fn fill(&mut self, seed: u64, length: usize, zcr: u64) {
        self.bytes.fill(0);
        self.zcr = zcr;
        let (others, first_fault) = (34 * length, length / 8);
        let mut state = seed << 1 | 1;
        for byte in self.bytes.iter_mut().take(others) {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            *byte = (state >> 56) as u8;
        }
        let ones = seed as usize % (length + 1);
        let ffr = self.bytes.iter_mut().skip(others).take(first_fault);
        for (number, byte) in ffr.enumerate() {
            let ones = ones.saturating_sub(8 * number).min(8);
            *byte = ((1_u16 << ones) - 1) as u8;
        }
    }

    /// Tells whether all are zero but ZCR_EL1.
    pub fn is_clear(&self) -> bool {
        self.bytes.iter().all(|byte| *byte == 0)
    }

    /// Tells whether each byte is that of `other`, or zero.
    pub fn is_at_most(&self, other: &Self) -> bool {
        let mut bytes = self.bytes.iter().zip(&other.bytes);
        bytes.all(|(own, other)| *own == 0 || own == other)
    }

    /// Loads all registers, at the length that ZCR_EL1 gives then.
    pub fn load(&self) {
        write_sysreg!("S3_0_C1_C2_0", self.zcr);
        // SAFETY: reads `self` as far as the vectors are long; compiled code uses no such register.
        unsafe {
            asm!("bl sve_load", inout("x0") &raw const self.bytes => _, out("x1") _, out("x30") _)
        };
    }

    /// Stores all registers as they are.
    pub fn store(&mut self) {
        self.bytes.fill(0);
        // SAFETY: writes `bytes` as far as the vectors are long.
        unsafe {
            asm!("bl sve_store", inout("x0") &raw mut self.bytes => _, out("x1") _, out("x30") _);
        }
        self.zcr = read_sysreg!("S3_0_C1_C2_0");
    }
}

/// Lets this CPU use FP, SIMD and SVE.
pub fn enable() {
    write_sysreg!("cpacr_el1", read_sysreg!("cpacr_el1") | 3 << 20 | 3 << 16);
}

/// Returns the length of vectors in bytes.
pub fn length() -> usize {
    let length: usize;
    // SAFETY: reads a number that depends on ZCR_EL1 alone; if it traps, the vector handles it.
    unsafe {
        asm!(".arch_extension sve", "rdvl {}, #1", inout(reg) 0_usize => length, options(nostack))
    };
    length
}

/// Asks for vectors of a length, by ZCR_EL1.LEN, and returns what the length is then, in bits.
pub fn ask(len: u64) -> usize {
    write_sysreg!("S3_0_C1_C2_0", len);
    cpu::isb();
    8 * length()
}
