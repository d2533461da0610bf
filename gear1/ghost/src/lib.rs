//! Second specification of FF-A's memory calls. The *ghost* follows the calls of VMs and their
//! answers, and derives each VM's access to each page. A checker that runs beside Gear1 compares
//! the result with the stage-2 tables.
//!
//! Shares nothing with the implementation but the registers of a call and the format of
//! descriptors. The ghost has its own parser of FF-A's descriptors, its own walker of tables, and
//! its own model: pages are in no list, each names the transaction that it is in. The ghost judges
//! only calls that were done: a refusal must change nothing.
//!
//! Requirements: G1-MEM-011, G1-MEM-012, G1-MEM-016, G1-MEM-017.
//!
//! The crate has no heap, so that it can be part of Gear1's checking image (feature `check-ghost`
//! of the runtime). In that image Gear1 is under test, so this code may panic.
#![no_std]
#![forbid(unsafe_code)]

mod calls;
mod changes;
mod check;
mod pages;
pub mod walk;

pub use changes::Seen;

use pages::Pages;
use walk::{EXECUTE, READ, Tree, WRITE};

/// Bytes of a page, in Gear1's tables and in FF-A's descriptors.
const PAGE: u64 = 4096;
/// Pages that one block of 2 MiB has.
const SPAN: usize = 512;
/// Pages of a span that are looked at again together.
const GROUP: usize = 64;
/// Groups of pages that a span, and the descriptors of a table, have.
pub const GROUPS: usize = SPAN / GROUP;
/// Room of the ghost: VMs, pieces of their memory, and transactions at a time. A test or an image
/// that needs more is told [`Wrong::Room`].
const VMS: usize = 16;
const REGIONS: usize = 32;
const TRANSACTIONS: usize = 48;
/// Ranges of a descriptor that comes in fragments.
const RANGES: usize = 512;
/// Rights of a VM to its own memory.
const ALL: u8 = READ | WRITE | EXECUTE;

/// Difference between the ghost and Gear1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Gear1 did a call that must be refused: the function, the caller, and a number that tells the
    /// reason.
    Done(u32, usize, u32),
    /// A VM has other rights to a page than it must: the VM, the page (PA), the required rights,
    /// the actual rights.
    Access(usize, u64, u8, u8),
    /// A VM's tables name a different owner of a page: the VM, the page (PA), the required and the
    /// actual owner bits; see [`owner`].
    Owner(usize, u64, u8, u8),
    /// A VM sees another page in its place: the VM, the required page (PA), the actual one.
    Place(usize, u64, u64),
    /// A VM sees a page where it must not: who ([`NOBODY`]: Gear2), the page (PA), at which IPA.
    Alias(usize, u64, u64),
    /// The ghost has no room.
    Room,
}

/// Nothing, or the first difference: the state behind it means nothing.
type Checked = Result<(), Wrong>;

/// Number that stands for no VM.
pub const NOBODY: usize = VMS;

/// Values of bits 58:55 of a descriptor: the state of a page from the view of the descriptor's VM.
pub mod owner {
    /// No descriptor.
    pub const NONE: u8 = 0;
    /// Owned by the VM alone.
    pub const OWNED: u8 = 1;
    /// Owned by the VM, and shared.
    pub const SHARED: u8 = 2;
    /// Owned by another VM, shared with this one or lent to it.
    pub const BORROWED: u8 = 3;
    /// Owned by the VM, and lent.
    pub const LENT: u8 = 4;
    /// Donated: owned by the VM before, or received by it and on the way back.
    pub const DONATED: u8 = 5;
    /// Received by a donation.
    pub const RECEIVED: u8 = 6;
    /// Owned by the VM, and one of its buffers.
    pub const BUFFER: u8 = 7;
    /// Owned or received by the VM, which is sending it.
    pub const CLAIMED: u8 = 8;
}

