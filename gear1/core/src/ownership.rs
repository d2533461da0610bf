//! Who owns a VM's pages and who may use them: the one state machine for all memory that changes
//! hands after boot (DESIGN 4; Arm DEN0077A 1.1).
//!
//! Owns the transactions. What it says of pages stands in stage-2 descriptors
//! ([`PageState`]): that of the page's *home*, the VM that the manifest gave it to, and that of
//! the VM that borrowed or received it. The home's descriptor of a page that it cannot use is not
//! valid and names the transaction.
//!
//! | what happens | sender's page | receiver's page |
//! |---|---|---|
//! | share, lend, donate | Owned → SharedOwned, Lent, Donated | |
//! | retrieve what is shared or lent | | none → SharedBorrowed |
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
//! but to its home, so no chain of owners has to be undone. Requirements: G1-MEM-011 to G1-MEM-020.
//!
//! The caller holds the one lock over all of it. Each call looks at each page of one transaction
//! a bounded number of times, and at most at [`MAX_PAGES`].

use gear1_abi::boot::BootRegion;
use gear1_abi::id::{MAX_VMS, VmId};
use gear1_abi::layout::{PAGE_SIZE, el2::WINDOW_SIZE};

use crate::addr::{Ipa, Pa};
use crate::stage2::{Attributes, Edit, PageState, Stage2};
use crate::table::{LiveTables, MapError, TableMemory};

/// Transactions of the machine; each VM that may share memory has an equal part.
pub const MAX_TRANSACTIONS: usize = 32;
/// Most pages of one transaction: 2 MiB.
pub const MAX_PAGES: usize = 512;
/// Most ranges of one transaction: as many as its list, a table, holds.
const MAX_RANGES: usize = 512;
/// Most ranges of memory that is donated back: as many as one answer to its retrieval holds, for
/// the transaction ends with that.
pub const MAX_RETURNED: u16 = 250;
/// Bytes that a table of pages maps.
const TABLE_SPAN: u64 = 2 << 20;
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

/// What a transaction is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Both use it.
    #[default]
    Share,
    /// Only the receiver uses it, until it gives it back.
    Lend,
    /// The receiver gets it.
    Donate,
}

/// What the sender says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Which kind.
    pub kind: Kind,
    /// Who sends.
    pub sender: VmId,
    /// Who may retrieve.
    pub receiver: VmId,
    /// The sender's own number for it.
    pub tag: u64,
    /// The receiver may write (always, when it is donated).
    pub write: bool,
    /// It is wiped before it is retrieved.
    pub zero: bool,
    /// How many ranges it has.
    pub ranges: u16,
    /// How many pages they have.
    pub pages: u16,
    /// Bytes of the descriptor before its first range.
    pub header: u16,
}

/// What the receiver says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Wants to write.
    pub write: bool,
    /// Wants to execute.
    pub execute: bool,
    /// It is to be wiped when it is relinquished.
    pub zero_after: bool,
}

/// Where a transaction is. A number counts the pages that are wiped or cleaned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nobody's.
    #[default]
    Free,
    /// The sender has not said all ranges yet.
    Filling,
    /// The pages are the sender's no more, and being wiped or cleaned.
    Sending(u16),
    /// To be retrieved or reclaimed.
    Sent,
    /// Mapped in the receiver.
    Retrieved,
    /// The receiver has it no more; being wiped or cleaned.
    Relinquishing(u16),
    /// Being wiped or cleaned for the sender.
    Reclaiming(u16),
    /// Donated and retrieved. Counts the pages that have not come back.
    Given(u16),
    /// Taken from who received it; being wiped for its home.
    Returning(u16),
}

/// One transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Where it is.
    pub phase: Phase,
    /// What the sender says.
    pub offer: Offer,
    /// Ranges known so far.
    pub filled: u16,
    /// Pages known so far.
    counted: u16,
    /// What the receiver has said.
    request: Request,
    /// Makes its handle differ from those before it.
    serial: u32,
    /// It goes back to its home.
    returning: bool,
    list: Pa,
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
    type Tables<'a>: LiveTables
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

const fn bit(vm: VmId) -> u16 {
    1_u16.wrapping_shl(vm.index() as u32)
}

