//! What FF-A's memory calls must do to pages, written down a second time: the *ghost* follows the calls
//! of VMs and their answers, and says of each page what each VM may do with it. Whoever runs it beside
//! Gear1 compares that with what the stage-2 tables say.
//!
//! Shares nothing with the implementation but the registers of a call. Its own are the parser of
//! descriptors, the walker of tables, and the model: pages are in no list, each says which
//! transaction it is in. It judges only calls that were done: a refusal must change nothing.
//!
//! Requirements: G1-MEM-011, G1-MEM-012, G1-MEM-016, G1-MEM-017.
//!
//! It has no heap, so that it can stand in Gear1's checking image; there it is Gear1 that is
//! on trial, so this code may panic.
#![no_std]
#![forbid(unsafe_code)]

pub mod walk;

use gear1_abi::regs::Regs;
use walk::{EXECUTE, Last, READ, Tree, WRITE};

const PAGE: u64 = 4096;
/// Pages that are followed.
const PAGES: usize = 13 * 1024;
/// Pages that one block of 2 MiB has.
const SPAN: usize = 512;
const VMS: usize = 16;
const TRANSACTIONS: usize = 48;
/// Ranges of a descriptor that comes in fragments.
const RANGES: usize = 512;
const ALL: u8 = READ | WRITE | EXECUTE;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A call was done that must be refused: the function, who called, and a number that says why.
    Done(u32, usize, u32),
    /// A VM sees a page otherwise: who, the page (PA), what it should be able to do, what it can.
    Access(usize, u64, u8, u8),
    /// A VM sees another page in its place: who, the page (PA), what is there.
    Place(usize, u64, u64),
    /// The ghost has no room.
    Room,
}

type Checked = Result<(), Wrong>;

/// A VM's memory, in one piece.
#[derive(Clone, Copy, Debug, Default)]
struct Region {
    vm: usize,
    ipa: u64,
    pa: u64,
    /// Its first page, and how many it has.
    first: usize,
    pages: usize,
}

/// Which transactions a page is in, counted from 1; 0: none.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    /// Its home's.
    out: u8,
    /// That of who was given it, back to its home.
    back: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Share,
    Lend,
    Donate,
}

#[derive(Clone, Copy, Debug, Default)]
struct Transaction {
    used: bool,
    handle: u64,
    kind: Kind,
    sender: usize,
    receivers: u16,
    writers: u16,
    /// Who has it now, and how.
    holders: u16,
    writing: u16,
    executing: u16,
    pages: usize,
}

/// A descriptor of which more is to come, or whose call is not done.
#[derive(Clone, Copy, Debug)]
struct Draft {
    transaction: Transaction,
    ranges: [(u64, u64); RANGES],
    count: usize,
    /// The pages are out already: the slot.
    sent: Option<usize>,
}

/// The whole state.
pub struct Ghost {
    regions: [Region; VMS],
    region_count: usize,
    trees: [Tree; VMS],
    pages: [Page; PAGES],
    page_count: usize,
    /// How many pages of a span are in a transaction.
    busy: [u16; PAGES / SPAN],
    transactions: [Transaction; TRANSACTIONS],
    drafts: [Draft; VMS],
    /// Who is being loaded anew: what concerns it is not looked at.
    ending: u16,
}

impl Default for Ghost {
    fn default() -> Self {
        Self::new()
    }
}

fn bit(vm: usize) -> u16 {
    1 << vm
}

