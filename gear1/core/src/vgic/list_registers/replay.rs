//! Replays: a private interrupt whose list register still says all of it is made pending again by
//! one write to that list register.
//!
//! Requirements: G1-GIC-011.

use crate::vgic::types::{Bits, IntId, ListRegisters, VcpuIndex};
use crate::vgic::{Slot, Vcpu, VmGic};

/// A private interrupt of the loaded vCPU in a list register that, once empty, can be filled with
/// the same again without a look at the VM's state: until the vCPU is kicked, or its CPU changes
/// anything else of it.
#[derive(Clone, Copy, Debug)]
pub struct LrReplay {
    /// The list register's bit; 0: none.
    place: u32,
    slot: Slot,
    raw: u64,
}

impl LrReplay {
    /// Tells whether there is nothing.
    pub const fn is_none(&self) -> bool {
        self.place == 0
    }

    /// Returns the INTID.
    #[inline(always)]
    pub fn number(&self) -> u32 {
        self.slot.intid().number()
    }

    /// Returns the sender of an SGI of the GICv2, a bit of its own.
    #[inline(always)]
    pub fn sender(&self) -> u8 {
        1 << (self.slot.source() & 7)
    }

    /// Returns whether this is an SGI by `sender`, which is 0 with a GICv3.
    #[inline(always)]
    pub fn is_sgi_of(&self, sgi: u32, sender: u32) -> bool {
        self.slot.0 & 0x1fff == sgi | sender << Slot::SOURCE
    }

    /// Nothing can be replayed.
    pub const NONE: Self = Self {
        place: 0,
        slot: Slot::FREE,
        raw: 0,
    };

    /// Makes the interrupt pending again, and tells whether that was possible.
    #[inline(always)]
    pub fn apply(&self, lrs: &mut impl ListRegisters) -> bool {
        let is_free = self.place & lrs.empty_mask() != 0;
        if is_free {
            lrs.write_raw(self.place.trailing_zeros() as usize, self.raw);
        }
        is_free
    }
}

impl VmGic {
    /// Returns the replay of a private interrupt of the loaded vCPU: one that stands for a physical
    /// interrupt, or an SGI.
    pub fn replay_of<L: ListRegisters>(&self, vcpu: VcpuIndex, intid: IntId, hw: bool) -> LrReplay {
        let state = self.vcpu(vcpu);
        // Bound: 16 list registers.
        let found = Bits(state.replayable).find(|slot| state.slot(*slot).is_plain(intid, hw));
        match found {
            Some(index) if state.pending_words == 0 => LrReplay {
                place: 1 << (index & 31),
                slot: state.slot(index),
                raw: L::encode(state.slot(index).pending_lr(hw)),
            },
            Some(_) | None => LrReplay::NONE,
        }
    }

    /// Makes the SPI pending again that the vCPU's only list register in use held last, and that the
    /// guest has ended: the usual way of a vCPU that its device or a doorbell wakes again and again.
    /// Returns `false`, with nothing changed, if something else than an edge has come since, for this
    /// SPI or for another one in a list register, or if the CPU that the vCPU has moved to lacks that
    /// list register.
    ///
    /// The state is what [`Word::end`](super::super::word::Word::end) and a new entry into the list
    /// would make of it: the interrupt stays listed and held.
    #[inline(always)]
    pub(super) fn repeat_spi(&mut self, vcpu: VcpuIndex, lrs: &mut impl ListRegisters) -> bool {
        let state = self.vcpu(vcpu);
        if state.used != state.repeatable || state.used & !lrs.all() != 0 {
            return false;
        }
        let (index, raw) = (state.used.trailing_zeros(), state.repeated);
        let (place, bit) = state.slot(index).intid().place();
        if state.stale != 1 << (place & 31) {
            return false;
        }
        let word = &mut self.spi_mut(place).word;
        if word.latch & bit == 0 {
            return false;
        }
        word.latch &= !bit;
        self.vcpu_mut(vcpu).stale = 0;
        lrs.write_raw(index as usize, raw);
        true
    }

    /// Returns `before` if its list-register slot is unchanged and nothing else is pending, else
    /// `NONE`.
    #[inline]
    pub fn revalidate(&self, vcpu: VcpuIndex, before: LrReplay) -> LrReplay {
        let state = self.vcpu(vcpu);
        let is_same = state.slot(before.place.trailing_zeros()).0 == before.slot.0;
        if is_same && state.replayable & before.place != 0 && state.pending_words == 0 {
            before
        } else {
            LrReplay::NONE
        }
    }
}

impl Vcpu {
    /// Fills the empty list register that held the same SGI of the same sender last: the usual way
    /// of SGIs, which changes nothing but the list register.
    #[inline(always)]
    fn replay(&self, intid: IntId, source: u32, lrs: &mut impl ListRegisters) -> bool {
        if self.pending_words != 0 {
            return false;
        }
        // Bound: 16 list registers.
        for index in Bits(self.replayable & lrs.empty_mask()) {
            let slot = self.slot(index);
            if slot.0 & 0x7fff == intid.number() | source << Slot::SOURCE {
                lrs.write(index as usize, slot.pending_lr(false));
                return true;
            }
        }
        false
    }

    /// Does the same for an SGI that another vCPU sent, if that is all that happened.
    #[inline(always)]
    pub(super) fn replay_posted(&mut self, lrs: &mut impl ListRegisters) -> bool {
        let posted = self.word.latch & self.word.listed;
        if self.replayable == 0 || !posted.is_power_of_two() {
            return false;
        }
        // With something replayable, nothing but posted SGIs is stale.
        let sgi = posted.trailing_zeros();
        // None with a GICv3.
        let sources = self.sgi_sources.get(sgi as usize).copied().unwrap_or(0);
        // planted: a repeated SGI of two senders comes from one
        let is_done = sources & sources.wrapping_sub(1) == 0
            && self.replay(IntId::at(0, sgi), sources.trailing_zeros() & 7, lrs);
        if is_done {
            self.word.latch &= !posted;
            self.stale = 0;
            if sources != 0
                && let Some(taken) = self.sgi_sources.get_mut(sgi as usize)
            {
                *taken = 0;
            }
        }
        is_done
    }
}