/// Returns the region that holds all of `size` bytes from `at`.
fn region_of(
    regions: &[BootRegion],
    at: u64,
    size: u64,
    start: impl Fn(&BootRegion) -> u64,
) -> Option<&BootRegion> {
    regions.iter().find(|region| {
        let offset = at.wrapping_sub(start(region));
        offset < region.size && size <= region.size.wrapping_sub(offset)
    })
}

/// Returns where `vm` sees the page at `pa`: where the manifest put it if it is its own, else at
/// its physical address.
fn ipa_of<V: Vms>(vms: &V, vm: VmId, pa: Pa) -> Ipa {
    match region_of(vms.regions(vm), pa.get(), PAGE_SIZE, |region| region.pa) {
        Some(region) => Ipa::new(pa.get().wrapping_sub(region.pa).wrapping_add(region.ipa)),
        None => Ipa::new(pa.get()),
    }
}

/// Returns range `index` of a list: its first page, and how many there are.
fn range<V: Vms>(vms: &mut V, transaction: &Transaction, index: u16) -> (Pa, u16) {
    let tables = vms.tables(transaction.offer.sender);
    let word = tables.read(transaction.list, usize::from(index) % MAX_RANGES);
    let first = (word >> COUNT_BITS).wrapping_mul(PAGE_SIZE);
    (Pa::new(first), word as u16)
}

/// Calls `visit` with each page of a transaction and its number, until that is refused.
fn each_page<V: Vms>(
    vms: &mut V,
    transaction: &Transaction,
    mut visit: impl FnMut(&mut V, Pa, u16) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut number: u16 = 0;
    // Bound: all ranges together have at most MAX_PAGES pages.
    for index in 0..transaction.filled {
        let (mut pa, count) = range(vms, transaction, index);
        for _ in 0..count {
            visit(vms, pa, number)?;
            number = number.wrapping_add(1);
            pa = Pa::new(pa.get().wrapping_add(PAGE_SIZE));
        }
    }
    Ok(())
}

fn edit_page<V: Vms>(vms: &mut V, vm: VmId, pa: Pa, edit: &Edit) -> Result<(), Error> {
    let ipa = ipa_of(vms, vm, pa);
    let stage2 = vms.stage2(vm);
    match stage2.edit(&mut vms.tables(vm), ipa, pa, edit) {
        Ok(true) => Ok(()),
        Err(MapError::NoTables) => Err(Error::NoMemory),
        Ok(false) | Err(MapError::Unaligned | MapError::OutOfRange | MapError::Occupied(_)) => {
            Err(Error::Denied)
        }
    }
}

fn tidy_page<V: Vms>(vms: &mut V, vm: VmId, pa: Pa) {
    let ipa = ipa_of(vms, vm, pa);
    vms.stage2(vm).tidy(&mut vms.tables(vm), ipa);
}

/// Takes away the tables of `vm` that the transaction's pages do not need any more.
fn tidy<V: Vms>(vms: &mut V, vm: VmId, transaction: &Transaction) {
    let mut last = None;
    let _all = each_page(vms, transaction, |vms, pa, _| {
        // Regions begin at multiples of 2 MiB, so pages of one table are one of these spans.
        let span = pa.align_down(TABLE_SPAN);
        if last != Some(span) {
            tidy_page(vms, vm, pa);
            last = Some(span);
        }
        Ok(())
    });
}

/// Changes all pages of a transaction in `vm`'s stage 2, or none.
#[inline(never)]
fn change<V: Vms>(
    vms: &mut V,
    vm: VmId,
    transaction: &Transaction,
    edit: &Edit,
) -> Result<(), Error> {
    let mut done = 0;
    let result = each_page(vms, transaction, |vms, pa, number| {
        edit_page(vms, vm, pa, edit)?;
        done = number.wrapping_add(1);
        Ok(())
    });
    if result.is_err() {
        let back = edit.reversed();
        let _undone = each_page(vms, transaction, |vms, pa, number| {
            if number < done {
                edit_page(vms, vm, pa, &back)
            } else {
                Err(Error::Denied)
            }
        });
    }
    if edit.takes_rights() || result.is_err() {
        vms.tables(vm).invalidate();
    }
    tidy(vms, vm, transaction);
    result
}

/// Changes one page that stays mapped in `vm`'s stage 2, or nothing.
fn change_page<V: Vms>(vms: &mut V, vm: VmId, pa: Pa, edit: &Edit) -> Result<(), Error> {
    let result = edit_page(vms, vm, pa, edit);
    tidy_page(vms, vm, pa);
    result
}

