//! Who owns a VM's pages and who may use them: the one state machine for all memory that changes
//! hands after boot (Arm DEN0077A 1.1).
//!
//! Owns the transactions. What it says of pages stands in stage-2 descriptors
//! ([`PageState`]): that of the page's *home*, the VM that the manifest gave it to, and that of
//! the VM that borrowed or received it. The home's descriptor of a page that it cannot use is not
//! valid and names the transaction.
//!
//! | what happens | sender's page | receiver's page |
//! |---|---|---|
//! | share, lend, donate | Owned → SharedOwned, Lent, Donated | |
//! | retrieve what is shared or lent | | none → SharedBorrowed, in each receiver |
//! | relinquish | | SharedBorrowed → none |
//! | reclaim | SharedOwned, Lent, Donated → Owned | |
//! | retrieve what is donated | (stays Donated) | none → Received |
//! | donate back | Received → Donated | |
//! | retrieve what is donated back | Donated → none | Donated → Owned |
//! | map and unmap buffers | Owned ↔ Buffer | |
//!
//! Invariants: a page is changed only from the state that the table names, so no two transactions
//! hold one page; what is refused changes nothing, tables included; a page that a receiver has
//! lost is gone from every TLB before anybody else gets it; what was received is never passed on
//! but to its home, so no chain of owners has to be undone.
//!
//! *What takes rights away cannot fail.* Tables are needed to give something only: to split the
//! block that a page of the owner's stands in, and to make the table that a receiver's page stands
//! in. From then on the page has a descriptor of its own, at level 3, until it is back: pages are
//! put together to a block again only if all 512 of them are Owned, in their home. So to
//! relinquish, to reclaim, to release and to come home writes descriptors that are there, and frees
//! tables. The types say so: all of that goes through `pages::undo`, which has no result, and which
//! sees a VM's tables as [`LiveTables`], that none can be made with. Requirements: G1-MEM-011 to
//! G1-MEM-020.
//!
//! The caller holds the one lock over all of it. Each call looks at each page of one transaction
//! a bounded number of times, and at most at [`MAX_PAGES`].

mod buffers;
mod cleaning;
mod pages;
mod release;
mod transaction;

use gear1_abi::boot::BootRegion;
use gear1_abi::id::{MAX_VMS, VmId};
use gear1_abi::layout::PAGE_SIZE;

use crate::addr::{Ipa, Pa};
use crate::stage2::{PageState, Stage2};
use crate::table::{Descriptors as _, LiveTables, TableMemory};
use pages::{
    change, donated_by, edit, every_page, ipa_of, range, region_of, tidy, undo, undo_page,
};
pub use transaction::{Kind, Offer, Phase, Request, Transaction};

/// Transactions of the machine; each VM that may share memory has an equal part.
pub const MAX_TRANSACTIONS: usize = 32;
/// Most pages of one transaction: 2 MiB.
pub const MAX_PAGES: usize = 512;
/// Most ranges of one transaction: as many as its list, a table, holds.
const MAX_RANGES: usize = 512;
/// Most ranges of memory that is donated back: as many as one answer to its retrieval holds, for
/// the transaction ends with that.
pub const MAX_RETURNED: u16 = 250;
/// A range is kept as its first page's number, and below it how many pages it has.
const COUNT_BITS: u32 = 16;
/// Handles are allocated by the hypervisor.
const HANDLE: u64 = 1 << 63;
const SERIAL_SHIFT: u32 = 8;

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// An argument makes no sense.
    Invalid,
    /// No transaction or table is left, or the transaction is too large.
    NoMemory,
    /// The caller may not.
    Denied,
    /// Somebody still uses what is needed.
    Busy,
}

/// Why a call that takes rights away is refused: by what it says alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An argument makes no sense.
    Invalid,
    /// The caller may not.
    Denied,
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid => Self::Invalid,
            Refusal::Denied => Self::Denied,
        }
    }
}

/// A piece of memory that is to be wiped, or whose caches are to be cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins.
    pub pa: Pa,
    /// Pages, at most a window's.
    pub pages: u16,
    /// Wiped, not only cleaned.
    pub zero: bool,
    /// How many of the transaction's pages are done afterwards.
    done: u16,
}

