//! Exception vectors for a Gear2 at EL1, where `gear1_abi::layout::gear2::VECTORS` says.
//!
//! Gear2 has no exceptions: each one is a failure, which Gear1 gets with ELR_EL1 in X0 and ESR_EL1
//! in X1.

use gear1_abi::call::number::FATAL;

core::arch::global_asm!(
    ".pushsection .vectors, \"ax\"",
    ".balign 0x800",
    ".rept 16",
    ".balign 0x80",
    "mrs x0, elr_el1",
    "mrs x1, esr_el1",
    "hvc #{fatal}",
    "b .",
    ".endr",
    ".popsection",
    fatal = const FATAL,
);
