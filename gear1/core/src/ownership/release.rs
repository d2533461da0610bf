//! Release of shared memory at the end of a VM. No step can fail: a VM is restarted only when no
//! other VM has any of its memory, and it has no other VM's.
//!
//! Requirements: G1-MEM-017.

use gear1_abi::id::VmId;

use super::steps::Step;
use super::transaction::{Cursor, Stage};
use super::{Ledger, MAX_TRANSACTIONS, Phase, Piece, Transaction, Vms, bit};

/// Result of a step of [`Ledger::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The VM's memory is as the manifest says.
    Done,
    /// More steps are left.
    More,
    /// More steps are left, after the wipe or the cleaning of this piece, which may have no pages.
    Clean(Piece),
}

impl Ledger {
    /// Makes one step towards the memory layout of the manifest, as far as `vm` is concerned, which
    /// does not run: borrowed memory goes back; lent and donated memory comes back; received memory
    /// goes to its home, wiped. The work that the VM's calls have begun ends with it.
    ///
    /// From the first step to the last the VM is *leaving*: nothing is sent to it, so other VMs
    /// cannot add work. A VM that nobody loads further stays so.
    pub fn release<V: Vms>(&mut self, vms: &mut V, vm: VmId) -> Release {
        self.leaving |= bit(vm);
        self.forget_answers(vm);
        if self.unmap_buffers(vms, vm).is_some() {
            return Release::More;
        }
        // Transactions under way come before donations.
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
        self.leaving &= !bit(vm);
        Release::Done
    }

    /// Returns whether `vm` sends a transaction, or is one of its receivers.
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
        let is_sender = transaction.offer.sender == vm;
        let is_home = transaction.returning && transaction.offer.is_for(vm);
        if matches!(
            transaction.phase,
            Phase::Free | Phase::Given(_) | Phase::Returning
        ) {
            return None;
        }
        if transaction.phase == Phase::Filling {
            // A receiver has nothing of it yet.
            if !is_sender {
                return None;
            }
            self.free(vms, index);
            return Some(Release::More);
        }
        if is_sender || is_home {
            transaction.end();
        } else if !transaction.leave(vm) {
            return None;
        }
        *self.slot(index) = transaction;
        Some(self.released(vms, index))
    }

    /// Makes a step of taking a donation back.
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
    /// Takes the pages back, unless they are on their way home already: that work continues,
    /// whichever of the two VMs ends.
    fn end(&mut self) {
        let is_on_the_way = matches!(
            self.phase,
            Phase::Unclaiming(_) | Phase::Reclaiming | Phase::Homing
        );
        if !is_on_the_way {
            self.take_back();
        }
    }

    /// Begins to take the pages from all receivers and to give them back, whatever is under way.
    fn take_back(&mut self) {
        // Pages that were not claimed do not belong to this transaction.
        self.limit = if self.phase == Phase::Claiming {
            self.at
        } else {
            Cursor::END
        };
        if matches!(self.phase, Phase::Mapping | Phase::Unmapping(_)) {
            self.holders |= bit(self.who);
        }
        // The home is wiped before it runs again, and received pages belong to the receiver again.
        self.cleans = false;
        self.take_from_next();
    }

    /// Begins, or continues, to take the pages from a receiver `vm`. Returns whether `vm` has any
    /// of them.
    fn leave(&mut self, vm: VmId) -> bool {
        match self.phase {
            // The receiver loses a partial mapping; it may have written to these pages.
            Phase::Mapping if self.who == vm => {
                self.begin(Phase::Unmapping(None), Stage::Undo);
                true
            }
            Phase::Unmapping(_) | Phase::Relinquishing if self.who == vm => true,
            Phase::Mapping | Phase::Unmapping(_) | Phase::Reclaiming => self.is_held_by(vm),
            // planted: a VM's end leaves what it borrowed
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
