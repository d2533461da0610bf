//! List registers: what of a vCPU's interrupts they hold while it is loaded.
//!
//! G1-GIC-007: what deserves a list register most has one. That is, with more
//! candidates than list registers: active interrupts by priority before pending
//! ones by priority, but one list register is left to the pending ones. The
//! rest is waited for with the maintenance interrupt.
//!
//! Nothing is lost when the guest acknowledges or ends an interrupt while
//! another CPU changes the same one: the latch of a listed interrupt is apart
//! from what the list register holds ([`Word`](super::word::Word)).

use super::types::{
    Bits, GicVersion, IntId, Kicks, ListRegisters, Lr, LrState, Maintenance, VcpuIndex,
};
use super::{MAX_LRS, Slot, VmGic};

/// Pending or active: what a candidate wants a list register for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Active,
    Pending,
}

/// The rank of an interrupt among those of its kind: priority, then INTID; lower is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank(u32);

impl Rank {
    fn new(priority: u8, intid: IntId) -> Self {
        Self(u32::from(priority) << 16 | intid.number())
    }

    fn intid(self) -> IntId {
        IntId::from_low_bits(self.0 as u16)
    }
}

impl VmGic {
    /// Brings the loaded vCPU's list registers up to date: after a kick, on the maintenance
    /// interrupt, after loading, and after a call that kicked the vCPU itself.
    ///
    /// Returns kicks for others only: an interrupt that left this vCPU may be due elsewhere.
    pub fn flush(&mut self, vcpu: VcpuIndex, lrs: &mut impl ListRegisters) -> Kicks {
        let mut kicks = self.reap(vcpu, lrs);
        for index in Bits(self.vcpu(vcpu).used) {
            kicks = kicks.and(self.refresh(vcpu, index, lrs));
        }
        let state = self.vcpu(vcpu);
        if state.hint != 0 || state.maintenance != Maintenance::default() {
            kicks = kicks.and(self.fill(vcpu, lrs));
        }
        kicks.without(vcpu)
    }

    /// Learns from the loaded vCPU's list registers what the guest acknowledged and ended; changes
    /// none. Comes before [`deliverable`](Self::deliverable), and before an access to a register
    /// that [`shows_list_registers`](super::shows_list_registers).
    pub fn sync(&mut self, vcpu: VcpuIndex, lrs: &impl ListRegisters) -> Kicks {
        let kicks = self.reap(vcpu, lrs);
        for index in Bits(self.vcpu(vcpu).used) {
            self.fold(vcpu, index, lrs.read(index as usize).state);
        }
        kicks.without(vcpu)
    }

    /// Empties the list registers of a vCPU that is unloaded; keeps what they held.
    ///
    /// G1-GIC-008: what was pending or active is so again when the vCPU is loaded and flushed.
    pub fn save(&mut self, vcpu: VcpuIndex, lrs: &mut impl ListRegisters) -> Kicks {
        let mut kicks = self.reap(vcpu, lrs);
        for index in Bits(self.vcpu(vcpu).used) {
            self.fold(vcpu, index, lrs.read(index as usize).state);
            lrs.write(index as usize, Lr::EMPTY);
            kicks = kicks.and(self.unlist(vcpu, index));
        }
        // The caller takes the physical PPIs' active states away with the vCPU.
        self.vcpu_mut(vcpu).word.ended = 0;
        self.set_maintenance(vcpu, Maintenance::default(), lrs);
        kicks.without(vcpu)
    }