impl Wrong {
    /// Returns the difference in words, and the numbers that belong to it, each with its name.
    #[must_use]
    pub const fn words(&self) -> (&'static str, [(&'static str, u64); 4]) {
        const NO: (&str, u64) = ("", 0);
        match *self {
            Self::Done(call, vm, why) => (
                "a call was done that must be refused",
                [
                    ("call", call as u64),
                    ("vm", vm as u64),
                    ("why", why as u64),
                    NO,
                ],
            ),
            Self::Access(vm, page, must, can) => (
                "a VM may use a page otherwise (1: read, 2: write, 4: execute)",
                [
                    ("vm", vm as u64),
                    ("page", page),
                    ("ghost", must as u64),
                    ("tables", can as u64),
                ],
            ),
            Self::Owner(vm, page, must, is) => (
                "a page belongs to another",
                [
                    ("vm", vm as u64),
                    ("page", page),
                    ("ghost", must as u64),
                    ("tables", is as u64),
                ],
            ),
            Self::Place(vm, page, is) => (
                "another page is in its place",
                [
                    ("vm", vm as u64),
                    ("page", page),
                    ("ghost", page),
                    ("tables", is),
                ],
            ),
            Self::Alias(vm, page, ipa) => (
                "a page is seen where it must not be",
                [("vm", vm as u64), ("page", page), ("tables", ipa), NO],
            ),
            Self::Room => ("the ghost has no room", [NO; 4]),
        }
    }
}

/// A VM's memory, in one piece.
#[derive(Clone, Copy, Debug, Default)]
struct Region {
    vm: usize,
    ipa: u64,
    pa: u64,
    /// Index of the first page, and number of pages.
    first: usize,
    pages: usize,
    /// Whether some of the memory may change hands, so that each page is followed.
    followed: bool,
    /// VMs, one bit each, that see the memory beside its own VM. Their rights are not checked.
    shown: u16,
    /// Whether all of the memory may be taken from its VM for a while.
    withdrawn: bool,
}

/// Transactions that a page is in, counted from 1; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Page {
    /// Transaction of the page's home.
    out: u8,
    /// Transaction by which a receiver gives the page back to its home.
    back: u8,
}

/// Kind of a transaction, by the call that sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Share,
    Lend,
    Donate,
}

/// Pages that a VM has sent to others, until it has them back. Sets of VMs have one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Transaction {
    /// Whether the entry holds a transaction.
    used: bool,
    /// Gear1's answer to the sender, by which all VMs name the transaction.
    handle: u64,
    kind: Kind,
    sender: usize,
    /// VMs that may retrieve the pages, and those of them that may write.
    receivers: u16,
    writers: u16,
    /// Current receivers, then those that write and those that execute.
    holders: u16,
    writing: u16,
    executing: u16,
    /// Number of pages.
    pages: usize,
    /// vCPUs whose calls that concern it are not done, one bit each: who has what is not settled.
    movers: Callers,
}

/// vCPUs of each VM, one bit each, that are in a call.
type Callers = [u8; VMS];

/// A descriptor of which more is to come.
#[derive(Clone, Copy, Debug)]
struct Draft {
    transaction: Transaction,
    /// Ranges so far: the sender's address (IPA), and the number of pages.
    ranges: [(u64, u64); RANGES],
    count: usize,
}

/// The whole state.
pub struct Ghost {
    /// Memory of VMs, as it was at boot.
    regions: [Region; REGIONS],
    region_count: usize,
    /// Stage 2 of each VM.
    trees: [Tree; VMS],
    /// Stage 2 of a VM that must see none of the followed memory.
    stranger: Option<Tree>,
    /// The first pages of VMs' buffers, counted from 1; 0: none.
    buffers: [[usize; 2]; VMS],
    pages: Pages,
    transactions: [Transaction; TRANSACTIONS],
    /// Descriptor of each VM that comes in fragments: FF-A lets a VM send one at a time.
    drafts: [Draft; VMS],
    /// VMs that are being reloaded: pages that concern them are not checked.
    ending: u16,
    /// vCPUs in a call that sends, or that maps or unmaps buffers: their VM's view of its memory is
    /// before, in or after the change until the call is done. All others must still have none of
    /// that memory.
    changing: Callers,
}

