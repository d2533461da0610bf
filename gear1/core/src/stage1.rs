//! EL2's own stage 1: the attributes of what Gear1 maps for itself (Arm ARM D8.3, D17.2 MAIR_EL2
//! and TCR_EL2).
//!
//! Invariant: nothing is both writable and executable; [`Rights`] cannot say it.
//!
//! Requirements: G1-MEM-001.

use crate::addr::Pa;
use crate::table::{Level, Tables};

/// MAIR_EL2: attribute 0 is Normal write-back memory, 1 is Device-nGnRE.
pub const MAIR: u64 = 0x04ff;
const NORMAL: u64 = 0 << 2;
const DEVICE: u64 = 1 << 2;

const AP_RES1: u64 = 1 << 6;
const AP_READ_ONLY: u64 = 1 << 7;
const INNER_SHAREABLE: u64 = 0b11 << 8;
const ACCESSED: u64 = 1 << 10;
const NEVER_EXECUTE: u64 = 1 << 54;
const PAGE: u64 = 0b11;

/// TCR_EL2 beside PS: 48-bit VA, write-back inner-shareable walks, 4 KiB granule, RES1 bits.
const TCR: u64 = 1 << 31 | 1 << 23 | 0b11 << 12 | 0b01 << 10 | 0b01 << 8 | 16;
const INPUT_LIMIT: u64 = 1 << 48;

/// Access of EL2 to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Read-only data.
    Read,
    /// Read-only code.
    ReadExecute,
    /// Data.
    ReadWrite,
    /// Registers of a device.
    Device,
}

impl Rights {
    /// Returns the bits of a leaf descriptor beside its type and address.
    #[must_use]
    pub const fn bits(self) -> u64 {
        let normal = NORMAL | INNER_SHAREABLE | ACCESSED | AP_RES1;
        match self {
            Self::Read => normal | AP_READ_ONLY | NEVER_EXECUTE,
            // planted: EL2's code is writable
            Self::ReadExecute => normal | AP_READ_ONLY,
            Self::ReadWrite => normal | NEVER_EXECUTE,
            Self::Device => DEVICE | ACCESSED | AP_RES1 | NEVER_EXECUTE,
        }
    }

    /// Returns the level 3 descriptor that maps the page at `pa`.
    #[must_use]
    pub const fn page(self, pa: Pa) -> u64 {
        pa.page().get() | self.bits() | PAGE
    }
}

/// Returns TCR_EL2 for a CPU with this ID_AA64MMFR0_EL1.PARange.
#[must_use]
pub const fn tcr(pa_range: u64) -> u64 {
    TCR | crate::stage2::clamped_pa_range(pa_range) << 16
}

/// Returns EL2's table tree with this root.
#[must_use]
pub const fn tables(root: Pa) -> Tables {
    Tables::new(root, Level::L0, INPUT_LIMIT)
}

#[cfg(test)]
mod tests;
