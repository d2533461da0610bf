//! The state of 32 interrupts as bitmaps: one vCPU's SGIs and PPIs, or 32 SPIs.
//!
//! Invariants: `in_list`, `forced` and `again` are subsets of `listed`. What a
//! list register holds as pending through `in_list` is not in `latch` too,
//! unless it became pending once more since.
//!
//! Requirements: G1-GIC-003, G1-GIC-005.

use super::types::{Bits, IntId, Lr, LrState, VcpuIndex};

/// Priority bits that exist: 32 levels, as list registers have at least.
pub(super) const PRIORITY_BITS: u8 = 0xf8;
/// Number of priority bit planes.
const PLANES: usize = PRIORITY_BITS.count_ones() as usize;

/// Forwarded groups: all ones or all zeroes for each group.
#[derive(Clone, Copy)]
pub(super) struct Gate {
    pub(super) group0: u32,
    pub(super) group1: u32,
}

impl Gate {
    pub(super) const SHUT: Self = Self {
        group0: 0,
        group1: 0,
    };
}

/// Returns `word` with these bits set, or cleared.
#[inline(always)]
pub(super) const fn with(word: u32, bits: u32, set: bool) -> u32 {
    if set { word | bits } else { word & !bits }
}

/// State of 32 interrupts, one bit each.
#[derive(Clone, Copy)]
pub(super) struct Word {
    /// Set by ISENABLER.
    pub(super) enabled: u32,
    /// Pending by an edge, an SGI, a write to ISPENDR or a physical interrupt.
    pub(super) latch: u32,
    /// Input line of an emulated device is high.
    pub(super) line: u32,
    /// Active, as far as Gear1 knows.
    pub(super) active: u32,
    /// Edge-triggered, else level-sensitive.
    pub(super) edge: u32,
    /// Group 1, else Group 0.
    pub(super) group1: u32,
    /// In a list register of a vCPU.
    pub(super) listed: u32,
    /// The latch was moved into the list register, and not cleared since.
    pub(super) in_list: u32,
    /// `active` was set through the distributor and overrides the list register.
    pub(super) forced: u32,
    /// The physical interrupt of the same INTID is active on behalf of this one.
    pub(super) hw: u32,
    /// The physical interrupt arrived again before the previous one's list register was folded.
    pub(super) again: u32,
    /// The physical interrupt is active without a virtual one: the caller must deactivate it.
    pub(super) ended: u32,
    pub(super) priority: [u8; 32],
    /// Priorities as bit planes, the highest bit first: bit n of each plane belongs to interrupt n.
    /// A search for the best of many takes a few steps (G1-RUN-011).
    planes: [u32; PLANES],
}

impl Word {
    pub(super) const fn new(edge: u32) -> Self {
        Self {
            enabled: 0,
            latch: 0,
            line: 0,
            active: 0,
            edge,
            group1: 0,
            listed: 0,
            in_list: 0,
            forced: 0,
            hw: 0,
            again: 0,
            ended: 0,
            priority: [0; 32],
            planes: [0; PLANES],
        }
    }

    /// Returns the level-sensitive ones whose line is high.
    #[inline]
    pub(super) fn raised(&self) -> u32 {
        self.line & !self.edge
    }

    /// Returns what ISPENDR shows.
    pub(super) fn pending(&self) -> u32 {
        self.latch | self.in_list | self.raised()
    }

    /// Returns the interrupts that the distributor forwards once they are pending.
    #[inline]
    pub(super) fn open(&self, gate: Gate) -> u32 {
        // planted: a disabled interrupt is delivered
        self.enabled & (self.group1 & gate.group1 | !self.group1 & gate.group0)
    }

    /// Returns the interrupts that belong into a list register as pending.
    #[inline]
    pub(super) fn waiting(&self, gate: Gate) -> u32 {
        (self.latch | self.raised()) & self.open(gate) & !self.active & !self.listed
    }

    /// Returns the interrupts that belong into a list register as active.
    #[inline]
    pub(super) fn unlisted_active(&self) -> u32 {
        self.active & !self.listed
    }

    #[inline]
    pub(super) fn priority_at(&self, bit: u32) -> u8 {
        self.priority.get(bit as usize).copied().unwrap_or(0)
    }

    /// Sets a priority.
    pub(super) fn set_priority(&mut self, number: usize, priority: u8) {
        let priority = priority & PRIORITY_BITS;
        if let Some(place) = self.priority.get_mut(number) {
            *place = priority;
        }
        let bit = 1_u32.wrapping_shl(number as u32);
        let mut rest = priority;
        // Bound: 5 bits of a priority.
        for plane in &mut self.planes {
            *plane = with(*plane, bit, rest & 0x80 != 0);
            rest = rest.wrapping_shl(1);
        }
    }

