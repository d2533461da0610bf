//! List registers: what of a vCPU's interrupts they hold while it is loaded.
//!
//! G1-GIC-007: what deserves a list register most has one. That is, with more
//! candidates than list registers: active interrupts by priority before pending
//! ones by priority, but one list register is left to the pending ones. The
//! rest is waited for with the maintenance interrupt (`candidates`).
//!
//! Nothing is lost when the guest acknowledges or ends an interrupt while
//! another CPU changes the same one: the latch of a listed interrupt is apart
//! from what the list register holds ([`Word`](super::word::Word)).
//!
//! Requirements: G1-GIC-011, G1-GIC-012, G1-RUN-011.

mod candidates;
mod replay;

use super::types::{Bits, IntId, Kicks, ListRegisters, Lr, LrState, Maintenance, VcpuIndex};
use super::word::Gate;
use super::{Change, Slot, Vcpu, VmGic};
pub use replay::LrReplay;

/// SGIs in the word of private interrupts.
const SGIS: u32 = 0xffff;

/// Outcome of the short way of a flush.
enum Plainly {
    /// The flush is done.
    Done,
    /// All is done but for interrupts that wait for a list register; none in one was changed.
    Waits,
    /// Nothing more is known.
    Not,
}

impl VmGic {
    /// Brings the loaded vCPU's list registers up to date: after a kick, on the maintenance
    /// interrupt, after loading, and after a call that kicked the vCPU itself.
    ///
    /// Returns kicks for others only: an interrupt that left this vCPU may be due elsewhere.
    #[inline]
    pub fn flush(&mut self, vcpu: VcpuIndex, lrs: &mut impl ListRegisters) -> Kicks {
        let gate = self.gate;
        let plain = if self.is_v2() { !SGIS } else { u32::MAX };
        let state = self.vcpu_mut(vcpu);
        if state.replay_posted(lrs) {
            return Kicks::NONE;
        }
        let kicks = match state.reap_private(lrs) {
            0 => Kicks::NONE,
            _ if self.repeat_spi(vcpu, lrs) => Kicks::NONE,
            spis => self.reap_spis(vcpu, spis).without(vcpu),
        };
        let is_done = match self.vcpu_mut(vcpu).list_plainly(plain, gate, lrs) {
            Plainly::Done => true,
            Plainly::Waits => self.list_plain_spi(vcpu, lrs),
            Plainly::Not => false,
        };
        match is_done {
            true => kicks,
            false => kicks.union(self.flush_slowly(vcpu, lrs)),
        }
    }

    /// Puts an only waiting interrupt, if it is a shared one, into a free list register: a world
    /// switch to a vCPU that a device or a doorbell has woken does that.
    #[inline]
    fn list_plain_spi(&mut self, vcpu: VcpuIndex, lrs: &mut impl ListRegisters) -> bool {
        let (gate, state) = (self.gate, self.vcpu(vcpu));
        let free = lrs.all() & !state.used;
        let place = state.pending_words.trailing_zeros() as usize;
        if !state.pending_words.is_power_of_two() || place == 0 || free == 0 {
            return false;
        }
        let spi = self.spi_mut(place);
        let waiting = spi.word.waiting(gate) & spi.targets(vcpu);
        let only = waiting | spi.word.unlisted_active() & spi.held(vcpu);
        if only != waiting || !only.is_power_of_two() {
            return false;
        }
        spi.word.take_into_list(only);
        spi.set_held(vcpu, only, true);
        let lr = spi.word.pending_lr(IntId::at(place, only.trailing_zeros()));
        let state = self.vcpu_mut(vcpu);
        state.pending_words = 0;
        let index = free.trailing_zeros();
        let raw = state.put(index, lr, lrs);
        if !lr.eoi && !lr.hw {
            (state.repeatable, state.repeated) = (1 << (index & 31), raw);
        }
        true
    }

    #[inline(never)]
    fn flush_slowly(&mut self, vcpu: VcpuIndex, lrs: &mut impl ListRegisters) -> Kicks {
        let mut kicks = self.reap(vcpu, lrs);
        kicks = kicks.union(self.refresh_stale(vcpu, lrs));
        let state = self.vcpu(vcpu);
        if state.pending_words != 0 || state.is_overflowing() {
            kicks = kicks.union(self.fill(vcpu, lrs));
        }
        kicks.without(vcpu)
    }