/// The VMs' tables.
pub trait Vms {
    /// A VM's.
    type Tables<'a>: TableMemory + LiveTables
    where
        Self: 'a;
    /// Returns the tables of `vm`: what is allocated is its own.
    fn tables(&mut self, vm: VmId) -> Self::Tables<'_>;
    /// Returns its stage 2.
    fn stage2(&self, vm: VmId) -> Stage2;
    /// Returns the memory that the manifest gave it.
    fn regions(&self, vm: VmId) -> &'static [BootRegion];
}

/// What became of a step of [`Ledger::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The VM's memory is as the manifest says.
    Done,
    /// Something is left.
    More,
    /// The transaction has memory to wipe first.
    Wipe(usize),
}

/// All transactions, and the VMs' buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Which VMs may share memory: bit per VM.
    members: u16,
    serial: u32,
    transactions: [Transaction; MAX_TRANSACTIONS],
    /// Each VM's TX and RX pages.
    buffers: [Option<(Pa, Pa)>; MAX_VMS],
    /// The VMs whose RX buffer is their own: bit per VM.
    rx_taken: u16,
}

/// Returns a VM's bit in a set of them.
#[must_use]
pub const fn bit(vm: VmId) -> u16 {
    1_u16.wrapping_shl(vm.index() as u32)
}

/// Returns the VMs of a set. Bound: [`MAX_VMS`].
pub fn each_vm(mut set: u16) -> impl Iterator<Item = VmId> {
    core::iter::from_fn(move || {
        let vm = VmId::from_reg(set.trailing_zeros().into())?;
        set &= set.wrapping_sub(1);
        Some(vm)
    })
}

