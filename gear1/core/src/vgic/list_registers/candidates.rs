//! Interrupts that wait for a list register: which of them get one, which of those that have one
//! give way, and how the rest are waited for.
//!
//! The words' bitmaps are the only record of what is pending: a sorted list for each vCPU would
//! have to follow them, and one write of GICD_CTLR concerns up to 480 interrupts of eight vCPUs
//! (G1-RUN-011).
//!
//! Requirements: G1-GIC-007, G1-GIC-012.

use crate::vgic::types::{Bits, IntId, Kicks, ListRegisters, Maintenance, VcpuIndex};
use crate::vgic::word::Word;
use crate::vgic::{MAX_LRS, SPI_WORDS, VmGic};

/// Pending or active: what a candidate wants a list register for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Active,
    Pending,
}

/// Rank of an interrupt among those of its kind: priority, then INTID; lower is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank(u32);

impl Rank {
    fn new(priority: u8, intid: IntId) -> Self {
        Self(u32::from(priority) << 16 | intid.number())
    }

    /// Behind all.
    const NONE: Self = Self(u32::MAX);

    fn intid(self) -> IntId {
        IntId::from_low_bits(self.0 as u16)
    }
}

/// Words of 32 interrupts that a vCPU has.
const WORDS: usize = SPI_WORDS + 1;

/// Interrupts that wait for a list register of a vCPU: the best of each word, so that a change of
/// one word needs a look at that word alone.
struct Candidates {
    /// Best active interrupt of each word.
    unlisted_active: [Rank; WORDS],
    /// Best pending interrupt of each word.
    pending: [Rank; WORDS],
}

impl Candidates {
    /// Returns the best candidate of a kind of which one can still get a list register: active ones
    /// come before pending ones.
    fn best(&self, words: u32, active_left: bool, pending_left: bool) -> Option<(Want, Rank)> {
        if let Some(rank) = best_of(&self.unlisted_active, words)
            && !active_left
        {
            return Some((Want::Active, rank));
        }
        let pending = best_of(&self.pending, words).filter(|_| !pending_left);
        pending.map(|rank| (Want::Pending, rank))
    }
}

/// Returns the best of some interrupts of the word at `index`.
fn best_in(word: &Word, index: usize, bits: u32) -> Rank {
    word.best(bits).map_or(Rank::NONE, |bit| {
        Rank::new(word.priority_at(bit), IntId::at(index, bit))
    })
}

/// Returns the best of these words.
fn best_of(ranks: &[Rank; WORDS], words: u32) -> Option<Rank> {
    let each = Bits(words).filter_map(|index| ranks.get(index as usize).copied());
    // Bound: 16 words of 32 interrupts.
    // planted: of two pending interrupts the worse comes first
    let best = each.fold(Rank::NONE, Ord::min);
    (best != Rank::NONE).then_some(best)
}

impl VmGic {
    /// Gives list registers to waiting interrupts: first to active, then to pending ones.
    pub(super) fn fill(&mut self, vcpu: VcpuIndex, lrs: &mut impl ListRegisters) -> Kicks {
        let words = self.vcpu(vcpu).pending_words;
        let free = lrs.all() & !self.vcpu(vcpu).used;
        let place = words.trailing_zeros() as usize;
        let (unlisted_active, pending) = self.waiting(vcpu, place);
        let only = unlisted_active | pending;
        if free == 0 || !words.is_power_of_two() || !only.is_power_of_two() {
            return self.fill_slowly(vcpu, lrs);
        }
        let intid = IntId::at(place, only.trailing_zeros());
        self.list(vcpu, free.trailing_zeros(), intid, lrs);
        let state = self.vcpu_mut(vcpu);
        state.pending_words = 0;
        state.set_maintenance(Maintenance::default(), lrs);
        Kicks::NONE
    }

    /// Gives list registers to several waiting interrupts.
    #[inline(never)]
    fn fill_slowly(&mut self, vcpu: VcpuIndex, lrs: &mut impl ListRegisters) -> Kicks {
        let mut kicks = Kicks::NONE;
        let mut active_left = false;
        let mut pending_left = false;
        let mut is_folded = false;
        let mut found = self.candidates(vcpu);
        // Each round fills a free list register, or replaces a worse entry by a better one, or
        // ends one kind.
        // Bound: 4 x 16 rounds.
        for _ in 0..4 * MAX_LRS {
            let words = self.vcpu(vcpu).pending_words;
            let Some((want, best)) = found.best(words, active_left, pending_left) else {
                break;
            };
            let free = lrs.all() & !self.vcpu(vcpu).used;
            if free != 0 {
                self.list_candidate(vcpu, free.trailing_zeros(), best, &mut found, lrs);
                continue;
            }
            if !is_folded {
                self.fold_lr_states(vcpu, lrs);
                is_folded = true;
            }
            if let Some(victim) = self.victim(vcpu, want, best) {
                let (other, _) = self.vcpu(vcpu).slot(victim).intid().place();
                kicks = kicks.union(self.unlist(vcpu, victim));
                self.list_candidate(vcpu, victim, best, &mut found, lrs);
                self.update_candidates(vcpu, other, &mut found);
            } else {
                match want {
                    Want::Active => active_left = true,
                    Want::Pending => pending_left = true,
                }
            }
        }
        self.wait_for_room(vcpu, &found, lrs);
        kicks
    }