    /// Learns from the loaded vCPU's list registers what the guest acknowledged and ended; changes
    /// none. Comes before [`deliverable`](Self::deliverable), and before an access to a register
    /// that [`shows_list_registers`](super::shows_list_registers).
    ///
    /// Returns a kick for the vCPU itself if a flush must follow, because an interrupt whose end
    /// was found is due again. Otherwise no flush is needed: the list registers and the maintenance
    /// interrupt are what the guest would go on with if it had not exited.
    pub fn sync(&mut self, vcpu: VcpuIndex, lrs: &mut impl ListRegisters) -> Kicks {
        let kicks = self.reap(vcpu, lrs);
        self.fold_lr_states(vcpu, lrs);
        // planted: what is due again after its end is left to the next flush
        kicks
    }

    /// Empties the list registers of a vCPU that is unloaded, and keeps their state.
    ///
    /// G1-GIC-008: pending and active interrupts are pending and active again when the vCPU is
    /// loaded and flushed.
    pub fn save(&mut self, vcpu: VcpuIndex, lrs: &mut impl ListRegisters) -> Kicks {
        let mut kicks = self.reap(vcpu, lrs);
        // Bound: 16 list registers.
        for index in Bits(self.vcpu(vcpu).used) {
            self.fold_lr_state(vcpu, index, lrs.read(index as usize).state);
            lrs.write(index as usize, Lr::EMPTY);
            kicks = kicks.union(self.unlist(vcpu, index));
        }
        let state = self.vcpu_mut(vcpu);
        // The caller takes the physical PPIs' active states away with the vCPU.
        state.word.ended = 0;
        state.stale = 0;
        state.set_maintenance(Maintenance::default(), lrs);
        kicks.without(vcpu)
    }

    /// Tells whether the loaded vCPU may be unloaded without [`save`](Self::save), and so without
    /// the VM's lock: each of its list registers is empty, and no maintenance is wanted.
    ///
    /// Interrupts that the guest has ended since the last fold stay in the vCPU's slots until
    /// [`resume`](Self::resume). A change by another CPU meanwhile kicks this vCPU, as it kicks one
    /// that is loaded elsewhere. So the vCPU must be one that waits, which a kick brings to a CPU,
    /// and the only one of its VM: siblings would not get what counts as listed here.
    #[inline(always)]
    pub fn leaves_nothing(lrs: &mut impl ListRegisters) -> bool {
        is_quiet(lrs)
    }

    /// Takes up a vCPU that this CPU loads, with list registers that are all empty. A
    /// [`flush`](Self::flush) must follow if an interrupt [waits](Self::has_waiting).
    ///
    /// Returns kicks for others only.
    #[inline(always)]
    pub fn resume(&mut self, vcpu: VcpuIndex, lrs: &mut impl ListRegisters) -> Kicks {
        if self.vcpu(vcpu).used != 0 && !self.repeat_spi(vcpu, lrs) {
            return self.fold_unloaded(vcpu);
        }
        // As in `fold_unloaded`.
        let state = self.vcpu_mut(vcpu);
        state.word.ended = 0;
        state.stale = 0;
        Kicks::NONE
    }

    /// Tells whether an interrupt of the vCPU may wait for a list register.
    #[inline(always)]
    pub fn has_waiting(&self, vcpu: VcpuIndex) -> bool {
        self.vcpu(vcpu).pending_words != 0
    }

    /// Folds the ends of a vCPU that is loaded nowhere: its list registers were empty when its CPU
    /// left them ([`leaves_nothing`](Self::leaves_nothing)).
    ///
    /// Returns kicks for others only.
    #[inline(never)]
    pub(super) fn fold_unloaded(&mut self, vcpu: VcpuIndex) -> Kicks {
        let state = self.vcpu_mut(vcpu);
        let spis = state.end_private(state.used);
        let kicks = match spis {
            0 => Kicks::NONE,
            spis => self.reap_spis(vcpu, spis),
        };
        let state = self.vcpu_mut(vcpu);
        // As after `save`: physical PPIs have no active state while the vCPU is not loaded.
        state.word.ended = 0;
        state.stale = 0;
        kicks.without(vcpu)
    }