/// Returns the transaction that `home` donated the page at `pa` in.
fn donated_by<V: Vms>(vms: &mut V, home: VmId, pa: Pa) -> Option<usize> {
    let ipa = ipa_of(vms, home, pa);
    let stage2 = vms.stage2(home);
    let tag = stage2.tag(&vms.tables(home), ipa, PageState::Donated);
    tag.map(usize::from)
}

const fn edit(from: Option<PageState>, to: Option<PageState>, tag: usize) -> Edit {
    Edit {
        from,
        to,
        rights: Attributes::DATA,
        tag: tag as u8,
    }
}

const TO_BUFFER: Edit = edit(Some(PageState::Owned), Some(PageState::Buffer), 0);

impl Transaction {
    const FREE: Self = Self {
        phase: Phase::Free,
        offer: Offer {
            kind: Kind::Share,
            sender: VmId::FIRST,
            receiver: VmId::FIRST,
            tag: 0,
            write: false,
            zero: false,
            ranges: 0,
            pages: 0,
            header: 0,
        },
        request: Request {
            write: false,
            execute: false,
            zero_after: false,
        },
        serial: 0,
        returning: false,
        filled: 0,
        counted: 0,
        list: Pa::new(0),
    };

    /// Returns what sending does to the sender's pages.
    const fn sending(&self, index: usize) -> Edit {
        let (from, to) = match (self.offer.kind, self.returning) {
            (Kind::Share, _) => (PageState::Owned, PageState::SharedOwned),
            (Kind::Lend, _) => (PageState::Owned, PageState::Lent),
            (Kind::Donate, false) => (PageState::Owned, PageState::Donated),
            (Kind::Donate, true) => (PageState::Received, PageState::Donated),
        };
        edit(Some(from), Some(to), index)
    }

    /// Returns what retrieving does to the receiver's pages, unless they come home.
    const fn retrieving(&self) -> Edit {
        let to = match self.offer.kind {
            Kind::Share | Kind::Lend => PageState::SharedBorrowed,
            Kind::Donate => PageState::Received,
        };
        Edit {
            rights: Attributes {
                write: self.request.write,
                execute: self.request.execute,
                ..Attributes::DATA
            },
            ..edit(None, Some(to), 0)
        }
    }
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