    /// Makes a private interrupt of the loaded vCPU pending (`hw`: as
    /// [`inject_hw`](Self::inject_hw) does) and flushes, by the shortest way when a list register
    /// is free and nothing else waits.
    #[inline]
    pub fn inject_loaded(
        &mut self,
        vcpu: VcpuIndex,
        intid: IntId,
        hw: bool,
        lrs: &mut impl ListRegisters,
    ) -> Kicks {
        let kicks = self.reap(vcpu, lrs);
        let (index, bit) = intid.place();
        let gate = self.gate;
        let is_plain = self.version == GicVersion::V3 || !intid.is_sgi();
        let all = all_lists(lrs);
        let state = self.vcpu_mut(vcpu);
        let word = &mut state.word;
        let ready = word.open(gate) & !word.active & !word.listed & bit;
        let free = all & !state.used;
        if index != 0 || !is_plain || ready == 0 || free == 0 || state.hint != 0 {
            return kicks.and(self.inject_slowly(vcpu, intid, hw, lrs));
        }
        word.latch &= !bit;
        word.in_list |= bit;
        word.listed |= bit;
        if hw {
            word.hw |= bit;
            word.ended &= !bit;
        }
        let linked = word.hw & bit != 0;
        let lr = Lr {
            intid,
            priority: word.priority_at(intid.number()),
            state: LrState::Pending,
            hw: linked,
            eoi: !linked && word.edge & bit == 0,
            group1: word.group1 & bit != 0,
            source: 0,
        };
        let slot = free.trailing_zeros();
        state.used |= 1 << (slot & 31);
        if let Some(entry) = state.slots.get_mut(slot as usize) {
            *entry = Slot::new(intid, 0, linked);
        }
        lrs.write(slot as usize, lr);
        kicks
    }

    #[inline(never)]
    fn inject_slowly(
        &mut self,
        vcpu: VcpuIndex,
        intid: IntId,
        hw: bool,
        lrs: &mut impl ListRegisters,
    ) -> Kicks {
        let (index, bit) = intid.place();
        let kicks = if hw {
            self.inject_hw(vcpu, intid)
        } else {
            self.set_pending(vcpu, index, bit)
        };
        kicks.and(self.flush(vcpu, lrs)).without(vcpu)
    }

    /// Takes over what ended in list registers that the hardware reports empty.
    #[inline]
    fn reap(&mut self, vcpu: VcpuIndex, lrs: &impl ListRegisters) -> Kicks {
        let used = self.vcpu(vcpu).used;
        let mut kicks = Kicks::NONE;
        if used != 0 {
            for index in Bits(used & lrs.empty_mask()) {
                self.fold(vcpu, index, LrState::Invalid);
                kicks = kicks.and(self.unlist(vcpu, index));
            }
        }
        kicks
    }

    /// Takes over the state of list register `index`.
    #[inline]
    fn fold(&mut self, vcpu: VcpuIndex, index: u32, state: LrState) {
        let slot = self.vcpu(vcpu).slot(index);
        let (word, bit) = slot.intid().place();
        self.word_mut(vcpu, word)
            .fold(bit, state.is_pending(), state.is_active(), slot.linked());
        self.note_ended(vcpu, word);
    }

    /// Forgets list register `index`; says who may get what is left of its interrupt.
    #[inline]
    fn unlist(&mut self, vcpu: VcpuIndex, index: u32) -> Kicks {
        let state = self.vcpu_mut(vcpu);
        let slot = state.slot(index);
        state.used &= !(1 << (index & 31));
        let intid = slot.intid();
        let (place, bit) = intid.place();
        self.return_latch(vcpu, intid, slot.source());
        let word = self.word_mut(vcpu, place);
        word.listed &= !bit;
        let is_active = word.active & bit != 0;
        let is_left = is_active || (word.latch | word.raised()) & bit != 0;
        if place != 0 {
            self.spi_mut(place).set_held(vcpu, bit, is_active);
        }
        if is_left {
            self.touch(vcpu, place, bit)
        } else {
            Kicks::NONE
        }
    }

    /// Moves a pending state that was in a list register back into the latch.
    #[inline]
    fn return_latch(&mut self, vcpu: VcpuIndex, intid: IntId, source: u8) {
        let (place, bit) = intid.place();
        let word = self.word_mut(vcpu, place);
        if word.in_list & bit != 0 {
            word.in_list &= !bit;
            word.latch |= bit;
            if self.is_v2() && intid.is_sgi() {
                self.return_sgi_source(vcpu, intid.number() as usize, source);
            }
        }
    }