    /// Returns which of these interrupts has the highest priority, of equal ones the first.
    #[inline]
    pub(super) fn best(&self, mut among: u32) -> Option<u32> {
        // Bound: 5 bits of a priority.
        for plane in &self.planes {
            // A priority is the higher the lower its number is.
            // planted: the best of many is the worst
            let better = among & !plane;
            among = if better != 0 { better } else { among };
        }
        (among != 0).then(|| among.trailing_zeros())
    }

    /// Notes that a list register holds the interrupt at `bit`, which waits, as pending.
    #[inline(always)]
    pub(super) fn take_into_list(&mut self, bit: u32) {
        self.listed |= bit;
        self.in_list |= self.latch & bit;
        self.latch &= !bit;
    }

    /// Returns the list register for an interrupt of this word that is pending and not active, and
    /// is no SGI of a GICv2.
    #[inline(always)]
    pub(super) fn pending_lr(&self, intid: IntId) -> Lr {
        let (_, bit) = intid.place();
        let hw = self.hw & bit != 0;
        Lr {
            intid,
            priority: self.priority_at(intid.number() & 31),
            state: LrState::Pending,
            hw,
            eoi: !hw && self.edge & bit == 0,
            group1: self.group1 & bit != 0,
            source: 0,
        }
    }

    /// Takes over what a list register says about the interrupt at `bit`.
    #[inline(always)]
    pub(super) fn fold_lr_state(&mut self, bit: u32, pending: bool, active: bool, linked: bool) {
        if !pending {
            self.in_list &= !bit;
        }
        if self.forced & bit == 0 {
            self.active = with(self.active, bit, active);
        }
        self.forced &= !bit;
        if self.hw & bit != 0 {
            if linked && !pending && !active {
                // The guest's EOI ended the physical interrupt too; it may have come again.
                self.hw &= self.again | !bit;
            }
            self.again &= !bit;
            if (self.active | self.latch | self.in_list) & bit == 0 {
                self.ended |= self.hw & bit;
                self.hw &= !bit;
            }
        }
    }

    /// Removes the interrupt at `bit` from its list register, which became empty. Returns whether
    /// the interrupt is due again.
    #[inline(always)]
    pub(super) fn end(&mut self, bit: u32, linked: bool) -> bool {
        self.listed &= !bit;
        if (self.forced | self.hw) & bit == 0 {
            self.in_list &= !bit;
            self.active &= !bit;
        } else {
            self.fold_lr_state(bit, false, false, linked);
        }
        (self.active | self.latch | self.raised()) & bit != 0
    }

    /// Releases the physical interrupts of `bits` that a register write left without a virtual
    /// one: they go to `ended`.
    pub(super) fn release_unbacked(&mut self, bits: u32) {
        let unbacked = bits & self.hw & !(self.listed | self.active | self.latch);
        let withdrawn = bits & self.again & !self.latch;
        self.hw &= !unbacked;
        self.again &= !withdrawn;
        // planted: a physical interrupt stays active after its end
        self.ended |= unbacked | withdrawn;
    }

    /// Takes one bit out of `ended`.
    pub(super) fn take_ended(&mut self) -> Option<u32> {
        let bit = Bits(self.ended).next();
        self.ended &= self.ended.wrapping_sub(1);
        bit
    }
}

/// 32 SPIs and whom they concern.
#[derive(Clone, Copy)]
pub(super) struct Spi {
    pub(super) word: Word,
    /// Per vCPU: the SPIs routed to it.
    pub(super) targets: [u32; 8],
    /// Per vCPU: the SPIs in its list registers, or active on it.
    pub(super) held: [u32; 8],
}

impl Spi {
    pub(super) const NEW: Self = Self {
        word: Word::new(0),
        targets: [0; 8],
        held: [0; 8],
    };

    pub(super) fn targets(&self, vcpu: VcpuIndex) -> u32 {
        *vcpu.select(&self.targets)
    }

    pub(super) fn held(&self, vcpu: VcpuIndex) -> u32 {
        *vcpu.select(&self.held)
    }

    pub(super) fn set_held(&mut self, vcpu: VcpuIndex, bit: u32, held: bool) {
        let mask = vcpu.select_mut(&mut self.held);
        *mask = with(*mask, bit, held);
    }

    /// Returns a mask over the vCPUs to which the SPI at `bit` is routed.
    pub(super) fn target_mask(&self, bit: u32) -> u8 {
        let mut mask = 0;
        // Bound: 8 vCPUs.
        for (vcpu, targets) in (0..8).zip(&self.targets) {
            if targets & bit != 0 {
                mask |= 1 << (vcpu & 7);
            }
        }
        mask
    }

    /// Routes the SPI at `bit` to the vCPUs in `mask`.
    pub(super) fn set_target_mask(&mut self, bit: u32, mask: u8) {
        // Bound: 8 vCPUs.
        for (vcpu, targets) in (0..8).zip(&mut self.targets) {
            *targets = with(*targets, bit, mask >> (vcpu & 7) & 1 != 0);
        }
    }
}