impl Default for Ghost {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns a VM's bit in a set of VMs.
fn bit(vm: usize) -> u16 {
    1 << vm
}

/// Words of a descriptor in a buffer. Gear1 copies each word once; the ghost gets the copy, since
/// the VM may write its buffer at any time.
struct Words<'a>(&'a [u64]);

impl Words<'_> {
    /// Returns `size` bytes at `at`, at most 8, as a number.
    fn field(&self, at: u64, size: u64) -> u64 {
        let word = self.0[at as usize / 8] >> (8 * (at % 8));
        if size == 8 {
            word
        } else {
            word & ((1 << (8 * size)) - 1)
        }
    }
}

impl Ghost {
    /// Returns the ghost of a machine without memory. Every field is a constant, so that the
    /// checking image has the ghost in its bss.
    pub const fn new() -> Self {
        const REGION: Region = Region {
            vm: 0,
            ipa: 0,
            pa: 0,
            first: 0,
            pages: 0,
            followed: false,
            shown: 0,
            withdrawn: false,
        };
        const TRANSACTION: Transaction = Transaction {
            used: false,
            handle: 0,
            kind: Kind::Share,
            sender: 0,
            receivers: 0,
            writers: 0,
            holders: 0,
            writing: 0,
            executing: 0,
            pages: 0,
            movers: [0; VMS],
        };
        const DRAFT: Draft = Draft {
            transaction: TRANSACTION,
            ranges: [(0, 0); RANGES],
            count: 0,
        };
        Self {
            regions: [REGION; REGIONS],
            region_count: 0,
            trees: [Tree { vtcr: 0, root: 0 }; VMS],
            stranger: None,
            buffers: [[0; 2]; VMS],
            pages: Pages::new(),
            transactions: [TRANSACTION; TRANSACTIONS],
            drafts: [DRAFT; VMS],
            ending: 0,
            changing: [0; VMS],
        }
    }

    /// Says that a VM, which may share memory, has some, of whole blocks of 2 MiB, and its stage 2.
    /// All memory is named before the first call: Gear1 gives none to a VM later.
    pub fn add(&mut self, vm: usize, tree: Tree, ipa: u64, pa: u64, size: u64) -> Checked {
        let pages = (size / PAGE) as usize;
        let first = self.pages.add(pages)?;
        self.push(Region {
            vm,
            ipa,
            pa,
            first,
            pages,
            followed: true,
            ..Region::default()
        })?;
        self.trees[vm] = tree;
        Ok(())
    }

    /// Says that a VM has memory that no call changes. Those `shown` to, bit per VM, see it too;
    /// `withdrawn`: it may be taken from the VM for a while, all at once.
    pub fn add_kept(
        &mut self,
        vm: usize,
        tree: Tree,
        (ipa, pa, size): (u64, u64, u64),
        shown: u16,
        withdrawn: bool,
    ) -> Checked {
        self.trees[vm] = tree;
        self.push(Region {
            vm,
            ipa,
            pa,
            first: 0,
            pages: (size / PAGE) as usize,
            followed: false,
            shown,
            withdrawn,
        })
    }

    /// Names the stage 2 of somebody who must see no VM's memory: Gear2's, in the checking image.
    /// The memory that Gear2 has of its own is no VM's.
    pub const fn add_stranger(&mut self, tree: Tree) {
        self.stranger = Some(tree);
    }

    /// Adds a region.
    fn push(&mut self, region: Region) -> Checked {
        let slot = self.regions.get_mut(self.region_count);
        *slot.ok_or(Wrong::Room)? = region;
        self.region_count += 1;
        Ok(())
    }

