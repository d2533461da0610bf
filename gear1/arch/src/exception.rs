//! Registers of the exception that brought this CPU to EL2, and changes of where it returns to.
//!
//! Invariant: the return is to EL0 or EL1. The hardware writes SPSR_EL2 with the level that
//! trapped, which is no higher; `world` writes it under conditions of its own.
//!
//! Requirements: G1-FLT-001, G1-RUN-003.

use gear1_core::syndrome::{Entry, INSTRUCTION, stepped_over};

use crate::cpu::hcr;
use crate::regs::{self, Readable as _, Writeable as _};
use crate::regs::{ELR_EL1, ESR_EL1, SPSR_EL1, VBAR_EL1};

macro_rules! read_only {
    ($($(#[$doc:meta])* $name:ident;)+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            #[expect(non_camel_case_types, reason = "the register's name in the Arm ARM")]
            pub struct $name;

            impl $name {
                /// Returns the register's value.
                #[inline(always)]
                pub fn get(self) -> u64 {
                    regs::$name.get()
                }
            }
        )+
    };
}

read_only! {
    /// Syndrome of the exception.
    ESR_EL2;
    /// Where the exception returns to.
    ELR_EL2;
    /// Virtual address of a fault.
    FAR_EL2;
    /// Page of a stage-2 fault, as an intermediate physical address.
    HPFAR_EL2;
    /// PSTATE that the exception returns with.
    SPSR_EL2;
}

/// Steps over the instruction that trapped.
#[inline(always)]
pub fn skip_instruction() {
    regs::ELR_EL2.set(regs::ELR_EL2.get().wrapping_add(INSTRUCTION));
    regs::SPSR_EL2.set(stepped_over(regs::SPSR_EL2.get()));
}

/// Goes back to the call, HVC or SMC, that the PC has left behind: it is executed once more.
pub fn repeat_instruction() {
    regs::ELR_EL2.set(regs::ELR_EL2.get().wrapping_sub(INSTRUCTION));
}

/// Makes the guest that trapped take a synchronous exception with the syndrome `esr` at EL1.
pub fn take_at_el1(entry: Entry, esr: u64) {
    ESR_EL1.set(esr);
    ELR_EL1.set(regs::ELR_EL2.get());
    SPSR_EL1.set(regs::SPSR_EL2.get());
    regs::ELR_EL2.set(VBAR_EL1.get().wrapping_add(entry.vector_offset()));
    regs::SPSR_EL2.set(entry.pstate());
}

/// Makes a virtual SError pending for the guest that runs.
pub(crate) fn pend_serror() {
    regs::HCR_EL2.set(regs::HCR_EL2.get() | hcr::VSE);
}
