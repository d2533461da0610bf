//! What the end of a VM does to memory that it shares. None of it can fail: a VM is started anew
//! only when nobody else has any of its memory, and it has nobody else's.
//!
//! Requirements: G1-MEM-017.

use gear1_abi::id::VmId;

use super::steps::Step;
use super::transaction::{Cursor, Stage};
use super::{Ledger, MAX_TRANSACTIONS, Phase, Piece, Transaction, Vms, bit};

/// What became of a step of [`Ledger::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The VM's memory is as the manifest says.
    Done,
    /// Something is left.
    More,
    /// The same, when this has been wiped or cleaned. It may have no pages.
    Clean(Piece),
}

impl Ledger {
    /// Makes one step towards what the manifest describes, as far as `vm` is concerned, which does
    /// not run: what it borrowed goes back; what it lent and donated comes back; and so does to
    /// its home, wiped, what it was given. What its calls have begun is ended with it.
    pub fn release<V: Vms>(&mut self, vms: &mut V, vm: VmId) -> Release {
        self.forget_answers(vm);
        if self.unmap_buffers(vms, vm).is_some() {
            return Release::More;
        }
        // What is on its way goes before what is given.
        // Bound: MAX_TRANSACTIONS (32).
        for index in 0..MAX_TRANSACTIONS {
            if self.is_party(vm, index)
                && let Some(release) = self.release_pending(vms, vm, index)
            {
                return release;
            }
        }
        // Bound: MAX_TRANSACTIONS (32).
        for index in 0..MAX_TRANSACTIONS {
            if self.is_party(vm, index)
                && let Some(release) = self.release_given(vms, vm, index)
            {
                return release;
            }
        }
        Release::Done
    }

    /// Tells whether `vm` sends a transaction, or is one of its receivers.
    fn is_party(&self, vm: VmId, index: usize) -> bool {
        let transaction = self.transactions.get(index);
        transaction.is_some_and(|transaction| {
            let offer = &transaction.offer;
            transaction.phase != Phase::Free && (offer.sender == vm || offer.is_for(vm))
        })
    }

    /// Makes a step towards the end of a transaction that is no donation for good.
    pub(super) fn release_pending<V: Vms>(
        &mut self,
        vms: &mut V,
        vm: VmId,
        index: usize,
    ) -> Option<Release> {
        let mut transaction = self.transaction(index);
        let ends = transaction.offer.sender == vm
            || (transaction.returning && transaction.offer.is_for(vm));
        match transaction.phase {
            Phase::Free | Phase::Given(_) | Phase::Returning => return None,
            Phase::Filling if transaction.offer.sender == vm => {
                self.free(vms, index);
                return Some(Release::More);
            }
            Phase::Filling => return None,
            // What is on its way home goes there, whoever of the two ends.
            Phase::Unclaiming(_) | Phase::Reclaiming | Phase::Homing if ends => {}
            _ if ends => transaction.take_back(),
            Phase::Claiming
            | Phase::Unclaiming(_)
            | Phase::Committing
            | Phase::Sending
            | Phase::Sent
            | Phase::Mapping
            | Phase::Unmapping(_)
            | Phase::Retrieved
            | Phase::Relinquishing
            | Phase::Reclaiming
            | Phase::Homing => {
                if !transaction.leave(vm) {
                    return None;
                }
            }
        }
        *self.slot(index) = transaction;
        Some(self.released(vms, index))
    }

    /// Makes a step of taking back what was donated.
    pub(super) fn release_given<V: Vms>(
        &mut self,
        vms: &mut V,
        vm: VmId,
        index: usize,
    ) -> Option<Release> {
        let transaction = self.slot(index);
        if transaction.offer.sender != vm && !transaction.offer.is_for(vm) {
            return None;
        }
        if let Phase::Given(_) = transaction.phase {
            transaction.begin(Phase::Returning, Stage::Undo);
        }
        if transaction.phase != Phase::Returning {
            return None;
        }
        Some(self.released(vms, index))
    }

    fn released<V: Vms>(&mut self, vms: &mut V, index: usize) -> Release {
        match self.step(vms, index) {
            Step::Clean(piece) => Release::Clean(piece),
            Step::More | Step::Settled(_) => Release::More,
        }
    }
}

impl Transaction {
    /// Begins to take it from whoever has some of it and to give it back, whatever is under way.
    fn take_back(&mut self) {
        // What was not claimed is not this transaction's.
        self.limit = if self.phase == Phase::Claiming {
            self.at
        } else {
            Cursor::END
        };
        if matches!(self.phase, Phase::Mapping | Phase::Unmapping(_)) {
            self.holders |= bit(self.who);
        }
        // Its home is wiped before it runs again, and a receiver's pages are its own again.
        self.cleans = false;
        self.take_from_next();
    }

    /// Begins, or goes on, to take it from a receiver `vm`. Tells whether that has anything of it.
    fn leave(&mut self, vm: VmId) -> bool {
        match self.phase {
            // What it has not got whole it loses again; it may have written there.
            Phase::Mapping if self.who == vm => {
                self.begin(Phase::Unmapping(None), Stage::Undo);
                true
            }
            Phase::Unmapping(_) | Phase::Relinquishing if self.who == vm => true,
            Phase::Mapping | Phase::Unmapping(_) | Phase::Reclaiming => self.is_held_by(vm),
            Phase::Retrieved if self.is_held_by(vm) => {
                self.who = vm;
                self.begin(Phase::Unmapping(None), Stage::Undo);
                true
            }
            Phase::Free
            | Phase::Filling
            | Phase::Claiming
            | Phase::Unclaiming(_)
            | Phase::Committing
            | Phase::Sending
            | Phase::Sent
            | Phase::Retrieved
            | Phase::Relinquishing
            | Phase::Given(_)
            | Phase::Homing
            | Phase::Returning => false,
        }
    }
}
