//! What the end of a VM does to memory that it shares. None of it can fail: a VM is started anew
//! only when nobody else has any of its memory, and it has nobody else's.
//!
//! Requirements: G1-MEM-017.

use gear1_abi::id::VmId;

use super::pages::{donated_by, edit, every_page, tidy, undo_page};
use super::{Ledger, MAX_TRANSACTIONS, Phase, Release, Transaction, Vms};
use crate::stage2::PageState;
use crate::table::LiveTables as _;

impl Ledger {
    /// Does one step towards what the manifest describes, as far as `vm` is concerned, which does
    /// not run: what it borrowed goes back; what it lent and donated comes back; and so does to
    /// its home, wiped, what it was given.
    pub fn release<V: Vms>(&mut self, vms: &mut V, vm: VmId) -> Release {
        if self.unmap_buffers(vms, vm) {
            return Release::More;
        }
        // Bound: the number of transactions, twice. What is on its way goes before what is given.
        let pending = (0..MAX_TRANSACTIONS).find_map(|i| self.release_pending(vms, vm, i));
        let release =
            pending.or_else(|| (0..MAX_TRANSACTIONS).find_map(|i| self.release_given(vms, vm, i)));
        release.unwrap_or(Release::Done)
    }

    /// Ends a transaction that is no donation for good.
    pub(super) fn release_pending<V: Vms>(
        &mut self,
        vms: &mut V,
        vm: VmId,
        index: usize,
    ) -> Option<Release> {
        let transaction = self.transaction(index);
        let sender = transaction.offer.sender == vm;
        let receiver = transaction.offer.is_for(vm);
        match transaction.phase {
            Phase::Filling if sender => self.free(vms, index),
            Phase::Sending(_) | Phase::Sent | Phase::Reclaiming(_)
                if sender || (receiver && transaction.returning) =>
            {
                self.give_back(vms, index);
            }
            Phase::Retrieved if sender => {
                self.unmap_all(vms, index);
                self.give_back(vms, index);
            }
            Phase::Relinquishing(_) if sender => self.give_back(vms, index),
            Phase::Retrieved if transaction.is_held_by(vm) => self.unmap(vms, index, vm),
            Phase::Relinquishing(_) if transaction.last == vm => return Some(Release::Wipe(index)),
            Phase::Free
            | Phase::Filling
            | Phase::Sending(_)
            | Phase::Sent
            | Phase::Retrieved
            | Phase::Relinquishing(_)
            | Phase::Reclaiming(_)
            | Phase::Given(_)
            | Phase::Returning(_) => return None,
        }
        Some(Release::More)
    }

    /// Takes back what was donated.
    pub(super) fn release_given<V: Vms>(
        &mut self,
        vms: &mut V,
        vm: VmId,
        index: usize,
    ) -> Option<Release> {
        let transaction = self.transaction(index);
        if transaction.offer.sender != vm && !transaction.offer.is_for(vm) {
            return None;
        }
        match transaction.phase {
            Phase::Given(_) => {
                self.take_away(vms, index, &transaction);
                Some(Release::More)
            }
            Phase::Returning(_) => Some(Release::Wipe(index)),
            Phase::Free
            | Phase::Filling
            | Phase::Sending(_)
            | Phase::Sent
            | Phase::Retrieved
            | Phase::Relinquishing(_)
            | Phase::Reclaiming(_) => None,
        }
    }

    /// Takes what is left of a donation from its receiver.
    fn take_away<V: Vms>(&mut self, vms: &mut V, index: usize, transaction: &Transaction) {
        let (sender, receiver) = (transaction.offer.sender, transaction.offer.receiver());
        let gone = edit(Some(PageState::Received), None, 0);
        every_page(vms, transaction, |vms, pa| {
            if donated_by(vms, sender, pa) == Some(index) {
                undo_page(vms, receiver, pa, &gone);
            }
        });
        vms.tables(receiver).invalidate();
        tidy(vms, receiver, transaction);
        self.slot(index).phase = Phase::Returning(0);
    }

    /// Gives what is left of a donation, which was wiped, back to its home.
    pub(super) fn take_home<V: Vms>(&mut self, vms: &mut V, index: usize) {
        let transaction = self.transaction(index);
        let home = transaction.offer.sender;
        let owned = edit(Some(PageState::Donated), Some(PageState::Owned), index);
        every_page(vms, &transaction, |vms, pa| {
            if donated_by(vms, home, pa) == Some(index) {
                undo_page(vms, home, pa, &owned);
            }
        });
        tidy(vms, home, &transaction);
        self.free(vms, index);
    }
}