impl Ledger {
    /// The ledger of a machine where nobody shares memory.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            members: 0,
            serial: 0,
            transactions: [Transaction::FREE; MAX_TRANSACTIONS],
            buffers: [None; MAX_VMS],
            rx_taken: 0,
        }
    }

    /// Says which VMs, bit per VM, may share memory. Called before the first of them runs.
    pub const fn configure(&mut self, members: u16) {
        self.members = members;
    }

    /// Returns the transaction at `index`.
    #[must_use]
    pub fn transaction(&self, index: usize) -> Transaction {
        let found = self.transactions.get(index).copied();
        found.unwrap_or(Transaction::FREE)
    }

    #[cfg_attr(
        not(test),
        expect(clippy::indexing_slicing, reason = "the remainder is in bounds")
    )]
    fn slot(&mut self, index: usize) -> &mut Transaction {
        // An index is always this small; the remainder says so to the compiler.
        &mut self.transactions[index % MAX_TRANSACTIONS]
    }

    /// Returns the handle of the transaction at `index`.
    #[must_use]
    pub fn handle(&self, index: usize) -> u64 {
        let serial = u64::from(self.transaction(index).serial);
        HANDLE | serial << SERIAL_SHIFT | index as u64
    }

    /// Returns the transaction with this handle.
    #[must_use]
    pub fn find(&self, handle: u64) -> Option<usize> {
        let index = (handle & 0xff) as usize;
        let is_used = self.transaction(index).phase != Phase::Free;
        (index < MAX_TRANSACTIONS && is_used && self.handle(index) == handle).then_some(index)
    }

    /// Returns the transaction that `vm` is sending, in steps. There is at most one that a sender
    /// which keeps to FF-A can mean: its TX buffer is the hypervisor's until the call returns
    /// (DEN0077A 7.2.2).
    #[must_use]
    pub fn unfinished_send(&self, vm: VmId) -> Option<usize> {
        self.transactions.iter().position(|transaction| {
            let is_sending = matches!(transaction.phase, Phase::Sending(_));
            is_sending && transaction.offer.sender == vm
        })
    }

    /// Begins a transaction, whose ranges follow.
    pub fn begin<V: Vms>(&mut self, vms: &mut V, offer: Offer) -> Result<usize, Error> {
        if offer.pages == 0 || offer.ranges == 0 || offer.ranges > offer.pages {
            return Err(Error::Invalid);
        }
        if usize::from(offer.pages) > MAX_PAGES {
            return Err(Error::NoMemory);
        }
        let part = MAX_TRANSACTIONS.checked_div(self.members.count_ones() as usize);
        let part = part.unwrap_or(0);
        let below = self.members & bit(offer.sender).wrapping_sub(1);
        let first = part.wrapping_mul(below.count_ones() as usize);
        let index = (first..first.wrapping_add(part))
            .find(|index| self.transaction(*index).phase == Phase::Free)
            .ok_or(Error::NoMemory)?;
        let list = vms.tables(offer.sender).alloc().ok_or(Error::NoMemory)?;
        self.serial = self.serial.wrapping_add(1);
        *self.slot(index) = Transaction {
            phase: Phase::Filling,
            offer,
            serial: self.serial,
            list,
            ..Transaction::FREE
        };
        Ok(index)
    }

    /// Adds the range of `count` pages at the sender's address `ipa`.
    pub fn push<V: Vms>(
        &mut self,
        vms: &mut V,
        index: usize,
        ipa: Ipa,
        count: u32,
    ) -> Result<(), Error> {
        let transaction = self.slot(index);
        let offer = transaction.offer;
        let counted = u32::from(transaction.counted).saturating_add(count);
        let size = u64::from(count).wrapping_mul(PAGE_SIZE);
        let fits = counted <= offer.pages.into() && ipa.checked_add(size).is_some();
        if !ipa.is_aligned(PAGE_SIZE) || count == 0 || !fits {
            return Err(Error::Invalid);
        }
        let own = region_of(vms.regions(offer.sender), ipa.get(), size, |region| {
            region.ipa
        });
        let pa = match own {
            Some(region) => ipa.get().wrapping_sub(region.ipa).wrapping_add(region.pa),
            None => ipa.get(),
        };
        let returning = own.is_none();
        let mixed = transaction.filled != 0 && transaction.returning != returning;
        let homes = vms.regions(offer.receiver());
        let comes_home =
            offer.kind == Kind::Donate && region_of(homes, pa, size, |region| region.pa).is_some();
        if mixed || (returning && !comes_home) {
            return Err(Error::Denied);
        }
        if returning && transaction.filled >= MAX_RETURNED {
            return Err(Error::NoMemory);
        }
        let place = usize::from(transaction.filled);
        transaction.returning = returning;
        // Ranges are not empty, so there are no more of them than pages.
        transaction.filled = transaction.filled.wrapping_add(1);
        transaction.counted = counted as u16;
        let word = (pa / PAGE_SIZE) << COUNT_BITS | u64::from(count);
        let list = transaction.list;
        vms.tables(offer.sender)
            .write(list, place % MAX_RANGES, word);
        Ok(())
    }

    /// Forgets a transaction that holds no pages.
    pub fn free<V: Vms>(&mut self, vms: &mut V, index: usize) {
        let transaction = self.slot(index);
        let (sender, list) = (transaction.offer.sender, transaction.list);
        *transaction = Transaction::FREE;
        vms.tables(sender).free(list);
    }

    /// Sends what all ranges have been said of: the pages change. A refusal ends the transaction.
    pub fn send<V: Vms>(&mut self, vms: &mut V, index: usize) -> Result<(), Error> {
        let transaction = self.transaction(index);
        let offer = transaction.offer;
        let result = if transaction.counted == offer.pages && transaction.filled == offer.ranges {
            change(vms, offer.sender, &transaction, &transaction.sending(index))
        } else {
            Err(Error::Invalid)
        };
        match result {
            Ok(()) => self.slot(index).phase = Phase::Sending(0),
            Err(_) => self.free(vms, index),
        }
        result
    }

    /// Maps what was sent in `vm`. What comes home ends its transaction.
    pub fn retrieve<V: Vms>(
        &mut self,
        vms: &mut V,
        index: usize,
        vm: VmId,
        request: Request,
    ) -> Result<(), Error> {
        let mut transaction = self.transaction(index);
        let offer = transaction.offer;
        if !transaction.may_retrieve(vm) {
            return Err(Error::Denied);
        }
        if transaction.returning {
            self.come_home(vms, index, &transaction);
            return Ok(());
        }
        transaction.hold(vm, request);
        change(vms, vm, &transaction, &transaction.retrieving(vm))?;
        transaction.phase = match offer.kind {
            Kind::Share | Kind::Lend => Phase::Retrieved,
            Kind::Donate => Phase::Given(offer.pages),
        };
        *self.slot(index) = transaction;
        Ok(())
    }

    /// Gives pages that were donated, and are donated back, to their home.
    fn come_home<V: Vms>(&mut self, vms: &mut V, index: usize, transaction: &Transaction) {
        let offer = transaction.offer;
        let home = offer.receiver();
        every_page(vms, transaction, |vms, pa| {
            // The sender's pages were Received, so their home's are Donated.
            if let Some(tag) = donated_by(vms, home, pa) {
                let owned = edit(Some(PageState::Donated), Some(PageState::Owned), tag);
                undo_page(vms, home, pa, &owned);
                if let Phase::Given(left) = &mut self.slot(tag).phase {
                    *left = left.saturating_sub(1);
                }
            }
        });
        tidy(vms, home, transaction);
        let gone = edit(Some(PageState::Donated), None, index);
        undo(vms, offer.sender, transaction, &gone);
        self.free(vms, index);
        for index in 0..MAX_TRANSACTIONS {
            if self.transaction(index).phase == Phase::Given(0) {
                self.free(vms, index);
            }
        }
    }

    /// Takes what `vm` borrowed out of its stage 2. It is wiped or cleaned when the last receiver
    /// has given it back.
    pub fn relinquish<V: Vms>(
        &mut self,
        vms: &mut V,
        index: usize,
        vm: VmId,
        zero: bool,
    ) -> Result<(), Refusal> {
        let transaction = self.transaction(index);
        if transaction.phase != Phase::Retrieved || !transaction.is_held_by(vm) {
            return Err(Refusal::Denied);
        }
        if zero && (transaction.offer.kind == Kind::Share || transaction.writing & bit(vm) == 0) {
            return Err(Refusal::Invalid);
        }
        self.unmap(vms, index, vm);
        self.slot(index).zero_after |= zero;
        Ok(())
    }

    /// Takes what `vm` borrowed, and its pages are in, out of its stage 2.
    fn unmap<V: Vms>(&mut self, vms: &mut V, index: usize, vm: VmId) {
        let transaction = self.transaction(index);
        let gone = transaction.retrieving(vm).reversed();
        undo(vms, vm, &transaction, &gone);
        let slot = self.slot(index);
        slot.holders &= !bit(vm);
        if slot.holders == 0 {
            (slot.phase, slot.last) = (Phase::Relinquishing(0), vm);
        }
    }

    /// The same for all that have it.
    fn unmap_all<V: Vms>(&mut self, vms: &mut V, index: usize) {
        // Bound: MAX_RECEIVERS.
        each_vm(self.transaction(index).holders).for_each(|vm| self.unmap(vms, index, vm));
    }

    /// Gives the sender back what nobody has retrieved, or what only receivers have that are not
    /// among those `running`, bit per VM. It is wiped first, if `zero`.
    pub fn reclaim<V: Vms>(
        &mut self,
        vms: &mut V,
        index: usize,
        zero: bool,
        running: u16,
    ) -> Result<(), Refusal> {
        let transaction = self.transaction(index);
        if zero && transaction.offer.kind == Kind::Share {
            return Err(Refusal::Invalid);
        }
        match transaction.phase {
            Phase::Sent if zero => {}
            Phase::Sent => {
                self.give_back(vms, index);
                return Ok(());
            }
            Phase::Retrieved if transaction.holders & running == 0 => self.unmap_all(vms, index),
            Phase::Relinquishing(_) if bit(transaction.last) & running == 0 => {}
            Phase::Free
            | Phase::Filling
            | Phase::Sending(_)
            | Phase::Retrieved
            | Phase::Relinquishing(_)
            | Phase::Reclaiming(_)
            | Phase::Given(_)
            | Phase::Returning(_) => return Err(Refusal::Denied),
        }
        let slot = self.slot(index);
        // What was asked of it before is void if nobody has retrieved it since.
        slot.zero_after = zero || (slot.zero_after && transaction.phase != Phase::Sent);
        slot.phase = Phase::Reclaiming(0);
        Ok(())
    }

    /// Ends a transaction that nobody has retrieved: the sender's pages are as before it.
    fn give_back<V: Vms>(&mut self, vms: &mut V, index: usize) {
        let transaction = self.transaction(index);
        let back = transaction.sending(index).reversed();
        undo(vms, transaction.offer.sender, &transaction, &back);
        self.free(vms, index);
    }

    /// Returns range `place` of a transaction as `vm` sees it, and its pages.
    pub fn range_for<V: Vms>(&self, vms: &mut V, index: usize, vm: VmId, place: u16) -> (Ipa, u16) {
        let (pa, count) = range(vms, &self.transaction(index), place);
        (ipa_of(vms, vm, pa), count)
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
