//! Transactions of pages.
//!
//! Few pages of all VMs are in a transaction at a time. Their *spans* (2 MiB) have room for each
//! page; of other spans only the number is known, however large the VMs are.
//!
//! Each change gets the next number, and a group of pages keeps that of its last change. A check
//! can tell by one number a group whether the model says the same of the pages as before.

use super::{Checked, GROUP, GROUPS, Page, SPAN, Wrong};

/// Spans of all VMs that may share memory: 32 GiB.
const SPANS: usize = 16 * 1024;
/// Most spans with a page in a transaction or a buffer. A VM has at most 32 tables for shared
/// memory, and its descriptors of such a span take one.
const BUSY: usize = 16 * 32;

/// A span of which some page is in a transaction or a buffer.
#[derive(Clone, Copy)]
struct Busy {
    /// Number of pages in a transaction or a buffer; 0: the entry is free.
    count: u16,
    /// The number of the last change to each group; see [`Pages::last_changes`].
    changed: [u64; GROUPS],
    pages: [Page; SPAN],
}

/// Pages by their number.
pub(crate) struct Pages {
    /// Number of pages, all spans together.
    count: usize,
    /// Place of each span in `busy`, counted from 1; 0: the span has no place.
    places: [u16; SPANS],
    busy: [Busy; BUSY],
    /// Number of changes so far.
    changes: u64,
}

impl Pages {
    /// No page, and none in a transaction.
    pub(crate) const fn new() -> Self {
        const NONE: Busy = Busy {
            count: 0,
            changed: [0; GROUPS],
            pages: [Page { out: 0, back: 0 }; SPAN],
        };
        Self {
            count: 0,
            places: [0; SPANS],
            busy: [NONE; BUSY],
            changes: 0,
        }
    }

    /// Adds `pages` pages, of whole spans, and returns the number of the first.
    pub(crate) fn add(&mut self, pages: usize) -> Result<usize, Wrong> {
        let first = self.count;
        if !pages.is_multiple_of(SPAN) || first + pages > SPANS * SPAN {
            return Err(Wrong::Room);
        }
        self.count += pages;
        Ok(first)
    }

    /// Returns the place of a page's span in `busy`, if the span has one.
    fn place(&self, page: usize) -> Option<usize> {
        usize::from(self.places[page / SPAN]).checked_sub(1)
    }

    /// Returns the transactions of a page.
    pub(crate) fn get(&self, page: usize) -> Page {
        let busy = self.place(page).map(|place| &self.busy[place]);
        busy.map_or(Page::default(), |busy| busy.pages[page % SPAN])
    }

    /// Tells whether some page of a page's span is in a transaction or a buffer.
    pub(crate) fn is_busy(&self, page: usize) -> bool {
        self.place(page).is_some()
    }

    /// Returns the number of the last change to each group of a page's span; 0: none of the group's
    /// pages is in a transaction or a buffer. As long as it stays, so does in which they are.
    pub(crate) fn last_changes(&self, page: usize) -> [u64; GROUPS] {
        let place = self.place(page);
        place.map_or([0; GROUPS], |place| self.busy[place].changed)
    }

    /// Returns a page's span if some page of it is in a transaction or a buffer; that one is going
    /// to change.
    fn change(&mut self, page: usize) -> Option<&mut Busy> {
        let place = self.place(page)?;
        self.changes += 1;
        self.busy[place].changed[page % SPAN / GROUP] = self.changes;
        Some(&mut self.busy[place])
    }

    /// Counts one page more of a page's span.
    pub(crate) fn count_one(&mut self, page: usize) -> Checked {
        if self.place(page).is_none() {
            let free = self.busy.iter().position(|busy| busy.count == 0);
            let free = free.ok_or(Wrong::Room)?;
            self.places[page / SPAN] = free as u16 + 1;
            self.busy[free].changed = [0; GROUPS];
        }
        if let Some(busy) = self.change(page) {
            busy.count += 1;
        }
        Ok(())
    }

    /// Counts one page less. The last one frees the span's room, and the span says nothing again.
    pub(crate) fn count_one_less(&mut self, page: usize) {
        if let Some(busy) = self.change(page) {
            busy.count -= 1;
            if busy.count == 0 {
                self.places[page / SPAN] = 0;
            }
        }
    }

    /// Notes the transaction of a page's home, 0 for none. The span gets its room first, and gives
    /// it up last, so that the change is counted in between.
    pub(crate) fn set_out(&mut self, page: usize, out: u8) -> Checked {
        let was = self.get(page).out;
        if was == 0 && out != 0 {
            self.count_one(page)?;
        }
        if let Some(busy) = self.change(page) {
            busy.pages[page % SPAN].out = out;
        }
        if was != 0 && out == 0 {
            self.count_one_less(page);
        }
        Ok(())
    }

    /// Notes in which transaction a page, which is in another, goes back.
    pub(crate) fn set_back(&mut self, page: usize, back: u8) {
        if let Some(busy) = self.change(page) {
            busy.pages[page % SPAN].back = back;
        }
    }

    /// Returns the first page from `from` on that is in a transaction that `fits`. Idle spans are
    /// passed as a whole: VMs have thousands, and few are busy.
    pub(crate) fn find(&self, from: usize, fits: impl Fn(Page) -> bool) -> Option<usize> {
        let mut page = from;
        while page < self.count {
            if !self.is_busy(page) {
                page = (page / SPAN + 1) * SPAN;
                continue;
            }
            if fits(self.get(page)) {
                return Some(page);
            }
            page += 1;
        }
        None
    }
}
