//! Faults that a guest takes: whether the guest can continue, and the level at which its own walk
//! ended.
//!
//! A guest *cannot go on* when the exceptions that Gear1 injects lead back to the instruction that
//! caused them: the handler at EL1's vector is not mapped, or repeats the access. A CPU without a
//! hypervisor would repeat the loop for ever; Gear1 stops the VM and reports the fault. Loops that
//! do not involve Gear1 (stage-1 faults alone) are not detected here.
//!
//! Requirements: G1-FLT-004 (a guest that cannot go on), G1-FLT-002 (the level of a walk).
//! G1-FLT-003.

use crate::syndrome::Entry;

/// Bytes of a vector.
const VECTOR_SIZE: u64 = 0x80;
/// Most consecutive faults of one instruction of the handler.
pub const NESTED_LIMIT: u32 = 16;

/// The last exception that Gear1 gave a vCPU, if it came from inside the vector that it was given
/// to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nesting {
    pc: u64,
    count: u32,
}

impl Nesting {
    /// No exception yet.
    pub const NONE: Self = Self { pc: 0, count: 0 };

    /// Notes that the instruction at `pc` causes an exception, which enters EL1 as `entry` says
    /// with vectors at `vbar`, and tells whether the guest cannot go on. `fetch`: the
    /// instruction itself could not be fetched, so nothing of the handler ran.
    pub const fn note(&mut self, pc: u64, vbar: u64, entry: Entry, fetch: bool) -> bool {
        let offset = pc.wrapping_sub(vbar.wrapping_add(entry.vector_offset()));
        if entry.is_from_el0() || offset >= VECTOR_SIZE {
            *self = Self::NONE;
            return false;
        }
        if self.pc != pc {
            *self = Self { pc, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.is_stuck(pc) || fetch && offset == 0
    }

    /// Tells whether the instruction at `pc` has faulted too often in a row.
    pub const fn is_stuck(&self, pc: u64) -> bool {
        // planted: a guest faults for ever
        self.pc == pc && self.count >= NESTED_LIMIT
    }
}

/// Bits of a virtual address that stage 1 translates, and bits of a page, as TCR_EL1 says for the
/// half of the address space that `va` is in (Arm ARM D24.2.151).
const fn shape(tcr: u64, va: u64) -> (u64, u64) {
    let high = va & 1 << 55 != 0;
    let (size, granule) = if high {
        (tcr >> 16, tcr >> 30)
    } else {
        (tcr, tcr >> 14)
    };
    // TG0 and TG1 name the granules differently.
    let page = match (high, granule & 3) {
        (false, 1) | (true, 3) => 16,
        (false, 2) | (true, 1) => 14,
        _ => 12,
    };
    (64_u64.wrapping_sub(size & 0x3f), page)
}

/// Returns the level of the stage-1 walk for `va` that reached for the table at `ipa` in vain.
///
/// The level is exact for the first table. The guest's tables tell the others apart, which
/// Gear1 does not read: the result is then the level behind the first.
pub const fn walk_level(tcr: u64, ttbr: [u64; 2], va: u64, ipa: u64) -> u8 {
    let (bits, page) = shape(tcr, va);
    let resolved = bits.saturating_sub(page);
    // A table of 8-byte descriptors resolves three bits less than a page has.
    let levels = match page {
        16 => resolved.div_ceil(13),
        14 => resolved.div_ceil(11),
        _ => resolved.div_ceil(9),
    };
    let first = 4_u64.saturating_sub(levels);
    let [low, high] = ttbr;
    let root = if va & 1 << 55 != 0 { high } else { low };
    // An ASID stands above the address, CnP below.
    let in_root = ((root ^ ipa) & 0xffff_ffff_f000).wrapping_shr(page as u32) == 0;
    // planted: a walk's abort has the second table's level
    let level = if in_root {
        first
    } else {
        first.wrapping_add(1)
    };
    if level < 3 { level as u8 } else { 3 }
}

#[cfg(test)]
mod tests;
