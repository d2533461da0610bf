//! Sleep until the virtual timer's interrupt, whose handler's first instruction reads the counter.
//!
//! The guests' common vector saves all registers and calls Rust before any counter is read, which
//! would be part of each latency.

use core::arch::{asm, global_asm};

use test_guests::gic::{self, Version};
use test_guests::write_sysreg;

global_asm!(
    ".section .text.sched, \"ax\"",
    ".macro sched_vectors name, acknowledge, finish:vararg",
    ".balign 2048",
    "\\name:",
    ".set slot, 0",
    ".rept 16",
    ".if slot != 0x280", // IRQ at the current level, with its own stack
    "  b vectors + slot",
    ".else",
    "  mrs x9, cntvct_el0",
    "  \\acknowledge",
    "  msr cntv_ctl_el0, xzr",
    "  \\finish",
    "  eret",
    ".endif",
    "  .balign 128",
    "  .set slot, slot + 128",
    ".endr",
    ".endm",
    // GICC_IAR and GICC_EOIR; ICC_IAR1_EL1 and ICC_EOIR1_EL1.
    "sched_vectors sched_vectors_v2, \"ldr w10, [x14, #0xc]\", str w10, [x14, #0x10]",
    "sched_vectors sched_vectors_v3, \"mrs x10, s3_0_c12_c12_0\", msr s3_0_c12_c12_1, x10",
);

unsafe extern "C" {
    /// VBAR_EL1 has bits 10:0 as zero, hence tables of 2 KiB at multiples of that.
    static sched_vectors_v2: [u8; 2048];
    static sched_vectors_v3: [u8; 2048];
}

/// Takes this CPU's interrupts by the handler of [`until`]. All vectors but that of the IRQ lead
/// back to the common ones, so that a fault is reported as ever.
pub(crate) fn set_vectors() {
    let vectors = match gic::version() {
        Version::V2 => &raw const sched_vectors_v2,
        Version::V3 => &raw const sched_vectors_v3,
    };
    write_sysreg!("vbar_el1", vectors as u64);
}

/// Sleeps in WFI until the timer's interrupt, which is due at `deadline`. Returns the counter at
/// the handler's first instruction.
///
/// Interrupts are masked from the arming to the WFI, which wakes up all the same: an interrupt in
/// between is not missed. X9 is 0 until the handler writes the counter to it: a WFI that ends early
/// is no interrupt. The ISB behind the unmasking makes the CPU take the interrupt before the next
/// instruction masks it again.
pub(crate) fn until(deadline: u64) -> u64 {
    let handler: u64;
    // SAFETY: the handler changes X9 and X10, the sequence the timer alone. Interrupts are masked
    // again at its end.
    unsafe {
        asm!(
            "mov x9, xzr",
            "msr cntv_cval_el0, {deadline}",
            "msr cntv_ctl_el0, {enable}",
            "isb",
            "2: wfi",
            "msr daifclr, #2",
            "isb",
            "msr daifset, #2",
            "cbz x9, 2b",
            deadline = in(reg) deadline,
            enable = in(reg) 1_u64,
            out("x9") handler,
            out("x10") _,
            in("x14") gic::v2::cpu_interface(),
            options(nostack),
        );
    }
    handler
}