    /// Folds list register `index` and rewrites or empties it as its interrupt's state demands.
    fn refresh(&mut self, vcpu: VcpuIndex, index: u32, lrs: &mut impl ListRegisters) -> Kicks {
        let held = lrs.read(index as usize);
        self.fold(vcpu, index, held.state);
        let slot = self.vcpu(vcpu).slot(index);
        let wanted = self.compose(vcpu, slot.intid(), slot.source());
        if wanted.state == LrState::Invalid {
            lrs.write(index as usize, Lr::EMPTY);
            return self.unlist(vcpu, index);
        }
        if wanted != held {
            self.put(vcpu, index, wanted, lrs);
        }
        Kicks::NONE
    }

    /// Returns what a list register of `vcpu` shall hold for the interrupt, and moves the latch
    /// there. `source` is the sender of the GICv2 SGI that is in the list register already.
    fn compose(&mut self, vcpu: VcpuIndex, intid: IntId, source: u8) -> Lr {
        let (place, bit) = intid.place();
        let gate = self.gate;
        let by_sender = self.is_v2() && intid.is_sgi();
        let (routed, _) = self.relation(vcpu, place);
        let word = self.word_mut(vcpu, place);
        let is_open = word.open(gate) & routed & bit != 0;
        let is_active = word.active & bit != 0;
        let was_in_list = word.in_list & bit != 0;
        let mut source = source;
        if !is_open && was_in_list {
            self.return_latch(vcpu, intid, source);
        } else if is_open && word.latch & bit != 0 && !(by_sender && (is_active || was_in_list)) {
            // SGIs of several senders follow one another.
            word.latch &= !bit;
            word.in_list |= bit;
            if by_sender {
                source = self.take_sgi_source(vcpu, intid.number() as usize);
            }
        }
        let word = self.word_mut(vcpu, place);
        let is_raised = word.raised() & bit != 0 && !is_active;
        let is_pending = is_open && (word.in_list & bit != 0 || is_raised);
        // A list register with HW = 1 cannot be pending and active.
        let is_hw = word.hw & bit != 0;
        let linked = is_hw && !(is_pending && is_active);
        Lr {
            intid,
            priority: word.priority_at(intid.number() & 31),
            state: LrState::new(is_pending, is_active),
            hw: linked,
            eoi: !linked && (is_hw || word.edge & bit == 0 || word.latch & bit != 0),
            group1: word.group1 & bit != 0,
            source: if by_sender { source } else { 0 },
        }
    }

    fn put(&mut self, vcpu: VcpuIndex, index: u32, lr: Lr, lrs: &mut impl ListRegisters) {
        let state = self.vcpu_mut(vcpu);
        state.used |= 1 << (index & 31);
        if let Some(slot) = state.slots.get_mut(index as usize) {
            *slot = Slot::new(lr.intid, lr.source, lr.hw);
        }
        lrs.write(index as usize, lr);
    }

    /// Puts a candidate into the free list register `index`.
    fn list(&mut self, vcpu: VcpuIndex, index: u32, intid: IntId, lrs: &mut impl ListRegisters) {
        let lr = self.compose(vcpu, intid, 0);
        let (place, bit) = intid.place();
        self.word_mut(vcpu, place).listed |= bit;
        if place != 0 {
            self.spi_mut(place).set_held(vcpu, bit, true);
        }
        self.put(vcpu, index, lr, lrs);
    }

    /// Gives list registers to what waits for one.
    fn fill(&mut self, vcpu: VcpuIndex, lrs: &mut impl ListRegisters) -> Kicks {
        let (orphans_left, kicks) = self.fill_with(Want::Active, vcpu, lrs);
        let (pending_left, more) = self.fill_with(Want::Pending, vcpu, lrs);
        // The second pass may have displaced an active one.
        let orphans_left = orphans_left || pending_left && self.best(vcpu, Want::Active).is_some();
        let is_full = orphans_left || pending_left;
        let has_pending = is_full && self.worst(vcpu, Want::Pending).is_some();
        let wanted = Maintenance {
            underflow: is_full,
            no_pending: has_pending,
            deactivate: orphans_left,
        };
        self.set_maintenance(vcpu, wanted, lrs);
        kicks.and(more)
    }

