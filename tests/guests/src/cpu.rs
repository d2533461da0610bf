//! System registers, hints and interrupt masking of the CPU that runs.

use core::arch::asm;

/// Reads a system register by its name or `S<op0>_<op1>_<Cn>_<Cm>_<op2>`; 0 if the read is skipped
/// by [`crate::exception::catch`].
#[macro_export]
macro_rules! read_sysreg {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: reading a register changes no memory; if it traps, the vector handles it.
        unsafe {
            core::arch::asm!(
                concat!("mrs {}, ", $name),
                inout(reg) 0_u64 => value,
                options(nostack),
            );
        }
        value
    }};
}

/// Writes a system register by its name or encoding, and synchronizes.
#[macro_export]
macro_rules! write_sysreg {
    ($name:literal, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: no test writes a register that moves memory under running code; if it traps, the
        // vector handles it.
        unsafe {
            core::arch::asm!(concat!("msr ", $name, ", {}"), "isb", in(reg) value, options(nostack));
        }
    }};
}

macro_rules! instruction {
    ($(#[$doc:meta])* $name:ident, $text:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name() {
            // SAFETY: has no operands; orders or delays what stands around it, or lets interrupts
            // in, whose vector keeps all registers.
            unsafe { asm!($text, options(nostack)) }
        }
    };
}

instruction!(
    /// Lets another CPU of the emulator, or another hardware thread, go on.
    relax, "yield"
);
instruction!(
    /// Waits for an interrupt, masked or not.
    wfi, "wfi"
);
instruction!(
    /// Waits for an event.
    wfe, "wfe"
);
instruction!(
    /// Sends an event to all CPUs.
    sev, "sev"
);
instruction!(
    /// Takes interrupts from here on.
    unmask_irqs, "msr daifclr, #2"
);
instruction!(
    /// Takes no interrupts from here on.
    mask_irqs, "msr daifset, #2"
);
instruction!(
    /// Synchronizes the instruction stream.
    isb, "isb"
);
instruction!(
    /// Completes all memory accesses.
    dsb, "dsb sy"
);

/// Returns the index that this CPU was started with.
pub fn index() -> usize {
    read_sysreg!("tpidr_el1") as usize
}

/// Waits with YIELD until `condition` holds.
pub fn wait_until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        relax();
    }
}

/// Sleeps in WFI and takes interrupts until `condition` holds, and leaves them masked. They are
/// masked between the check and WFI too, which wakes up all the same (Arm ARM, "Wait for
/// Interrupt"): one that came in between would be handled, and the wait for it would not end.
pub fn sleep_until(mut condition: impl FnMut() -> bool) {
    mask_irqs();
    while !condition() {
        wfi();
        unmask_irqs();
        isb();
        mask_irqs();
    }
}

/// Does nothing for ever.
pub fn halt() -> ! {
    loop {
        mask_irqs();
        wfi();
    }
}

/// Runs `body` with the MMU and the data cache off; every access is then one to Device memory.
pub fn without_mmu<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: the map is the identity, and the cache is written back before it is turned off.
    unsafe { asm!("bl mmu_off", out("x0") _, out("x1") _, out("x2") _, out("x30") _) };
    let result = body();
    // SAFETY: the tables that were valid at boot still are.
    unsafe { asm!("bl mmu_on", out("x2") _, out("x30") _) };
    result
}

/// The `other_cpu` of a guest that turns none on.
pub fn ignore(_cpu: usize) {}