    /// Folds the list registers that the hardware reports empty.
    fn reap(&mut self, vcpu: VcpuIndex, lrs: &mut impl ListRegisters) -> Kicks {
        let state = self.vcpu_mut(vcpu);
        let has_unlisted_active = state.maintenance.deactivate;
        let mut kicks = match state.reap_private(lrs) {
            0 => Kicks::NONE,
            spis => self.reap_spis(vcpu, spis),
        };
        if has_unlisted_active {
            // The counter has five bits.
            let count = lrs.take_lost_ends().min(31);
            if count != 0 {
                kicks = kicks.union(self.end_unlisted_active(vcpu, count));
            }
        }
        kicks
    }

    #[inline(never)]
    fn reap_spis(&mut self, vcpu: VcpuIndex, ended: u32) -> Kicks {
        let mut kicks = Kicks::NONE;
        // Bound: 16 list registers.
        for index in Bits(ended) {
            let state = self.vcpu_mut(vcpu);
            let this = 1 << (index & 31);
            state.used &= !this;
            state.repeatable &= !this;
            let slot = state.slot(index);
            let (place, bit) = slot.intid().place();
            let spi = self.spi_mut(place);
            let is_due = spi.word.end(bit, slot.linked());
            spi.set_held(vcpu, bit, spi.word.active & bit != 0);
            self.note_ended(vcpu, place);
            if is_due {
                kicks = kicks.union(self.touch_spis(place, bit, Change::Any));
            }
        }
        kicks
    }

    /// Refreshes the list registers of interrupts that were changed, or whose end shows nowhere
    /// else.
    fn refresh_stale(&mut self, vcpu: VcpuIndex, lrs: &mut impl ListRegisters) -> Kicks {
        let mut kicks = Kicks::NONE;
        let state = self.vcpu_mut(vcpu);
        let stale = core::mem::take(&mut state.stale);
        let silent = state.silent;
        // Bound: 16 list registers.
        for index in Bits(state.used) {
            let (place, _) = self.vcpu(vcpu).slot(index).intid().place();
            if (stale >> (place & 31) | silent >> (index & 31)) & 1 != 0 {
                kicks = kicks.union(self.refresh(vcpu, index, lrs));
            }
        }
        kicks
    }

    /// Takes over the state of every list register in use.
    fn fold_lr_states(&mut self, vcpu: VcpuIndex, lrs: &impl ListRegisters) {
        // Bound: 16 list registers.
        for index in Bits(self.vcpu(vcpu).used) {
            self.fold_lr_state(vcpu, index, lrs.read(index as usize).state);
        }
    }

    /// Takes over the state of list register `index`.
    fn fold_lr_state(&mut self, vcpu: VcpuIndex, index: u32, state: LrState) {
        let own = self.vcpu_mut(vcpu);
        own.replayable &= !(1 << (index & 31));
        own.repeatable &= !(1 << (index & 31));
        let slot = own.slot(index);
        let (place, bit) = slot.intid().place();
        let word = self.word_mut(vcpu, place);
        word.fold_lr_state(bit, state.is_pending(), state.is_active(), slot.linked());
        self.note_ended(vcpu, place);
    }

    /// Frees list register `index`, and returns the vCPUs that may get the rest of its interrupt.
    fn unlist(&mut self, vcpu: VcpuIndex, index: u32) -> Kicks {
        let state = self.vcpu_mut(vcpu);
        let slot = state.slot(index);
        state.used &= !(1 << (index & 31));
        let intid = slot.intid();
        let (place, bit) = intid.place();
        self.return_latch(vcpu, intid);
        let word = self.word_mut(vcpu, place);
        word.listed &= !bit;
        let is_active = word.active & bit != 0;
        let is_due = is_active || (word.latch | word.raised()) & bit != 0;
        if place != 0 {
            self.spi_mut(place).set_held(vcpu, bit, is_active);
        }
        if is_due {
            self.touch(vcpu, place, bit)
        } else {
            Kicks::NONE
        }
    }

