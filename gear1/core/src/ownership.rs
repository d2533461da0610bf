//! Ownership and use of VMs' pages: the one state machine for all memory that changes hands after
//! boot (Arm DEN0077A 1.1).
//!
//! Owns the transactions. The state of a page is in stage-2 descriptors
//! ([`PageState`](crate::stage2::PageState)): that of the page's *home*, the VM that the manifest
//! gave the page to, and that of the VM that borrowed or received it. The home's descriptor of a
//! page that the home cannot use is invalid and names the transaction.
//!
//! | event | sender's page | receiver's page |
//! |---|---|---|
//! | share, lend, donate | Owned → Claimed → SharedOwned, Lent, Donated | |
//! | retrieve after share or lend | | none → SharedBorrowed, in each receiver |
//! | relinquish | | SharedBorrowed → none |
//! | reclaim | SharedOwned, Lent, Donated → Owned | |
//! | retrieve after donate | (stays Donated) | none → Received |
//! | donate back | Received → Claimed → Donated | |
//! | retrieve after donate back | Donated → none | Donated → Owned |
//! | map and unmap buffers | Owned ↔ Buffer | |
//!
//! Invariants: a page changes only from the state that the table names, so no two transactions hold
//! one page; a refused call changes nothing, tables included; a page that a receiver has lost is
//! gone from every TLB before any other VM gets it; a received page is never passed on but to its
//! home, so no chain of owners has to be undone.
//!
//! *Calls that take rights away cannot fail.* Only a call that gives rights needs tables: to split
//! the block that contains the owner's page, and to make the table for a receiver's page. From then
//! on the page has a descriptor of its own, at level 3, until the page is back: pages are merged to
//! a block again only if all 512 of them are Owned, in their home. Hence relinquish, reclaim,
//! release and the way home only write existing descriptors, and free tables. The types enforce
//! this: all of these go through `pages::amend_pages`, which has no result, and which sees a VM's
//! tables as [`LiveTables`], through which no table can be made. Requirements: G1-MEM-011 to
//! G1-MEM-020.
//!
//! The caller holds the one lock over all of it during a step, and drops the lock between two
//! steps. `steps.rs` says how large a step may be, and why other calls may come in between.

mod buffers;
mod pages;
mod release;
mod responses;
mod steps;
mod transaction;

use gear1_abi::boot::BootRegion;
use gear1_abi::id::{MAX_VMS, VmId};
use gear1_abi::layout::PAGE_SIZE;

use crate::addr::{Ipa, Pa};
use crate::stage2::Stage2;
use crate::table::{Descriptors as _, LiveTables, TableMemory};
use buffers::Buffers;
use pages::{ipa_of, range, region_of, touches};
pub use release::Release;
pub use responses::Response;
pub use steps::Step;
use transaction::Stage;
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
/// Bytes of a range.
pub const RANGE_SIZE: u64 = 16;
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
    /// A resource is still in use.
    Busy,
}

/// Reason for which a call that takes rights away is refused: its arguments alone.
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

/// A piece of memory to wipe, or to clean from the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Address of the first page.
    pub pa: Pa,
    /// Pages, at most a window's.
    pub pages: u16,
    /// Whether to wipe the pages, not only to clean them.
    pub zero: bool,
}

/// The VMs' tables.
pub trait Vms {
    /// Tables of a VM.
    type Tables<'a>: TableMemory + LiveTables
    where
        Self: 'a;
    /// Returns the tables of `vm`; new tables are charged to `vm`.
    fn tables(&mut self, vm: VmId) -> Self::Tables<'_>;
    /// Returns the stage 2 of `vm`.
    fn stage2(&self, vm: VmId) -> Stage2;
    /// Returns the memory that the manifest gave to `vm`.
    fn regions(&self, vm: VmId) -> &'static [BootRegion];
}

/// All transactions, and the VMs' buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// VMs that may share memory, one bit each.
    members: u16,
    serial: u32,
    transactions: [Transaction; MAX_TRANSACTIONS],
    buffers: [Option<Buffers>; MAX_VMS],
    /// VMs that own their RX buffer, one bit each.
    rx_taken: u16,
    /// Answers that are being written to RX buffers.
    responses: [Option<Response>; MAX_VMS],
    /// VMs whose release has begun and is not done, one bit each.
    leaving: u16,
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

