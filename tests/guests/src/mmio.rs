//! Accesses to device registers: one load or store each, in a form that has a valid syndrome.
//!
//! A compiler may make two accesses one pair, or add a write-back, for `read_volatile` as well. A
//! data abort of such an instruction has no valid syndrome (ESR_EL2.ISV is 0): EL2 learns neither
//! register nor size, and cannot emulate the device. Linux has inline assembly in its accessors
//! (`__raw_readl`) likewise.

use core::arch::asm;

/// No clobber of flags and no `nomem`: the compiler must keep accesses in their order, and reload
/// what a device may write. Barriers are the caller's. A skipped load must leave a defined value,
/// so the register is 0 before.
macro_rules! access {
    ($read:ident, $write:ident, $type:ty, $load:literal, $store:literal) => {
        #[doc = concat!("Reads a `", stringify!($type), "` at `address`.")]
        #[inline(always)]
        pub fn $read(address: u64) -> $type {
            let value: u64;
            // SAFETY: a load by itself changes nothing of Rust's; if it aborts, the vector handles
            // it.
            unsafe {
                asm!($load, value = inout(reg) 0_u64 => value, at = in(reg) address, options(nostack));
            }
            value as $type
        }

        #[doc = concat!("Writes a `", stringify!($type), "` to `address`, a device's register.")]
        #[inline(always)]
        pub fn $write(address: u64, value: $type) {
            // SAFETY: callers name registers, or memory that Rust owns nothing in; if it aborts,
            // the vector handles it.
            unsafe {
                asm!($store, value = in(reg) u64::from(value), at = in(reg) address, options(nostack));
            }
        }
    };
}

// The address has a register alone and no offset: FAR_EL1 is then the address that a test names.
access!(
    read8,
    write8,
    u8,
    "ldrb {value:w}, [{at}]",
    "strb {value:w}, [{at}]"
);
access!(
    read16,
    write16,
    u16,
    "ldrh {value:w}, [{at}]",
    "strh {value:w}, [{at}]"
);
access!(
    read32,
    write32,
    u32,
    "ldr {value:w}, [{at}]",
    "str {value:w}, [{at}]"
);
access!(
    read64,
    write64,
    u64,
    "ldr {value}, [{at}]",
    "str {value}, [{at}]"
);
