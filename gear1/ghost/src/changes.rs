//! Incremental checks: pages that have not changed since the last check are left out.
//!
//! A check of all pages takes longer than the call that it follows. Where the ghost runs beside
//! millions of calls, it compares again only the groups of pages whose descriptors, or whose state
//! in the ghost, may have changed. The result equals that of [`Ghost::check`].
//!
//! Requirements: G1-MEM-011, G1-MEM-016.

use core::ops::Range;

use super::check::seen_at;
use super::walk::Last;
use super::{
    Callers, Checked, GROUP, GROUPS, Ghost, PAGE, Region, SPAN, TRANSACTIONS, Transaction, VMS,
    Wrong, bit,
};

/// State of the last check of the pages. There is one part for each span of a region and each VM
/// whose tables are compared there; `PARTS` limits their number. A `Seen` belongs to one ghost.
pub struct Seen<const PARTS: usize> {
    /// In the order in which the regions and their viewers are gone over, which never changes.
    parts: [Part; PARTS],
    /// Whether no check was complete yet, or the last one failed: the next check covers all pages.
    is_void: bool,
    /// The ghost's own, as of the last check.
    transactions: [Transaction; TRANSACTIONS],
    ending: u16,
    changing: Callers,
}

/// A span of a region, as the tables of one VM map it.
#[derive(Clone, Copy)]
struct Part {
    mapped: Mapped,
    groups: [Group; GROUPS],
}

/// Mapping of a span. A change of it concerns all pages of the span.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mapped {
    /// By one descriptor: the descriptor, and the bytes that it maps.
    Whole(u64, u64),
    /// By a table of pages (PA).
    Table(u64),
}

/// Adjacent pages that are checked together: those of an eighth of a table, of which Gear1 counts
/// the writes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Group {
    /// Version of the pages' descriptors.
    version: u64,
    /// Number of the last change of the pages' state in the ghost.
    change: u64,
    /// Transactions of the pages, one bit each.
    transactions: u64,
}

/// Changes of the ghost's state since the last look.
struct Changed {
    /// Bit per transaction.
    transactions: u64,
    /// VMs that begin or cease to end, bit per VM. That concerns their buffers and transactions.
    vms: u16,
    /// VMs that begin or end a call which changes their own memory, bit per VM. That concerns all
    /// that their tables map.
    callers: u16,
}

const _: () = assert!(TRANSACTIONS <= 64);

impl<const PARTS: usize> Default for Seen<PARTS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const PARTS: usize> Seen<PARTS> {
    /// Returns the state before the first check.
    #[must_use]
    pub fn new() -> Self {
        const PART: Part = Part {
            mapped: Mapped::Whole(0, 0),
            groups: [Group {
                version: 0,
                change: 0,
                transactions: 0,
            }; GROUPS],
        };
        Self {
            parts: [PART; PARTS],
            is_void: true,
            transactions: [Transaction::default(); TRANSACTIONS],
            ending: 0,
            changing: [0; VMS],
        }
    }

    /// Notes the ghost's state, and returns its changes. A transaction counts as changed, too, when
    /// one of its VMs begins or ceases to end, as the rights of its pages are not settled
    /// meanwhile.
    fn note(&mut self, ghost: &Ghost) -> Changed {
        // Every field is named, so that a new one cannot be forgotten. Regions and trees do not
        // change after `add`; drafts say nothing of pages; `pages` numbers its changes, those of
        // buffers too.
        let Ghost {
            regions: _,
            region_count: _,
            trees: _,
            stranger: _,
            buffers: _,
            pages: _,
            transactions,
            drafts: _,
            ending,
            changing,
        } = ghost;
        let mut changed = Changed {
            transactions: 0,
            vms: self.ending ^ ending,
            callers: (0..VMS)
                .filter(|vm| (self.changing[*vm] == 0) != (changing[*vm] == 0))
                .fold(0, |all, vm| all | bit(vm)),
        };
        for (slot, (was, is)) in self.transactions.iter_mut().zip(transactions).enumerate() {
            if was != is || (is.receivers | bit(is.sender)) & changed.vms != 0 {
                changed.transactions |= 1 << slot;
                *was = *is;
            }
        }
        self.ending = *ending;
        self.changing = *changing;
        changed
    }
}