    /// Iterates over the memory that may change hands.
    fn followed(&self) -> impl Iterator<Item = &Region> {
        let regions = self.regions[..self.region_count].iter();
        regions.filter(|region| region.followed)
    }

    /// Returns the VM's own memory at one of its addresses.
    fn home_region(&self, vm: usize, ipa: u64) -> Option<&Region> {
        let mut regions = self.regions[..self.region_count].iter();
        regions.find(|r| r.vm == vm && ipa.wrapping_sub(r.ipa) < r.pages as u64 * PAGE)
    }

    /// Returns the page at a VM's address, and whether it is at home there. A received page is seen
    /// at its physical address.
    fn page_at(&self, vm: usize, ipa: u64) -> Option<(usize, bool)> {
        let number = |r: &Region, start: u64| r.first + ((ipa - start) / PAGE) as usize;
        if let Some(r) = self.home_region(vm, ipa) {
            return r.followed.then(|| (number(r, r.ipa), true));
        }
        let mut regions = self.followed();
        let r = regions.find(|r| ipa.wrapping_sub(r.pa) < r.pages as u64 * PAGE)?;
        Some((number(r, r.pa), false))
    }

    /// Returns the transaction with this handle.
    fn find(&self, handle: u64) -> Option<usize> {
        let mut all = self.transactions.iter();
        all.position(|t| t.used && t.handle == handle)
    }

    /// Notes a VM's buffers, as pages counted from 1; 0: it has none. Their spans are busy: a
    /// buffer's page may not be sent, and has owner bits of its own.
    fn set_buffers(&mut self, vm: usize, buffers: [usize; 2]) -> Checked {
        for (was, is) in self.buffers[vm].into_iter().zip(buffers) {
            if let Some(page) = was.checked_sub(1) {
                self.pages.count_one_less(page);
            }
            if let Some(page) = is.checked_sub(1) {
                self.pages.count_one(page)?;
            }
        }
        self.buffers[vm] = buffers;
        Ok(())
    }

    /// Tells whether a page is one of a VM's buffers.
    fn is_buffer(&self, vm: usize, page: usize) -> bool {
        self.buffers[vm].contains(&(page + 1))
    }

    /// Returns whether a VM of the transaction is being reloaded: the rights of the pages are not
    /// settled.
    fn is_settling(&self, out: u8) -> bool {
        let slot = out.checked_sub(1).map(usize::from);
        slot.is_some_and(|slot| {
            let t = &self.transactions[slot];
            (t.receivers | bit(t.sender)) & self.ending != 0
        })
    }

    /// Returns whether a call that concerns the transaction is not done: some vCPU of some VM is
    /// going to make it again.
    fn is_moving(&self, number: u8) -> bool {
        let slot = number.checked_sub(1).map(usize::from);
        slot.is_some_and(|slot| self.transactions[slot].movers != [0; VMS])
    }

    /// Notes that a VM is in no call any more: it ends, and none of its calls is made again.
    fn end_calls(&mut self, vm: usize) {
        self.changing[vm] = 0;
        for transaction in &mut self.transactions {
            transaction.movers[vm] = 0;
        }
    }

    /// Ends a transaction and removes its pages, those on their way back included: they are with
    /// their receiver again, or at home if that transaction ends as well.
    fn close(&mut self, slot: usize) -> Checked {
        let number = slot as u8 + 1;
        let mut from = 0;
        let is_in = |page: Page| page.back == number || page.out == number;
        while let Some(page) = self.pages.find(from, is_in) {
            if self.pages.get(page).back == number {
                self.pages.set_back(page, 0);
            }
            if self.pages.get(page).out == number {
                self.pages.set_out(page, 0)?;
            }
            from = page + 1;
        }
        self.transactions[slot] = Transaction::default();
        Ok(())
    }
}