/// Returns the physical address of the `size` bytes that the sender sees at `ipa`, and whether they
/// go back to their home.
fn offered<V: Vms>(vms: &V, offer: &Offer, ipa: Ipa, size: u64) -> Result<(u64, bool), Error> {
    let owns = vms.regions(offer.sender);
    if let Some(region) = region_of(owns, ipa.get(), size, |region| region.ipa) {
        let offset = ipa.get().wrapping_sub(region.ipa);
        return Ok((offset.wrapping_add(region.pa), false));
    }
    // What is not the VM's own may not begin or end there: the search for it would split blocks.
    // planted: a range is the VM's own in part
    let is_partly_own = touches(owns, ipa.get(), size);
    // A VM sees what it has received at its physical address.
    let pa = ipa.get();
    let homes = vms.regions(offer.receiver());
    let comes_home =
        offer.kind == Kind::Donate && region_of(homes, pa, size, |region| region.pa).is_some();
    // planted: a VM shares another VM's memory
    if is_partly_own || !comes_home {
        return Err(Error::Denied);
    }
    Ok((pa, true))
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
            responses: [None; MAX_VMS],
            leaving: 0,
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

    /// Returns the answer that is being written for `vm`.
    #[must_use]
    pub fn response(&self, vm: VmId) -> Option<Response> {
        self.responses.get(vm.index()).copied().flatten()
    }

    /// Notes the progress of the answer.
    pub fn set_response(&mut self, vm: VmId, response: Option<Response>) {
        if let Some(slot) = self.responses.get_mut(vm.index()) {
            *slot = response;
        }
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

    /// Returns the transaction with a handle that `sender` may reclaim by: a handle is valid from
    /// the answer to the send on. A send that was cut off by the receiver's end has none, although
    /// its pages are still on their way back.
    #[must_use]
    pub fn find_sent(&self, handle: u64, sender: VmId) -> Option<usize> {
        self.find(handle).filter(|index| {
            let transaction = self.transaction(*index);
            // planted: reclaim does not ask whose it is
            let is_own = transaction.offer.sender == sender;
            // planted: a handle that nobody was told is valid
            is_own && transaction.is_sent
        })
    }

    /// Returns the transaction that `vm` is sending, in steps. There is at most one that a sender
    /// which keeps to FF-A can mean: its TX buffer is the hypervisor's until the call returns
    /// (DEN0077A 7.2.2).
    #[must_use]
    pub fn unfinished_send(&self, vm: VmId) -> Option<usize> {
        // Bound: MAX_TRANSACTIONS (32).
        self.transactions
            .iter()
            .position(|transaction| transaction.offer.sender == vm && transaction.is_being_sent())
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
        // Bound: MAX_TRANSACTIONS (32).
        // planted: a VM takes all transactions
        let index = (first..first.wrapping_add(part))
            .find(|index| self.transaction(*index).phase == Phase::Free)
            .ok_or(Error::NoMemory)?;
        // planted: a call goes on without enough tables
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

    /// Says that bytes `from` to `to` of the sender's TX page hold the next ranges.
    pub fn begin_fragment(&mut self, index: usize, from: u64, to: u64) -> Result<(), Error> {
        let transaction = self.slot(index);
        let left = transaction.offer.ranges.wrapping_sub(transaction.filled);
        let bytes = to.checked_sub(from).ok_or(Error::Invalid)?;
        if !bytes.is_multiple_of(RANGE_SIZE) || bytes / RANGE_SIZE > left.into() || to > PAGE_SIZE {
            return Err(Error::Invalid);
        }
        transaction.fragment = (from as u16, to as u16);
        Ok(())
    }

    /// Notes that `ranges` more ranges of the fragment were read.
    pub fn advance_fragment(&mut self, index: usize, ranges: u64) {
        let (at, _) = &mut self.slot(index).fragment;
        *at = at.wrapping_add(ranges.wrapping_mul(RANGE_SIZE) as u16);
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
        let (pa, returning) = offered(vms, &offer, ipa, size)?;
        if transaction.filled != 0 && transaction.returning != returning {
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

    /// Forgets a transaction that holds no pages, with the answers that are being written about it.
    pub fn free<V: Vms>(&mut self, vms: &mut V, index: usize) {
        let handle = self.handle(index);
        // Bound: MAX_VMS (16).
        // planted: an answer about nothing keeps an RX buffer
        for vm in each_vm(self.transaction(index).offer.receivers) {
            self.drop_response(vm, handle);
        }
        let transaction = self.slot(index);
        let sender = transaction.offer.sender;
        let list = transaction.list;
        *transaction = Transaction::FREE;
        vms.tables(sender).free(list);
    }

    /// Begins to send what all ranges have been said of. A refusal ends the transaction.
    ///
    /// A VM that leaves gets nothing: a peer that donates back what its home's release takes back
    /// would keep that release from its end. A VM that has stopped, but whose release has not
    /// begun, still gets what it is sent, like a VM that has not started yet; its release takes
    /// that back.
    pub fn send<V: Vms>(&mut self, vms: &mut V, index: usize) -> Result<(), Error> {
        let leaving = self.leaving;
        let transaction = self.slot(index);
        let offer = transaction.offer;
        let is_whole = transaction.counted == offer.pages && transaction.filled == offer.ranges;
        // planted: a VM that leaves is sent more
        let is_lost = offer.receivers & leaving != 0;
        if is_whole && !is_lost {
            transaction.begin(Phase::Claiming, Stage::Undo);
            return Ok(());
        }
        self.free(vms, index);
        Err(if is_whole {
            Error::Denied
        } else {
            Error::Invalid
        })
    }

    /// Begins to map a transaction in `vm`. A retrieval by the home ends the transaction.
    pub fn retrieve(&mut self, index: usize, vm: VmId, request: Request) -> Result<(), Error> {
        let transaction = self.slot(index);
        if !transaction.may_retrieve(vm) {
            return Err(Error::Denied);
        }
        if transaction.returning {
            transaction.unanswered &= !bit(vm);
            transaction.begin(Phase::Homing, Stage::Undo);
        } else {
            transaction.ask(vm, request);
        }
        Ok(())
    }

    /// Begins to remove the pages that `vm` borrowed from its stage 2. They are wiped or cleaned
    /// when the last receiver has given them back.
    pub fn relinquish(&mut self, index: usize, vm: VmId, zero: bool) -> Result<(), Refusal> {
        let transaction = self.slot(index);
        if transaction.phase != Phase::Retrieved {
            return Err(Refusal::Denied);
        }
        transaction.note_wipe(vm, zero)?;
        transaction.give_back(vm);
        Ok(())
    }

    /// Makes a step of another receiver's pass, behind which `vm` is to retrieve.
    pub fn retrieve_next<V: Vms>(
        &mut self,
        vms: &mut V,
        index: usize,
        vm: VmId,
        request: Request,
    ) -> Step {
        self.slot(index).turns.retrieve(vm, request);
        self.step(vms, index)
    }

    /// Makes a step of another receiver's pass, behind which `vm` is to give the pages back.
    pub fn relinquish_next<V: Vms>(
        &mut self,
        vms: &mut V,
        index: usize,
        vm: VmId,
        zero: bool,
    ) -> Result<Step, Refusal> {
        let transaction = self.slot(index);
        // Of two calls that wait, one may ask for a wipe.
        let waits = transaction.turns.relinquishing & bit(vm) != 0;
        let zero = zero || waits && transaction.is_given_back_by(vm, true);
        transaction.note_wipe(vm, zero)?;
        transaction.turns.relinquishing |= bit(vm);
        Ok(self.step(vms, index))
    }

    /// A retrieval of `vm` was refused: takes its turn away, and counts the refusal as answered.
    pub fn refuse(&mut self, index: usize, vm: VmId) {
        let transaction = self.slot(index);
        transaction.turns.retrieving &= !bit(vm);
        transaction.refused.forget(vm);
    }

    /// Begins to give pages back to the sender that nobody has retrieved, or that only receivers
    /// outside of `running` (one bit for each VM) have. The pages are wiped first if `zero`.
    pub fn reclaim(&mut self, index: usize, zero: bool, running: u16) -> Result<(), Refusal> {
        let transaction = self.slot(index);
        if zero && transaction.offer.kind == Kind::Share {
            return Err(Refusal::Invalid);
        }
        // A running receiver learns the result of its relinquish before the handle becomes invalid.
        if transaction.unanswered & running != 0 {
            return Err(Refusal::Denied);
        }
        let users = transaction.users().ok_or(Refusal::Denied)?;
        if users & running != 0 {
            return Err(Refusal::Denied);
        }
        // Requests for a wipe from before count only if a VM has retrieved the pages since.
        let was_out = transaction.phase != Phase::Sent;
        transaction.zero_after = zero || (transaction.zero_after && was_out);
        transaction.cleans = zero || was_out;
        // What is relinquished and being wiped is in nobody's tables.
        let is_relinquished = transaction.phase == Phase::Relinquishing;
        transaction.holders = if is_relinquished { 0 } else { users };
        transaction.take_from_next();
        Ok(())
    }

    /// Returns whether a reclaim continues the work under way. A call that asks for a wipe is
    /// refused if the work under way does not wipe.
    pub fn is_being_reclaimed(&self, index: usize, zero: bool) -> Result<bool, Refusal> {
        let transaction = self.transaction(index);
        if transaction.phase != Phase::Reclaiming {
            return Ok(false);
        }
        if zero && !transaction.zero_after {
            return Err(Refusal::Denied);
        }
        Ok(true)
    }

    /// Returns whether the last call of `vm` on a transaction is done without an answer to `vm`,
    /// which this is.
    pub fn answer(&mut self, index: usize, vm: VmId) -> bool {
        let unanswered = &mut self.slot(index).unanswered;
        let is_unanswered = *unanswered & bit(vm) != 0;
        *unanswered &= !bit(vm);
        is_unanswered
    }

    /// Drops the answers to calls of `vm`.
    fn forget_answers(&mut self, vm: VmId) {
        // Bound: MAX_TRANSACTIONS (32).
        for transaction in &mut self.transactions {
            transaction.unanswered &= !bit(vm);
            transaction.turns.forget(vm);
            transaction.refused.forget(vm);
        }
        self.set_response(vm, None);
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