    /// Moves a pending state that was in a list register back into the latch.
    fn return_latch(&mut self, vcpu: VcpuIndex, intid: IntId) {
        let (place, bit) = intid.place();
        let word = self.word_mut(vcpu, place);
        if word.in_list & bit != 0 {
            word.in_list &= !bit;
            // planted: an unloaded vCPU forgets what was pending
            word.latch |= bit;
            if self.is_v2() && intid.is_sgi() {
                self.return_sgi_source(vcpu, intid.number() as usize);
            }
        }
    }

    /// Folds list register `index` and rewrites or empties it as its interrupt's state demands.
    fn refresh(&mut self, vcpu: VcpuIndex, index: u32, lrs: &mut impl ListRegisters) -> Kicks {
        let held = lrs.read(index as usize);
        self.fold_lr_state(vcpu, index, held.state);
        let slot = self.vcpu(vcpu).slot(index);
        let wanted = self.compose(vcpu, slot.intid());
        if wanted.state == LrState::Invalid {
            lrs.write(index as usize, Lr::EMPTY);
            return self.unlist(vcpu, index);
        }
        if wanted != held {
            self.vcpu_mut(vcpu).put(index, wanted, lrs);
        }
        Kicks::NONE
    }

    /// Returns what a list register of `vcpu` shall hold for the interrupt, and moves the latch
    /// there.
    fn compose(&mut self, vcpu: VcpuIndex, intid: IntId) -> Lr {
        let (place, bit) = intid.place();
        let gate = self.gate;
        let by_sender = self.is_v2() && intid.is_sgi();
        let (routed, _) = self.relation(vcpu, place);
        let word = self.word_mut(vcpu, place);
        let is_open = word.open(gate) & routed & bit != 0;
        let is_active = word.active & bit != 0;
        let was_in_list = word.in_list & bit != 0;
        // SGIs of several senders follow one another.
        let must_follow = by_sender && is_active;
        if !is_open && was_in_list {
            self.return_latch(vcpu, intid);
        } else if by_sender && was_in_list {
            self.drop_sgi_source(vcpu, intid.number() as usize);
        } else if is_open && word.latch & bit != 0 && !must_follow {
            word.latch &= !bit;
            word.in_list |= bit;
            if by_sender {
                self.take_sgi_source(vcpu, intid.number() as usize);
            }
        }
        let word = self.word(vcpu, place);
        let is_raised = word.raised() & bit != 0 && !is_active;
        let is_pending = is_open && (word.in_list & bit != 0 || is_raised);
        // A list register with HW = 1 can neither be pending and active, nor report its end.
        let is_hw = word.hw & bit != 0;
        let has_more = is_pending || word.latch & bit != 0;
        let hw = is_hw && !(is_active && has_more);
        let comes_again = is_hw || (word.latch | !word.edge) & bit != 0;
        Lr {
            intid,
            priority: word.priority_at(intid.number() & 31),
            state: LrState::new(is_pending, is_active),
            hw,
            eoi: !hw && comes_again,
            group1: word.group1 & bit != 0,
            // planted: an active SGI that gets a list register again has lost its sender
            source: if by_sender {
                self.sgi_sender(vcpu, intid.number() as usize)
            } else {
                0
            },
        }
    }

    /// Puts a candidate into the free list register `index`.
    fn list(&mut self, vcpu: VcpuIndex, index: u32, intid: IntId, lrs: &mut impl ListRegisters) {
        let lr = self.compose(vcpu, intid);
        let (place, bit) = intid.place();
        self.word_mut(vcpu, place).listed |= bit;
        if place != 0 {
            self.spi_mut(place).set_held(vcpu, bit, true);
        }
        self.vcpu_mut(vcpu).put(index, lr, lrs);
    }
}