/// A descriptor as it lies in a buffer.
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
    /// Nobody has memory.
    pub const fn new() -> Self {
        const REGION: Region = Region {
            vm: 0,
            ipa: 0,
            pa: 0,
            first: 0,
            pages: 0,
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
        };
        const DRAFT: Draft = Draft {
            transaction: TRANSACTION,
            ranges: [(0, 0); RANGES],
            count: 0,
            sent: None,
        };
        Self {
            regions: [REGION; VMS],
            region_count: 0,
            trees: [Tree { vtcr: 0, root: 0 }; VMS],
            pages: [Page { out: 0, back: 0 }; PAGES],
            page_count: 0,
            busy: [0; PAGES / SPAN],
            transactions: [TRANSACTION; TRANSACTIONS],
            drafts: [DRAFT; VMS],
            ending: 0,
        }
    }

    /// Says that a VM has memory, of whole blocks of 2 MiB, and its stage 2.
    pub fn add(&mut self, vm: usize, tree: Tree, ipa: u64, pa: u64, size: u64) -> Checked {
        let pages = (size / PAGE) as usize;
        if self.region_count == VMS
            || self.page_count + pages > PAGES
            || !pages.is_multiple_of(SPAN)
        {
            return Err(Wrong::Room);
        }
        self.trees[vm] = tree;
        self.regions[self.region_count] = Region {
            vm,
            ipa,
            pa,
            first: self.page_count,
            pages,
        };
        self.region_count += 1;
        self.page_count += pages;
        Ok(())
    }

    fn home_region(&self, vm: usize, ipa: u64) -> Option<&Region> {
        let mut regions = self.regions[..self.region_count].iter();
        regions.find(|r| r.vm == vm && ipa.wrapping_sub(r.ipa) < r.pages as u64 * PAGE)
    }

    /// Returns the page at a VM's address, and whether it is at home there.
    fn page_at(&self, vm: usize, ipa: u64) -> Option<(usize, bool)> {
        if let Some(r) = self.home_region(vm, ipa) {
            return Some((r.first + ((ipa - r.ipa) / PAGE) as usize, true));
        }
        let mut regions = self.regions[..self.region_count].iter();
        let r = regions.find(|r| ipa.wrapping_sub(r.pa) < r.pages as u64 * PAGE)?;
        Some((r.first + ((ipa - r.pa) / PAGE) as usize, false))
    }

    fn find(&self, handle: u64) -> Option<usize> {
        let mut all = self.transactions.iter();
        all.position(|t| t.used && t.handle == handle)
    }

    fn set_out(&mut self, page: usize, out: u8) {
        let was = self.pages[page].out;
        self.busy[page / SPAN] += u16::from(out != 0 && was == 0);
        self.busy[page / SPAN] -= u16::from(out == 0 && was != 0);
        self.pages[page].out = out;
    }

    /// Ends a transaction: its pages are in it no more.
    fn close(&mut self, slot: usize) {
        let number = slot as u8 + 1;
        for page in 0..self.page_count {
            if self.pages[page].back == number {
                self.pages[page].back = 0;
            }
            if self.pages[page].out == number {
                self.set_out(page, 0);
            }
        }
        self.transactions[slot] = Transaction::default();
    }
}