    /// Returns the transaction that `vm` has begun a long step of.
    #[must_use]
    pub fn unfinished(&self, vm: VmId) -> Option<usize> {
        self.transactions.iter().position(|transaction| {
            let by = match transaction.phase {
                Phase::Sending(_) | Phase::Reclaiming(_) => transaction.offer.sender,
                Phase::Relinquishing(_) => transaction.offer.receiver,
                Phase::Free
                | Phase::Filling
                | Phase::Sent
                | Phase::Retrieved
                | Phase::Given(_)
                | Phase::Returning(_) => return false,
            };
            by == vm
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
        let homes = vms.regions(offer.receiver);
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

    /// Maps what was sent in the receiver. What comes home ends its transaction.
    pub fn retrieve<V: Vms>(
        &mut self,
        vms: &mut V,
        index: usize,
        request: Request,
    ) -> Result<(), Error> {
        let transaction = Transaction {
            request,
            ..self.transaction(index)
        };
        let offer = transaction.offer;
        if transaction.phase != Phase::Sent {
            return Err(Error::Denied);
        }
        if transaction.returning {
            return self.come_home(vms, index, &transaction);
        }
        change(vms, offer.receiver, &transaction, &transaction.retrieving())?;
        *self.slot(index) = Transaction {
            phase: match offer.kind {
                Kind::Share | Kind::Lend => Phase::Retrieved,
                Kind::Donate => Phase::Given(offer.pages),
            },
            ..transaction
        };
        Ok(())
    }

    /// Gives pages that were donated, and are donated back, to their home.
    fn come_home<V: Vms>(
        &mut self,
        vms: &mut V,
        index: usize,
        transaction: &Transaction,
    ) -> Result<(), Error> {
        let offer = transaction.offer;
        let home = offer.receiver;
        // The sender's pages were Received, so their home's are Donated: none is refused.
        each_page(vms, transaction, |vms, pa, _| {
            let tag = donated_by(vms, home, pa).ok_or(Error::Denied)?;
            let owned = edit(Some(PageState::Donated), Some(PageState::Owned), tag);
            edit_page(vms, home, pa, &owned)?;
            if let Phase::Given(left) = &mut self.slot(tag).phase {
                *left = left.saturating_sub(1);
            }
            Ok(())
        })?;
        tidy(vms, home, transaction);
        let gone = edit(Some(PageState::Donated), None, index);
        change(vms, offer.sender, transaction, &gone)?;
        self.free(vms, index);
        for index in 0..MAX_TRANSACTIONS {
            if self.transaction(index).phase == Phase::Given(0) {
                self.free(vms, index);
            }
        }
        Ok(())
    }

    /// Takes what the receiver borrowed out of its stage 2.
    pub fn relinquish<V: Vms>(
        &mut self,
        vms: &mut V,
        index: usize,
        zero: bool,
    ) -> Result<(), Error> {
        let transaction = self.transaction(index);
        if transaction.phase != Phase::Retrieved {
            return Err(Error::Denied);
        }
        if zero && (transaction.offer.kind == Kind::Share || !transaction.request.write) {
            return Err(Error::Invalid);
        }
        unmap(vms, &transaction)?;
        let slot = self.slot(index);
        slot.request.zero_after |= zero;
        slot.phase = Phase::Relinquishing(0);
        Ok(())
    }

    /// Gives the sender back what nobody has retrieved, or what a receiver has that does not run.
    /// It is wiped first, if `zero`.
    pub fn reclaim<V: Vms>(
        &mut self,
        vms: &mut V,
        index: usize,
        zero: bool,
        receiver_runs: bool,
    ) -> Result<(), Error> {
        let transaction = self.transaction(index);
        if zero && transaction.offer.kind == Kind::Share {
            return Err(Error::Invalid);
        }
        let zero_after = match transaction.phase {
            Phase::Sent if zero => true,
            Phase::Sent => return self.give_back(vms, index),
            Phase::Retrieved if !receiver_runs => {
                unmap(vms, &transaction)?;
                transaction.request.zero_after || zero
            }
            Phase::Relinquishing(_) if !receiver_runs => transaction.request.zero_after || zero,
            Phase::Free
            | Phase::Filling
            | Phase::Sending(_)
            | Phase::Retrieved
            | Phase::Relinquishing(_)
            | Phase::Reclaiming(_)
            | Phase::Given(_)
            | Phase::Returning(_) => return Err(Error::Denied),
        };
        let slot = self.slot(index);
        slot.request.zero_after = zero_after;
        slot.phase = Phase::Reclaiming(0);
        Ok(())
    }

    /// Ends a transaction that nobody has retrieved: the sender's pages are as before it.
    fn give_back<V: Vms>(&mut self, vms: &mut V, index: usize) -> Result<(), Error> {
        let transaction = self.transaction(index);
        let back = transaction.sending(index).reversed();
        change(vms, transaction.offer.sender, &transaction, &back)?;
        self.free(vms, index);
        Ok(())
    }

    /// Returns the next piece to wipe or clean, if the transaction waits for that.
    pub fn piece<V: Vms>(&self, vms: &mut V, index: usize) -> Option<Piece> {
        let transaction = self.transaction(index);
        let (done, zero) = match transaction.phase {
            Phase::Sending(done) => (done, transaction.offer.zero),
            Phase::Relinquishing(done) | Phase::Reclaiming(done) => {
                (done, transaction.request.zero_after)
            }
            Phase::Returning(done) => (done, true),
            Phase::Free | Phase::Filling | Phase::Sent | Phase::Retrieved | Phase::Given(_) => {
                return None;
            }
        };
        let is_returning = matches!(transaction.phase, Phase::Returning(_));
        let window = (WINDOW_SIZE / PAGE_SIZE) as u16;
        let mut found: Option<Piece> = None;
        let _until_the_end = each_page(vms, &transaction, |vms, pa, number| {
            // What has come home before belongs to another transaction, or to none.
            let skipped = number < done
                || (is_returning && donated_by(vms, transaction.offer.sender, pa) != Some(index));
            let done = number.wrapping_add(1);
            match &mut found {
                None if skipped => {}
                None => {
                    found = Some(Piece {
                        pa,
                        pages: 1,
                        zero,
                        done,
                    });
                }
                Some(piece) => {
                    let size = u64::from(piece.pages).wrapping_mul(PAGE_SIZE);
                    if skipped || piece.pages >= window || piece.pa.checked_add(size) != Some(pa) {
                        return Err(Error::Busy);
                    }
                    piece.pages = piece.pages.wrapping_add(1);
                    piece.done = done;
                }
            }
            Ok(())
        });
        found
    }

    /// Says that a piece was wiped or cleaned, or that none is left. Tells whether all is done.
    pub fn advance<V: Vms>(&mut self, vms: &mut V, index: usize, piece: Option<Piece>) -> bool {
        let transaction = self.slot(index);
        let total = transaction.offer.pages;
        let (Phase::Sending(done)
        | Phase::Relinquishing(done)
        | Phase::Reclaiming(done)
        | Phase::Returning(done)) = &mut transaction.phase
        else {
            return true;
        };
        *done = piece.map_or(total, |piece| piece.done);
        if *done < total {
            return false;
        }
        match transaction.phase {
            Phase::Reclaiming(_) => {
                // The pages are as sending left them, so this is not refused; if it were, they
                // would stay out of everybody's reach.
                let _back = self.give_back(vms, index);
            }
            Phase::Returning(_) => self.take_home(vms, index),
            Phase::Sending(_) | Phase::Relinquishing(_) => transaction.phase = Phase::Sent,
            Phase::Free | Phase::Filling | Phase::Sent | Phase::Retrieved | Phase::Given(_) => {}
        }
        true
    }

    /// Returns range `place` of a transaction as `vm` sees it, and its pages.
    pub fn range_for<V: Vms>(&self, vms: &mut V, index: usize, vm: VmId, place: u16) -> (Ipa, u16) {
        let (pa, count) = range(vms, &self.transaction(index), place);
        (ipa_of(vms, vm, pa), count)
    }
}

/// Takes what was borrowed out of the receiver's stage 2.
fn unmap<V: Vms>(vms: &mut V, transaction: &Transaction) -> Result<(), Error> {
    let gone = transaction.retrieving().reversed();
    change(vms, transaction.offer.receiver, transaction, &gone)
}

/// What the end of a VM does.
impl Ledger {
    /// Does one step towards what the manifest describes, as far as `vm` is concerned, which does
    /// not run: what it borrowed goes back; what it lent and donated comes back; and so does to
    /// its home, wiped, what it was given.
    pub fn release<V: Vms>(&mut self, vms: &mut V, vm: VmId) -> Release {
        if self.buffers(vm).is_some() {
            let _unmapped = self.unmap_buffers(vms, vm);
            return Release::More;
        }
        // Bound: the number of transactions, twice. What is on its way goes before what is given.
        let pending = (0..MAX_TRANSACTIONS).find_map(|i| self.release_pending(vms, vm, i));
        let release =
            pending.or_else(|| (0..MAX_TRANSACTIONS).find_map(|i| self.release_given(vms, vm, i)));
        release.unwrap_or(Release::Done)
    }

    /// Ends a transaction that is no donation for good.
    fn release_pending<V: Vms>(&mut self, vms: &mut V, vm: VmId, index: usize) -> Option<Release> {
        let transaction = self.transaction(index);
        let sender = transaction.offer.sender == vm;
        let receiver = transaction.offer.receiver == vm;
        match transaction.phase {
            Phase::Filling if sender => self.free(vms, index),
            Phase::Sending(_) | Phase::Sent | Phase::Reclaiming(_)
                if sender || (receiver && transaction.returning) =>
            {
                self.give_back(vms, index).ok()?;
            }
            Phase::Retrieved if sender => {
                unmap(vms, &transaction).ok()?;
                self.give_back(vms, index).ok()?;
            }
            Phase::Relinquishing(_) if sender => self.give_back(vms, index).ok()?,
            Phase::Retrieved if receiver => {
                unmap(vms, &transaction).ok()?;
                self.slot(index).phase = Phase::Relinquishing(0);
            }
            Phase::Relinquishing(_) if receiver => return Some(Release::Wipe(index)),
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
    fn release_given<V: Vms>(&mut self, vms: &mut V, vm: VmId, index: usize) -> Option<Release> {
        let transaction = self.transaction(index);
        if transaction.offer.sender != vm && transaction.offer.receiver != vm {
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
        let Offer {
            sender, receiver, ..
        } = transaction.offer;
        let gone = edit(Some(PageState::Received), None, 0);
        let _all = each_page(vms, transaction, |vms, pa, _| {
            if donated_by(vms, sender, pa) == Some(index) {
                edit_page(vms, receiver, pa, &gone)?;
            }
            Ok(())
        });
        vms.tables(receiver).invalidate();
        tidy(vms, receiver, transaction);
        self.slot(index).phase = Phase::Returning(0);
    }

    /// Gives what is left of a donation, which was wiped, back to its home.
    fn take_home<V: Vms>(&mut self, vms: &mut V, index: usize) {
        let transaction = self.transaction(index);
        let home = transaction.offer.sender;
        let owned = edit(Some(PageState::Donated), Some(PageState::Owned), index);
        let _all = each_page(vms, &transaction, |vms, pa, _| {
            if donated_by(vms, home, pa) == Some(index) {
                edit_page(vms, home, pa, &owned)?;
            }
            Ok(())
        });
        tidy(vms, home, &transaction);
        self.free(vms, index);
    }
}

/// The buffers that descriptors are passed in.
impl Ledger {
    /// Returns a VM's TX and RX page.
    #[must_use]
    pub fn buffers(&self, vm: VmId) -> Option<(Pa, Pa)> {
        self.buffers.get(vm.index()).copied().flatten()
    }

    fn set_buffers(&mut self, vm: VmId, buffers: Option<(Pa, Pa)>) {
        if let Some(slot) = self.buffers.get_mut(vm.index()) {
            *slot = buffers;
        }
        self.rx_taken &= !bit(vm);
    }

    /// Makes two pages of a VM's own memory its TX and RX buffer.
    pub fn map_buffers<V: Vms>(
        &mut self,
        vms: &mut V,
        vm: VmId,
        tx: Ipa,
        rx: Ipa,
    ) -> Result<(), Error> {
        if self.buffers(vm).is_some() {
            return Err(Error::Denied);
        }
        let regions = vms.regions(vm);
        let own = |ipa: Ipa| {
            let region = region_of(regions, ipa.get(), PAGE_SIZE, |region| region.ipa)?;
            let offset = ipa.get().wrapping_sub(region.ipa);
            let pa = Pa::new(region.pa.wrapping_add(offset));
            ipa.is_aligned(PAGE_SIZE).then_some(pa)
        };
        let (Some(tx), Some(rx)) = (own(tx), own(rx)) else {
            return Err(Error::Invalid);
        };
        if tx == rx {
            return Err(Error::Invalid);
        }
        change_page(vms, vm, tx, &TO_BUFFER)?;
        if let Err(error) = change_page(vms, vm, rx, &TO_BUFFER) {
            let _back = change_page(vms, vm, tx, &TO_BUFFER.reversed());
            return Err(error);
        }
        self.set_buffers(vm, Some((tx, rx)));
        Ok(())
    }

    /// Makes a VM's buffers ordinary memory again.
    pub fn unmap_buffers<V: Vms>(&mut self, vms: &mut V, vm: VmId) -> Result<(), Error> {
        let (tx, rx) = self.buffers(vm).ok_or(Error::Invalid)?;
        // They are Buffer pages with tables of their own: neither is refused.
        for pa in [tx, rx] {
            let _owned = change_page(vms, vm, pa, &TO_BUFFER.reversed());
        }
        self.set_buffers(vm, None);
        Ok(())
    }

    /// Returns the RX page to write to, unless the VM reads it still.
    pub fn rx(&self, vm: VmId) -> Result<Pa, Error> {
        match self.buffers(vm) {
            Some((_, rx)) if self.rx_taken & bit(vm) == 0 => Ok(rx),
            Some(_) | None => Err(Error::Busy),
        }
    }

    /// Gives the VM its RX buffer to read.
    pub const fn give_rx(&mut self, vm: VmId) {
        self.rx_taken |= bit(vm);
    }

    /// Takes the RX buffer back.
    pub const fn release_rx(&mut self, vm: VmId) -> Result<(), Error> {
        if self.rx_taken & bit(vm) == 0 {
            return Err(Error::Denied);
        }
        self.rx_taken &= !bit(vm);
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
