//! The distributor and redistributors as a real-time VM with pass-through sees them: which physical
//! fields an access is about, which of them are the VM's, and whom its SGIs reach.
//!
//! Identification, control, groups and routes are the virtual GIC's; enabled, pending and active
//! bits and priorities are the physical GIC's, cut to the VM's own interrupts. Triggers are set at
//! boot and read-only. Nothing of a redistributor but those fields is reached: a guest's LPI tables
//! would let it write to any memory.
//!
//! Requirements: G1-RT-003 (only its own INTIDs), G1-RT-004 (SGIs to its own CPUs only).

use super::fields::{BYTE, WORD};
use super::types::{GicVersion, IntId, Kicks, VcpuIndex};
use super::{VmGic, everybody, sgi, v2};

#[cfg(test)]
mod tests;

/// SGIs: all are the VM's on its own CPUs.
const SGIS: core::ops::Range<u32> = 0..16;
/// PPIs of the EL1 timers: virtual and physical.
const TIMERS: [u32; 2] = [27, 30];
const SGI_FRAME: u64 = 0x1_0000;

/// Target of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// The virtual GIC alone.
    Virtual,
    /// Nothing: reads as zero, ignores writes.
    Nothing,
    /// Physical fields.
    Physical(Fields),
    /// A GICv2's SGI register.
    SendSgi,
}

/// Fields of equal width in one register, one for each INTID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// The INTID of the lowest field.
    pub first: u32,
    /// Bits of a field: 1, 2 or 8.
    pub bits: u32,
    /// Number of fields that the access covers.
    pub count: u32,
    /// Offset in the distributor, or in the SGI frame.
    pub offset: u64,
    /// Whether the guest may change them.
    pub writable: bool,
}

impl Fields {
    const fn decode(offset: u64, size_log2: u8) -> Option<Self> {
        let word = offset & 3 == 0 && size_log2 == WORD;
        let at = offset as u32;
        let (first, bits, count, writable) = match offset {
            0x100..=0x3ff if word => ((at & 0x7f).wrapping_mul(8), 1, 32, true),
            0x400..=0x7ff if word => (at & 0x3ff, 8, 4, true),
            0x400..=0x7ff if size_log2 == BYTE => (at & 0x3ff, 8, 1, true),
            0xc00..=0xcff if word => ((at & 0xff).wrapping_mul(4), 2, 16, false),
            _ => return None,
        };
        Some(Self {
            first,
            bits,
            count,
            offset,
            writable,
        })
    }

    /// Returns a mask over the fields of INTIDs that are the VM's. `owned`: tells of an SPI, and of
    /// the PMU's PPI.
    pub fn mask(&self, owned: impl Fn(u32) -> bool) -> u32 {
        let field = 1_u32.wrapping_shl(self.bits).wrapping_sub(1);
        let mut mask = 0;
        // Bound: 32 fields of a register.
        for number in 0..self.count {
            let intid = self.first.wrapping_add(number);
            // Bound: 2 timers.
            let private = SGIS.contains(&intid) || TIMERS.contains(&intid);
            // planted: with pass-through every interrupt is the VM's
            // planted: no longer: a real-time VM has its own interrupts only
            if private || owned(intid) {
                mask |= field.wrapping_shl(number.wrapping_mul(self.bits));
            }
        }
        mask
    }
}

/// Returns the target of an access to the distributor.
pub fn distributor(version: GicVersion, offset: u64, size_log2: u8) -> Behind {
    let routes = match version {
        GicVersion::V2 => 0x800..0xc00,
        GicVersion::V3 => 0x6000..0x8000,
    };
    match Fields::decode(offset, size_log2) {
        // With affinity routing, SGIs and PPIs are in the redistributors only.
        Some(fields) if version == GicVersion::V3 && fields.first < 32 => Behind::Nothing,
        Some(fields) => Behind::Physical(fields),
        None if version == GicVersion::V2 && offset == v2::SGIR => Behind::SendSgi,
        None if version == GicVersion::V2 && (v2::SGIR..=v2::SPENDSGIR_END).contains(&offset) => {
            Behind::Nothing
        }
        None if (0x100..0xf00).contains(&offset) && !routes.contains(&offset) => Behind::Nothing,
        None => Behind::Virtual,
    }
}

/// Returns the target of an access to a redistributor.
pub fn redistributor(offset: u64, size_log2: u8) -> Behind {
    if offset < SGI_FRAME {
        return Behind::Virtual;
    }
    let offset = offset & (SGI_FRAME - 1);
    match Fields::decode(offset, size_log2) {
        Some(fields) if fields.first < 32 => Behind::Physical(fields),
        Some(_) => Behind::Nothing,
        None if offset < 0x100 => Behind::Virtual,
        None => Behind::Nothing,
    }
}

/// Returns the SPIs that a write to the distributor may have routed anew: the first, and how many.
pub fn routed(version: GicVersion, offset: u64, size_log2: u8) -> Option<(u32, u32)> {
    match (version, offset) {
        (GicVersion::V2, 0x820..=0xbff) => {
            let count = if size_log2 == WORD { 4 } else { 1 };
            Some((offset as u32 & 0x3ff, count))
        }
        (GicVersion::V3, 0x6100..=0x7fd7) => Some(((offset >> 3) as u32 & 0x3ff, 1)),
        (GicVersion::V2 | GicVersion::V3, _) => None,
    }
}

impl VmGic {
    /// Returns the lowest vCPU that an SPI is routed to.
    pub fn route(&self, intid: IntId) -> Option<VcpuIndex> {
        let (index, bit) = intid.place();
        if index == 0 || !self.exists(index) {
            return None;
        }
        let mask = self.spi(index).target_mask(bit);
        VcpuIndex::new(mask.trailing_zeros() as usize)
    }
}

/// Returns the vCPUs, of `vcpu_count`, that a write to ICC_SGI1R_EL1 by `from` addresses, and the
/// SGI.
pub fn addressed(vcpu_count: u8, from: VcpuIndex, value: u64) -> (Kicks, u32) {
    let (targets, intid) = sgi::sgi_targets(everybody(vcpu_count), from, value);
    // planted: an SGI of a real-time VM to nobody goes to its first vCPU
    (Kicks::from_mask(targets), intid.number())
}

/// Returns the vCPUs, of `vcpu_count`, that a write to GICD_SGIR by `from` addresses, and the SGI.
pub fn addressed_v2(vcpu_count: u8, from: VcpuIndex, value: u32) -> (Kicks, u32) {
    let targets = v2::sgir_targets(everybody(vcpu_count), from, value);
    (Kicks::from_mask(targets), value & 15)
}