/// Calls.
impl Ghost {
    /// Follows a call of `vm` with these registers and this descriptor in its TX buffer. `answer`:
    /// X0 to X7, or nothing if the call is going to be made again. `running`: bit per VM.
    pub fn call(
        &mut self,
        vm: usize,
        regs: &Regs,
        tx: &[u64],
        answer: Option<&Regs>,
        running: u16,
    ) -> Checked {
        let id = regs[0] as u32 & !0x4000_0000;
        let is_error = answer.is_some_and(|x| x[0] == 0x8400_0060);
        let is_send = matches!(id, 0x8400_0071..=0x8400_0073);
        if is_error {
            if is_send || id == 0x8400_007b {
                self.forget(vm);
            }
            return Ok(());
        }
        let wrong = |why| Err(Wrong::Done(id, vm, why));
        match id {
            0x8400_0071..=0x8400_0073 => self.send(id, vm, regs, &Words(tx), answer),
            0x8400_007b => self.fragment(id, vm, regs, &Words(tx), answer),
            0x8400_0074 => self.retrieve(id, vm, &Words(tx)),
            0x8400_0076 => {
                let words = Words(tx);
                let Some(slot) = self.find(words.field(0, 8)) else {
                    return wrong(1);
                };
                let t = &mut self.transactions[slot];
                // It has lost it at the first step already.
                if t.receivers & bit(vm) == 0 || t.kind == Kind::Donate {
                    return wrong(2);
                }
                t.holders &= !bit(vm);
                Ok(())
            }
            0x8400_0077 => {
                let Some(slot) = self.find(regs[2] << 32 | regs[1] & 0xffff_ffff) else {
                    return wrong(3);
                };
                let t = &mut self.transactions[slot];
                if t.sender != vm || t.holders & running != 0 {
                    return wrong(4);
                }
                if t.kind == Kind::Donate && t.holders != 0 {
                    return wrong(5);
                }
                t.holders = 0;
                if answer.is_some() {
                    self.close(slot);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What a VM was saying is void.
    fn forget(&mut self, vm: usize) {
        if let Some(slot) = self.drafts[vm].sent.take() {
            self.close(slot);
        }
        self.drafts[vm].count = 0;
        self.drafts[vm].transaction.used = false;
    }

    fn send(
        &mut self,
        id: u32,
        vm: usize,
        regs: &Regs,
        words: &Words<'_>,
        answer: Option<&Regs>,
    ) -> Checked {
        if self.drafts[vm].sent.is_some() {
            return self.sent(vm, answer);
        }
        let mut transaction = Transaction {
            used: true,
            kind: match id {
                0x8400_0073 => Kind::Share,
                0x8400_0072 => Kind::Lend,
                _ => Kind::Donate,
            },
            sender: vm,
            ..Transaction::default()
        };
        let composite = self.receivers(words, &mut transaction);
        let draft = &mut self.drafts[vm];
        (draft.count, draft.transaction) = (0, transaction);
        self.ranges(id, vm, words, composite + 16, regs[2] & 0xffff_ffff)?;
        self.go_on(id, vm, answer)
    }

    /// Notes who receives, and returns where the ranges' description is.
    fn receivers(&self, words: &Words<'_>, transaction: &mut Transaction) -> u64 {
        let first = words.field(32, 4);
        for index in 0..words.field(28, 4) {
            let at = first + 16 * index;
            let receiver = bit(words.field(at, 2) as usize - 1);
            transaction.receivers |= receiver;
            if transaction.kind == Kind::Donate || words.field(at + 2, 1) & 3 == 2 {
                transaction.writers |= receiver;
            }
        }
        words.field(first + 4, 4)
    }

    fn fragment(
        &mut self,
        id: u32,
        vm: usize,
        regs: &Regs,
        words: &Words<'_>,
        answer: Option<&Regs>,
    ) -> Checked {
        if self.drafts[vm].sent.is_some() {
            return self.sent(vm, answer);
        }
        if !self.drafts[vm].transaction.used {
            return Err(Wrong::Done(id, vm, 6));
        }
        self.ranges(id, vm, words, 0, regs[3] & 0xffff_ffff)?;
        self.go_on(id, vm, answer)
    }

    /// Notes ranges from one offset to another.
    fn ranges(&mut self, id: u32, vm: usize, words: &Words<'_>, from: u64, to: u64) -> Checked {
        let draft = &mut self.drafts[vm];
        for at in (from..to).step_by(16) {
            if draft.count == RANGES {
                return Err(Wrong::Done(id, vm, 7));
            }
            draft.ranges[draft.count] = (words.field(at, 8), words.field(at + 8, 4));
            draft.count += 1;
        }
        Ok(())
    }

    /// A fragment was taken: the pages are out if it was the last.
    fn go_on(&mut self, id: u32, vm: usize, answer: Option<&Regs>) -> Checked {
        if answer.is_some_and(|x| x[0] == 0x8400_007a) {
            return Ok(());
        }
        let slot = self
            .transactions
            .iter()
            .position(|t| !t.used)
            .ok_or(Wrong::Room)?;
        let mut transaction = self.drafts[vm].transaction;
        for index in 0..self.drafts[vm].count {
            let (ipa, count) = self.drafts[vm].ranges[index];
            for number in 0..count {
                let found = self.page_at(vm, ipa + number * PAGE);
                let Some((page, at_home)) = found else {
                    return Err(Wrong::Done(id, vm, 8));
                };
                self.take_out(id, vm, page, at_home, slot, &transaction)?;
                transaction.pages += 1;
            }
        }
        self.transactions[slot] = transaction;
        self.drafts[vm].sent = Some(slot);
        self.sent(vm, answer)
    }

    fn take_out(
        &mut self,
        id: u32,
        vm: usize,
        page: usize,
        at_home: bool,
        slot: usize,
        t: &Transaction,
    ) -> Checked {
        let number = slot as u8 + 1;
        let is = self.pages[page];
        if at_home {
            if is.out != 0 {
                return Err(Wrong::Done(id, vm, 9));
            }
            self.set_out(page, number);
            return Ok(());
        }
        // Another's page: it was given it, and gives it back to its home.
        let given = is
            .out
            .checked_sub(1)
            .map(|out| self.transactions[usize::from(out)]);
        let right = given.is_some_and(|given| {
            given.kind == Kind::Donate
                && given.holders == bit(vm)
                && t.kind == Kind::Donate
                && t.receivers == bit(given.sender)
        });
        if !right || is.back != 0 {
            return Err(Wrong::Done(id, vm, 10));
        }
        self.pages[page].back = number;
        Ok(())
    }

    /// The call that sent is done, if it has an answer: the transaction has a handle.
    fn sent(&mut self, vm: usize, answer: Option<&Regs>) -> Checked {
        if let Some(x) = answer
            && let Some(slot) = self.drafts[vm].sent.take()
        {
            self.transactions[slot].handle = x[3] << 32 | x[2] & 0xffff_ffff;
            self.drafts[vm].transaction.used = false;
        }
        Ok(())
    }

    fn retrieve(&mut self, id: u32, vm: usize, words: &Words<'_>) -> Checked {
        let wrong = |why| Err(Wrong::Done(id, vm, why));
        let Some(slot) = self.find(words.field(8, 8)) else {
            return wrong(11);
        };
        let mut t = self.transactions[slot];
        let own = bit(vm);
        if t.receivers & own == 0 || t.holders & own != 0 {
            return wrong(12);
        }
        if words.field(0, 2) as usize != t.sender + 1 {
            return wrong(13);
        }
        let number = slot as u8 + 1;
        if self.pages[..self.page_count]
            .iter()
            .any(|page| page.back == number)
        {
            return self.come_home(slot);
        }
        let first = words.field(32, 4);
        let accesses = (0..words.field(28, 4)).map(|index| first + 16 * index);
        let mut mine = accesses.filter(|at| words.field(*at, 2) == vm as u64 + 1);
        let Some(said) = mine.next().map(|at| words.field(at + 2, 1)) else {
            return wrong(14);
        };
        let may_write = t.writers & own != 0;
        if said & 3 == 2 && !may_write {
            return wrong(15);
        }
        if said >> 2 & 3 == 2 && (t.kind == Kind::Share || t.receivers != own) {
            return wrong(16);
        }
        t.holders |= own;
        t.writing &= !own;
        t.executing &= !own;
        if may_write && said & 3 != 1 {
            t.writing |= own;
        }
        if said >> 2 & 3 == 2 {
            t.executing |= own;
        }
        self.transactions[slot] = t;
        Ok(())
    }

    /// Pages that were given away are at home again; so ends the gift when none is left of it.
    fn come_home(&mut self, slot: usize) -> Checked {
        let number = slot as u8 + 1;
        for page in 0..self.page_count {
            let Page { out, back } = self.pages[page];
            if back == number {
                let gift = usize::from(out) - 1;
                self.pages[page].back = 0;
                self.set_out(page, 0);
                self.transactions[gift].pages -= 1;
                if self.transactions[gift].pages == 0 {
                    self.transactions[gift] = Transaction::default();
                }
            }
        }
        self.transactions[slot] = Transaction::default();
        Ok(())
    }

    /// A VM that does not run begins to be loaded anew.
    pub fn begin_end(&mut self, vm: usize) {
        self.ending |= bit(vm);
    }

    /// All that it shared is settled.
    pub fn end(&mut self, vm: usize) {
        self.ending &= !bit(vm);
        self.forget(vm);
        // Gifts last: what goes back to its home in another transaction is part of one.
        for gifts in [false, true] {
            for slot in 0..TRANSACTIONS {
                let t = self.transactions[slot];
                let of_vm = t.sender == vm || t.receivers & bit(vm) != 0;
                if !t.used || !of_vm {
                    continue;
                }
                let number = slot as u8 + 1;
                let is_return = self.pages[..self.page_count]
                    .iter()
                    .any(|page| page.back == number);
                let is_given = t.kind == Kind::Donate && t.holders != 0;
                if t.sender == vm || is_return || (is_given && gifts) {
                    if is_given == gifts || is_return {
                        self.close(slot);
                    }
                } else if !is_given {
                    self.transactions[slot].holders &= !bit(vm);
                }
            }
        }
    }
}

/// What must be.
impl Ghost {
    /// Returns what `vm` may do with a page, or nothing if that is not settled.
    fn expected(&self, vm: usize, home: usize, page: usize) -> Option<u8> {
        let Page { out, back } = self.pages[page];
        let alone = if vm == home { ALL } else { 0 };
        let Some(slot) = out.checked_sub(1) else {
            return Some(alone);
        };
        let t = &self.transactions[usize::from(slot)];
        if (t.receivers | bit(t.sender)) & self.ending != 0 {
            return None;
        }
        if vm == home {
            return Some(if t.kind == Kind::Share { ALL } else { 0 });
        }
        if t.holders & bit(vm) == 0 || back != 0 {
            return Some(0);
        }
        let write = if t.writing & bit(vm) != 0 { WRITE } else { 0 };
        let execute = if t.executing & bit(vm) != 0 {
            EXECUTE
        } else {
            0
        };
        Some(READ | write | execute)
    }

    /// Compares all pages with what the tables say. `read` reads the word at a physical address in a
    /// table.
    pub fn check(&self, read: &mut impl FnMut(usize, u64) -> u64) -> Checked {
        let regions = &self.regions[..self.region_count];
        for viewer in regions {
            for region in regions {
                self.check_region(viewer.vm, region, read)?;
            }
        }
        Ok(())
    }

    fn check_region(
        &self,
        vm: usize,
        region: &Region,
        read: &mut impl FnMut(usize, u64) -> u64,
    ) -> Checked {
        let base = if vm == region.vm {
            region.ipa
        } else {
            region.pa
        };
        // A VM whose own memory is there does not see another's.
        if vm != region.vm && self.home_region(vm, base).is_some() {
            return Ok(());
        }
        let (mut page, mut last) = (0, Last::default());
        while page < region.pages {
            let offset = page as u64 * PAGE;
            let found = self.trees[vm].walk(base + offset, &mut last, &mut |at| read(vm, at));
            let behind = found.size - (base + offset) % found.size;
            let count = ((behind / PAGE) as usize).min(region.pages - page);
            let first = region.first + page;
            if found.pa.is_some_and(|pa| pa != region.pa + offset) {
                return Err(Wrong::Place(vm, region.pa + offset, found.pa.unwrap_or(0)));
            }
            let mut at = first;
            while at < first + count {
                // Of a span that is in no transaction, one page tells of all.
                let idle = at.is_multiple_of(SPAN)
                    && first + count - at >= SPAN
                    && self.busy[at / SPAN] == 0;
                if let Some(expected) = self.expected(vm, region.vm, at)
                    && expected != found.access
                {
                    let pa = region.pa + (at - region.first) as u64 * PAGE;
                    return Err(Wrong::Access(vm, pa, expected, found.access));
                }
                at += if idle { SPAN } else { 1 };
            }
            page += count;
        }
        Ok(())
    }
}
