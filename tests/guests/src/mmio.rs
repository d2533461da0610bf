//! Accesses to device registers: one load or store each, in a form that has a valid syndrome.

use core::arch::asm;

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
