//! Ways in which a guest fails, on purpose, under supervision.

use core::arch::{asm, global_asm};

use crate::mmio::read32;
use crate::{cpu, psci, write_sysreg};

/// Nobody's, in every machine of the tests.
const NOWHERE: u64 = 0xf000_0000;

// Vectors whose handlers take an exception each, which is no exit.
global_asm!(
    ".section .text.loop_vectors, \"ax\"",
    ".balign 2048",
    ".global loop_vectors",
    "loop_vectors:",
    ".rept 16",
    ".balign 128",
    "svc #0",
    ".endr",
    ".balign 128",
);

unsafe extern "C" {
    static loop_vectors: u8;
}

/// A way to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An exception whose handler cannot be fetched.
    Crash,
    /// A vCPU spins, with interrupts masked.
    Hang,
    /// The vCPUs wait, with interrupts masked.
    Silence,
    /// Each exception is followed by another one.
    Loop,
    /// Calls without end.
    Storm,
    /// The guest resets itself.
    Reset,
}

impl Fault {
    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Hang => "hang",
            Self::Silence => "silence",
            Self::Loop => "loop",
            Self::Storm => "storm",
            Self::Reset => "reset",
        }
    }

    /// Fails, with a mark in X28.
    pub fn commit(self, mark: u64) -> ! {
        // SAFETY: X28 is anybody's; the mark is found in the last registers of this life, as
        // nothing below calls a function that keeps a value there.
        unsafe { asm!("mov x28, {}", in(reg) mark, out("x28") _, options(nomem, nostack)) };
        match self {
            Self::Crash => {
                write_sysreg!("vbar_el1", NOWHERE);
                read32(NOWHERE);
            }
            Self::Hang => spin(mark),
            Self::Silence => {}
            Self::Loop => {
                write_sysreg!("vbar_el1", &raw const loop_vectors as u64);
                read32(NOWHERE);
            }
            Self::Storm => loop {
                psci::gear2_nop();
            },
            Self::Reset => psci::system_reset(),
        }
        cpu::halt();
    }
}

/// Turns the VM off, with a mark in X28.
pub fn turn_off(mark: u64) -> ! {
    // SAFETY: as in `Fault::commit`.
    unsafe { asm!("mov x28, {}", in(reg) mark, out("x28") _, options(nomem, nostack)) };
    psci::system_off();
    cpu::halt()
}

/// Spins, with interrupts masked and a mark in X28.
pub fn spin(mark: u64) -> ! {
    cpu::mask_irqs();
    loop {
        // SAFETY: it changes nothing.
        unsafe { asm!("yield", in("x28") mark, options(nomem, nostack)) };
    }
}