impl Vcpu {
    /// Does the rest of a flush, after the interrupts that ended, if no interrupt in a list register
    /// was changed and at most one new interrupt waits, which is private.
    #[inline]
    fn list_plainly(&mut self, plain: u32, gate: Gate, lrs: &mut impl ListRegisters) -> Plainly {
        if self.used & self.silent != 0 || self.is_overflowing() {
            return Plainly::Not;
        }
        if self.used == 0 {
            self.stale = 0;
        }
        if self.stale != 0 {
            Plainly::Not
        } else if self.pending_words == 0 || self.list_plain(plain, gate, lrs) {
            Plainly::Done
        } else {
            Plainly::Waits
        }
    }

    /// Takes over the private interrupts that ended in list registers that the hardware reports
    /// empty; returns those with SPIs.
    #[inline(always)]
    fn reap_private(&mut self, lrs: &mut impl ListRegisters) -> u32 {
        if self.used == 0 {
            return 0;
        }
        // Gear1 may have filled one since the guest left.
        // planted: a list register that was just written counts as ended
        lrs.synchronize();
        self.end_private(self.used & lrs.empty_mask())
    }

    /// Takes over that the private interrupts of these list registers have ended; returns the list
    /// registers with SPIs.
    #[inline(always)]
    fn end_private(&mut self, ended: u32) -> u32 {
        let mut spis = 0;
        // Bound: 16 list registers.
        for index in Bits(ended) {
            let slot = self.slot(index);
            let (place, bit) = slot.intid().place();
            let this = 1 << (index & 31);
            if place != 0 {
                spis |= this;
                continue;
            }
            self.used &= !this;
            self.replayable &= !this;
            if self.word.end(bit, slot.linked()) {
                self.pending_words |= 1;
            }
        }
        spis
    }

    /// Fills a list register and remembers with what. Returns what was written.
    #[inline]
    fn put<L: ListRegisters>(&mut self, index: u32, lr: Lr, lrs: &mut L) -> u64 {
        let this = 1 << (index & 31);
        self.used |= this;
        if lr.eoi {
            self.silent |= this;
        } else {
            self.silent &= !this;
            if lr.state == LrState::Pending && lr.intid.is_private() {
                self.replayable |= this;
            }
        }
        if let Some(slot) = self.slots.get_mut(index as usize & 15) {
            *slot = Slot::new(&lr);
        }
        let raw = L::encode(lr);
        lrs.write_raw(index as usize, raw);
        raw
    }

    /// Puts an only waiting interrupt, if it is a private one, into a free list register.
    #[inline]
    fn list_plain(&mut self, plain: u32, gate: Gate, lrs: &mut impl ListRegisters) -> bool {
        let free = lrs.all() & !self.used;
        let bit = self.word.waiting(gate);
        let is_only =
            self.pending_words == 1 && bit.is_power_of_two() && self.word.unlisted_active() == 0;
        if !is_only || bit & plain == 0 || free == 0 {
            return false;
        }
        self.word.take_into_list(bit);
        self.pending_words = 0;
        let index = free.trailing_zeros();
        let lr = self.word.pending_lr(IntId::at(0, bit.trailing_zeros()));
        self.put(index, lr, lrs);
        true
    }

    /// Returns the words that may hold a pending or active interrupt, a bit each.
    pub(super) fn words(&self) -> u32 {
        // Bound: 16 list registers.
        Bits(self.used).fold(self.pending_words, |words, index| {
            let (place, _) = self.slot(index).intid().place();
            words | 1 << (place & 31)
        })
    }

    #[inline]
    fn is_overflowing(&self) -> bool {
        self.maintenance.underflow
    }

    fn set_maintenance(&mut self, wanted: Maintenance, lrs: &mut impl ListRegisters) {
        if self.maintenance != wanted {
            self.maintenance = wanted;
            lrs.set_maintenance(wanted);
        }
    }
}

/// Returns whether nothing is due for the loaded vCPU without a kick, judged by hardware alone: no
/// list register is in use, and an interrupt outside of them would have requested maintenance.
#[inline]
pub fn is_quiet(lrs: &mut impl ListRegisters) -> bool {
    // Gear1 may have filled one since the guest left.
    lrs.synchronize();
    lrs.all() & !lrs.empty_mask() == 0 && !lrs.wants_maintenance()
}
