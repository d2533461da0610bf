//! Core files of guests: an ELF file (ET_CORE) with the registers of each vCPU and the guest's RAM,
//! as gdb and `crash` open it.
//!
//! Owns: what the parts of such a file are: headers and notes ([`elf`]), the virtual addresses of the
//! guest's kernel ([`translation`]), and what that kernel says of itself ([`vmcoreinfo`]).

use gear1_abi::call::vcpu_reg;

pub mod elf;
#[cfg(test)]
mod tests;
pub mod translation;
pub mod vmcoreinfo;

/// Bytes of a page, on whose multiples the RAM and its parts begin.
pub const PAGE: u64 = 0x1000;
/// Registers of a vCPU, by the numbers of [`vcpu_reg`].
pub type Registers = [u64; vcpu_reg::COUNT];

/// FP and SIMD registers of a vCPU, from [`vcpu_reg::FP`] on.
pub type FpRegisters = [u64; vcpu_reg::FP_COUNT];

/// A part of the RAM at an address of the guest's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Address at which gdb finds it.
    pub va: u64,
    /// Guest-physical address.
    pub pa: u64,
    /// Bytes.
    pub size: u64,
}