impl Ghost {
    /// Compares with what the tables say the pages of which something has changed since the last
    /// look. A group of pages is skipped only if its descriptors, the ghost's view of its pages,
    /// the transactions that they are in and their VM's end are all as they were. After a
    /// difference the next look goes over everything, as the first one does. `versions` says of a
    /// VM's table (PA) how often each eighth of it was written, or other numbers that are new after
    /// each write; `read` as for [`check`](Self::check).
    pub fn check_changed<const PARTS: usize>(
        &self,
        seen: &mut Seen<PARTS>,
        versions: &mut impl FnMut(usize, u64) -> [u64; GROUPS],
        read: &mut impl FnMut(usize, u64) -> u64,
    ) -> Checked {
        let changed = seen.note(self);
        let is_void = core::mem::replace(&mut seen.is_void, true);
        let mut parts = seen.parts.iter_mut();
        let regions = &self.regions[..self.region_count];
        for viewer in regions {
            for region in regions {
                if !self.is_looked_at(viewer.vm, region) {
                    continue;
                }
                let is_its_end = changed.vms & bit(region.vm) != 0;
                for first in (0..region.pages).step_by(SPAN) {
                    let part = parts.next().ok_or(Wrong::Room)?;
                    let mapped = self.mapped(viewer.vm, region, first, read);
                    let is_new =
                        is_void || mapped != part.mapped || changed.callers & bit(viewer.vm) != 0;
                    part.mapped = mapped;
                    let versions = match mapped {
                        Mapped::Table(table) => versions(viewer.vm, table),
                        Mapped::Whole(..) => [0; GROUPS],
                    };
                    let changes = match region.followed {
                        true => self.pages.last_changes(region.first + first),
                        false => [0; GROUPS],
                    };
                    let groups = part.groups.iter_mut().zip(versions).zip(changes);
                    for (number, ((group, version), change)) in groups.enumerate() {
                        let is_same = group.version == version
                            && group.change == change
                            // planted: the ghost leaves out what the end of a transaction changed
                            && group.transactions & changed.transactions == 0
                            && (change == 0 || !is_its_end);
                        if is_same && !is_new {
                            continue;
                        }
                        let first = first + number * GROUP;
                        let pages = first.min(region.pages)..region.pages.min(first + GROUP);
                        if group.change != change {
                            let first = region.first + first;
                            group.transactions = self.transactions_of(first..first + GROUP);
                        }
                        group.version = version;
                        group.change = change;
                        self.check_region(viewer.vm, region, pages, read)?;
                    }
                }
            }
        }
        seen.is_void = false;
        Ok(())
    }

    /// Returns what maps a span, whose first page this is. A span that a table maps now and a block
    /// before, or another table, has been changed as a whole.
    fn mapped(
        &self,
        vm: usize,
        region: &Region,
        first: usize,
        read: &mut impl FnMut(usize, u64) -> u64,
    ) -> Mapped {
        let ipa = seen_at(vm, region) + first as u64 * PAGE;
        assert!(ipa.is_multiple_of(SPAN as u64 * PAGE));
        let mut last = Last::default();
        let found = self.trees[vm].walk(ipa, &mut last, &mut |at| read(vm, at));
        match last.table() {
            Some(table) => Mapped::Table(table),
            None => Mapped::Whole(found.descriptor, found.size),
        }
    }

    /// Returns in which transactions these pages are, bit per transaction, those on their way back
    /// included.
    fn transactions_of(&self, pages: Range<usize>) -> u64 {
        pages.fold(0, |transactions, page| {
            let page = self.pages.get(page);
            let bit = |number: u8| number.checked_sub(1).map_or(0, |slot| 1 << slot);
            transactions | bit(page.out) | bit(page.back)
        })
    }
}