    /// Lists candidates of one kind; tells whether some are left without a list register.
    fn fill_with(
        &mut self,
        want: Want,
        vcpu: VcpuIndex,
        lrs: &mut impl ListRegisters,
    ) -> (bool, Kicks) {
        let mut kicks = Kicks::NONE;
        // Each round fills a free list register or replaces a worse entry by a better one.
        for _ in 0..2 * MAX_LRS {
            let Some(best) = self.best(vcpu, want) else {
                return (false, kicks);
            };
            let free = all_lists(lrs) & !self.vcpu(vcpu).used;
            let index = if free != 0 {
                free.trailing_zeros()
            } else {
                let Some(victim) = self.victim(vcpu, want, best) else {
                    return (true, kicks);
                };
                kicks = kicks.and(self.unlist(vcpu, victim));
                victim
            };
            self.list(vcpu, index, best.intid(), lrs);
        }
        (true, kicks)
    }

    /// Returns the best candidate; forgets hints that led nowhere.
    fn best(&mut self, vcpu: VcpuIndex, want: Want) -> Option<Rank> {
        let mut best: Option<Rank> = None;
        for index in Bits(self.vcpu(vcpu).hint) {
            let place = index as usize;
            let word = self.word(vcpu, place);
            let (routed, held) = self.relation(vcpu, place);
            let waiting = word.waiting(self.gate) & routed;
            let orphans = word.orphans() & held;
            let candidates = match want {
                Want::Active => orphans,
                Want::Pending => waiting,
            };
            for bit in Bits(candidates) {
                let rank = Rank::new(word.priority_at(bit), IntId::at(place, bit));
                if best.is_none_or(|best| rank < best) {
                    best = Some(rank);
                }
            }
            if waiting | orphans == 0 {
                self.vcpu_mut(vcpu).hint &= !(1 << (index & 31));
            }
        }
        best
    }

    /// Returns the list register that gives way to a candidate of rank `best`.
    fn victim(&self, vcpu: VcpuIndex, want: Want, best: Rank) -> Option<u32> {
        let pending = self.worst(vcpu, Want::Pending);
        let active = self.worst(vcpu, Want::Active);
        match want {
            Want::Pending => match pending {
                Some((rank, index, _)) => (rank > best).then_some(index),
                None => active.map(|(_, index, _)| index),
            },
            Want::Active => match (pending, active) {
                (Some((_, index, count)), _) if count > 1 => Some(index),
                (_, Some((rank, index, _))) => (rank > best).then_some(index),
                (Some(_) | None, None) => None,
            },
        }
    }

    /// Returns rank and index of the worst list register of a kind, and how many there are.
    fn worst(&self, vcpu: VcpuIndex, kind: Want) -> Option<(Rank, u32, u32)> {
        let state = self.vcpu(vcpu);
        let mut worst: Option<(Rank, u32, u32)> = None;
        for index in Bits(state.used) {
            let intid = state.slot(index).intid();
            let (place, bit) = intid.place();
            let word = self.word(vcpu, place);
            let is_active = word.active & bit != 0;
            if is_active != (kind == Want::Active) {
                continue;
            }
            let rank = Rank::new(word.priority_at(intid.number() & 31), intid);
            worst = match worst {
                Some((other, at, count)) if other > rank => {
                    Some((other, at, count.wrapping_add(1)))
                }
                Some((_, _, count)) => Some((rank, index, count.wrapping_add(1))),
                None => Some((rank, index, 1)),
            };
        }
        worst
    }

    fn set_maintenance(
        &mut self,
        vcpu: VcpuIndex,
        wanted: Maintenance,
        lrs: &mut impl ListRegisters,
    ) {
        let state = self.vcpu_mut(vcpu);
        if state.maintenance != wanted {
            state.maintenance = wanted;
            lrs.set_maintenance(wanted);
        }
    }

    pub(super) fn is_v2(&self) -> bool {
        self.version == GicVersion::V2
    }
}

/// Returns a bit for each list register that there is.
#[inline]
fn all_lists(lrs: &impl ListRegisters) -> u32 {
    (2_u32 << (lrs.count().wrapping_sub(1) & 15)).wrapping_sub(1)
}