    /// Puts a candidate into the free list register `index`, and looks at what else of its word
    /// waits.
    fn list_candidate(
        &mut self,
        vcpu: VcpuIndex,
        index: u32,
        best: Rank,
        found: &mut Candidates,
        lrs: &mut impl ListRegisters,
    ) {
        let (place, _) = best.intid().place();
        self.list(vcpu, index, best.intid(), lrs);
        self.update_candidates(vcpu, place, found);
    }

    /// Enables the maintenance interrupt if an interrupt still waits for a list register.
    fn wait_for_room(&mut self, vcpu: VcpuIndex, found: &Candidates, lrs: &mut impl ListRegisters) {
        let mut wanted = Maintenance::default();
        let words = self.vcpu(vcpu).pending_words;
        // planted: the end of an interrupt without list register is missed
        wanted.deactivate = best_of(&found.unlisted_active, words).is_some();
        wanted.underflow = wanted.deactivate || best_of(&found.pending, words).is_some();
        wanted.no_pending = wanted.underflow && self.worst(vcpu, Want::Pending).is_some();
        let state = self.vcpu_mut(vcpu);
        if wanted.deactivate && !state.maintenance.deactivate {
            // Ends counted so far concern none of the interrupts that wait now.
            lrs.take_lost_ends();
        }
        state.set_maintenance(wanted, lrs);
    }

    /// Returns what waits for a list register; forgets words in which none waits.
    fn candidates(&mut self, vcpu: VcpuIndex) -> Candidates {
        let mut found = Candidates {
            unlisted_active: [Rank::NONE; WORDS],
            pending: [Rank::NONE; WORDS],
        };
        // Bound: 16 words of 32 interrupts.
        for index in Bits(self.vcpu(vcpu).pending_words) {
            self.update_candidates(vcpu, index as usize, &mut found);
        }
        found
    }

    /// Returns what of a word waits for a list register: active and pending ones.
    #[inline]
    fn waiting(&self, vcpu: VcpuIndex, index: usize) -> (u32, u32) {
        let word = self.word(vcpu, index);
        let (routed, held) = self.relation(vcpu, index);
        let unlisted_active = word.unlisted_active() & held;
        (
            unlisted_active,
            word.waiting(self.gate) & routed & !unlisted_active,
        )
    }

    /// Updates the candidates of a word, and clears its bit if no interrupt waits there.
    fn update_candidates(&mut self, vcpu: VcpuIndex, index: usize, found: &mut Candidates) {
        let (unlisted_active, pending) = self.waiting(vcpu, index);
        let word = self.word(vcpu, index);
        if let Some(place) = found.unlisted_active.get_mut(index) {
            *place = best_in(word, index, unlisted_active);
        }
        if let Some(place) = found.pending.get_mut(index) {
            *place = best_in(word, index, pending);
        }
        if unlisted_active | pending == 0 {
            self.vcpu_mut(vcpu).pending_words &= !(1 << (index & 31));
        }
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
                (_, None) => None,
            },
        }
    }

    /// Returns rank and index of the worst list register of a kind, and how many there are.
    fn worst(&self, vcpu: VcpuIndex, kind: Want) -> Option<(Rank, u32, u32)> {
        let state = self.vcpu(vcpu);
        let mut worst: Option<(Rank, u32)> = None;
        let mut count = 0_u32;
        // Bound: 16 list registers.
        for index in Bits(state.used) {
            let intid = state.slot(index).intid();
            let (place, bit) = intid.place();
            let word = self.word(vcpu, place);
            let is_active = word.active & bit != 0;
            if is_active != (kind == Want::Active) {
                continue;
            }
            count = count.wrapping_add(1);
            let rank = Rank::new(word.priority_at(intid.number() & 31), intid);
            if worst.is_none_or(|(other, _)| rank > other) {
                worst = Some((rank, index));
            }
        }
        worst.map(|(rank, index)| (rank, index, count))
    }

    /// Ends `count` active interrupts outside of the list registers: the guest has ended those of
    /// the highest priority first.
    #[inline(never)]
    pub(super) fn end_unlisted_active(&mut self, vcpu: VcpuIndex, count: u32) -> Kicks {
        let words = self.vcpu(vcpu).pending_words;
        let mut best = self.candidates(vcpu).unlisted_active;
        let mut ended = [0_u32; WORDS];
        // Bound: 31 ends without a list register (ICH_HCR_EL2.EOIcount).
        for _ in 0..count {
            let Some(rank) = best_of(&best, words) else {
                break;
            };
            let (index, bit) = rank.intid().place();
            if let (Some(ended), Some(best)) = (ended.get_mut(index), best.get_mut(index)) {
                *ended |= bit;
                *best = self.best_unlisted_active(vcpu, index, *ended);
            }
        }
        let mut kicks = Kicks::NONE;
        // Bound: 16 words of 32 interrupts.
        for (index, bits) in ended.iter().enumerate() {
            if *bits != 0 {
                kicks = kicks.union(self.clear_active(vcpu, index, *bits));
            }
        }
        kicks
    }

    /// Returns the best active interrupt of a word that the vCPU holds in no list register, but for
    /// these.
    fn best_unlisted_active(&self, vcpu: VcpuIndex, index: usize, without: u32) -> Rank {
        let word = self.word(vcpu, index);
        let (_, held) = self.relation(vcpu, index);
        let unlisted_active = word.unlisted_active() & held & !without;
        best_in(word, index, unlisted_active)
    }
}
