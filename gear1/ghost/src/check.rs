//! Comparison of the stage-2 tables with the model.
//!
//! Requirements: G1-MEM-011, G1-MEM-016.

use core::ops::Range;

use super::walk::{EXECUTE, Found, Last, READ, Tree, WRITE};
use super::{ALL, Checked, Ghost, Kind, NOBODY, PAGE, Page, Region, SPAN, VMS, Wrong, bit, owner};

/// Required contents of a VM's tables for a page.
#[derive(Clone, Copy)]
enum Must {
    /// Access rights, and the owner bits.
    Be(u8, u8),
    /// The VM's own page while the VM sends memory, or maps or unmaps buffers: as before the call,
    /// claimed, or as after the call.
    Change,
    /// A received page, with these rights, while the VM sends memory: the page may go back.
    GoBack(u8),
}

impl Must {
    const fn allows(self, access: u8, whose: u8) -> bool {
        match (self, access, whose) {
            (Self::Be(right, whose_right), ..) => access == right && whose == whose_right,
            (Self::Change, ALL, owner::OWNED | owner::CLAIMED | owner::SHARED | owner::BUFFER)
            | (Self::Change | Self::GoBack(_), 0, owner::DONATED)
            | (Self::Change, 0, owner::LENT) => true,
            (Self::GoBack(right), _, owner::RECEIVED | owner::CLAIMED) => access == right,
            (Self::Change | Self::GoBack(_), ..) => false,
        }
    }

    /// Returns the rights and the owner bits before a change.
    const fn before(self) -> (u8, u8) {
        match self {
            Self::Be(access, whose) => (access, whose),
            Self::Change => (ALL, owner::OWNED),
            Self::GoBack(access) => (access, owner::RECEIVED),
        }
    }
}

impl Ghost {
    /// Returns the required contents for a page in the tables of `vm`, or nothing while that is not
    /// settled.
    fn expected(&self, vm: usize, home: usize, page: usize) -> Option<Must> {
        let Page { out, back } = self.pages.get(page);
        let Some(slot) = out.checked_sub(1) else {
            return self.alone(vm, home, page);
        };
        let t = &self.transactions[usize::from(slot)];
        if self.is_settling(out) || self.is_moving(out) || self.is_moving(back) {
            return None;
        }
        if vm == home {
            return Some(match t.kind {
                Kind::Share => Must::Be(ALL, owner::SHARED),
                Kind::Lend => Must::Be(0, owner::LENT),
                Kind::Donate => Must::Be(0, owner::DONATED),
            });
        }
        if t.holders & bit(vm) == 0 {
            return Some(Must::Be(0, owner::NONE));
        }
        if back != 0 {
            return Some(Must::Be(0, owner::DONATED));
        }
        let write = if t.writing & bit(vm) != 0 { WRITE } else { 0 };
        let execute = if t.executing & bit(vm) != 0 {
            EXECUTE
        } else {
            0
        };
        let access = READ | write | execute;
        Some(match t.kind {
            Kind::Share | Kind::Lend => Must::Be(access, owner::BORROWED),
            Kind::Donate if self.changing[vm] != 0 => Must::GoBack(access),
            Kind::Donate => Must::Be(access, owner::RECEIVED),
        })
    }

    /// Returns the required contents for a page that is in no transaction.
    fn alone(&self, vm: usize, home: usize, page: usize) -> Option<Must> {
        match (vm == home, self.is_buffer(home, page)) {
            (false, _) => Some(Must::Be(0, owner::NONE)),
            (true, _) if self.changing[home] != 0 => Some(Must::Change),
            (true, false) => Some(Must::Be(ALL, owner::OWNED)),
            (true, true) if self.ending & bit(home) != 0 => None,
            (true, true) => Some(Must::Be(ALL, owner::BUFFER)),
        }
    }

    /// Compares all pages with what the tables say. `read` reads the word at a physical address in
    /// a VM's table.
    pub fn check(&self, read: &mut impl FnMut(usize, u64) -> u64) -> Checked {
        let regions = &self.regions[..self.region_count];
        for viewer in regions {
            for region in regions {
                if self.is_looked_at(viewer.vm, region) {
                    self.check_region(viewer.vm, region, 0..region.pages, read)?;
                }
            }
        }
        Ok(())
    }

    /// Tells whether the tables of `vm` are compared where they may map a region.
    pub(crate) fn is_looked_at(&self, vm: usize, region: &Region) -> bool {
        // A VM whose own memory is there does not see another's.
        let is_hidden = vm != region.vm && self.home_region(vm, seen_at(vm, region)).is_some();
        region.shown & bit(vm) == 0 && !is_hidden
    }

    /// Compares these pages of a region.
    pub(crate) fn check_region(
        &self,
        vm: usize,
        region: &Region,
        pages: Range<usize>,
        read: &mut impl FnMut(usize, u64) -> u64,
    ) -> Checked {
        let base = seen_at(vm, region);
        let (mut page, mut last) = (pages.start, Last::default());
        // Descriptor of the previous page, if that page is right, the step to a like descriptor of
        // this page, and what the ghost says of the previous page.
        let mut before = None;
        while page < pages.end {
            let offset = page as u64 * PAGE;
            let said = self.said_of(region, page);
            if let Some((descriptor, step, was_said)) = before
                && let Some(at) = last.entry(base + offset)
                && said == was_said
                && read(vm, at) == descriptor + step
            {
                before = Some((descriptor + step, step, said));
                page += 1;
                continue;
            }
            let found = self.trees[vm].walk(base + offset, &mut last, &mut |at| read(vm, at));
            let behind = found.size - (base + offset) % found.size;
            let count = ((behind / PAGE) as usize).min(pages.end - page);
            if found.pa.is_some_and(|pa| pa != region.pa + offset) {
                return Err(Wrong::Place(vm, region.pa + offset, found.pa.unwrap_or(0)));
            }
            if region.followed {
                self.check_pages(vm, region, page..page + count, &found)?;
            } else if !(vm == region.vm && region.withdrawn && found.pa.is_none()) {
                let must = if vm == region.vm { ALL } else { 0 };
                if must != found.access {
                    return Err(Wrong::Access(vm, region.pa + offset, must, found.access));
                }
            }
            // An invalid descriptor has no address.
            let step = if found.pa.is_some() { PAGE } else { 0 };
            before = (found.size == PAGE).then_some((found.descriptor, step, said));
            page += count;
        }
        Ok(())
    }

    /// Returns all that [`expected`](Self::expected) takes from a page of a region: its
    /// transactions, and whether it is a buffer.
    fn said_of(&self, region: &Region, page: usize) -> (Page, bool) {
        let page = region.first + page;
        if region.followed && self.pages.is_busy(page) {
            (self.pages.get(page), self.is_buffer(region.vm, page))
        } else {
            (Page::default(), false)
        }
    }

    /// Compares pages of a region, of which one descriptor says the same.
    fn check_pages(
        &self,
        vm: usize,
        region: &Region,
        pages: Range<usize>,
        found: &Found,
    ) -> Checked {
        let mut was_said = None;
        let mut page = pages.start;
        while page < pages.end {
            let said = self.said_of(region, page);
            // Equal pages need one comparison.
            if was_said.replace(said) != Some(said)
                && let Some(must) = self.expected(vm, region.vm, region.first + page)
                && !must.allows(found.access, found.owner)
            {
                let pa = region.pa + page as u64 * PAGE;
                let (access, whose) = must.before();
                return Err(if access == found.access {
                    Wrong::Owner(vm, pa, whose, found.owner)
                } else {
                    Wrong::Access(vm, pa, access, found.access)
                });
            }
            // An idle span needs one comparison.
            let span = SPAN - (region.first + page) % SPAN;
            let is_busy = self.pages.is_busy(region.first + page);
            page += if is_busy { 1 } else { span };
        }
        Ok(())
    }

    /// Looks at everything that the tables map: VMs' memory only where [`check`](Self::check) looks
    /// for it.
    pub fn check_aliases(&self, read: &mut impl FnMut(usize, u64) -> u64) -> Checked {
        for vm in 0..VMS {
            if self.trees[vm] != Tree::default() {
                self.check_leaves(vm, self.trees[vm], read)?;
            }
        }
        match self.stranger {
            Some(tree) => self.check_leaves(NOBODY, tree, read),
            None => Ok(()),
        }
    }

    fn check_leaves(
        &self,
        vm: usize,
        tree: Tree,
        read: &mut impl FnMut(usize, u64) -> u64,
    ) -> Checked {
        tree.each_leaf(&mut |at| read(vm, at), &mut |ipa, pa, size| {
            for region in &self.regions[..self.region_count] {
                let overlaps = pa < region.pa + region.pages as u64 * PAGE && region.pa < pa + size;
                let is_shown = vm != NOBODY && region.shown & bit(vm) != 0;
                let is_place = vm != NOBODY
                    && ipa.wrapping_sub(seen_at(vm, region)) == pa.wrapping_sub(region.pa);
                if overlaps && !is_shown && !is_place {
                    return Err(Wrong::Alias(vm, pa.max(region.pa), ipa));
                }
            }
            Ok(())
        })
    }
}

/// Returns where `vm` sees a region (IPA): another's, at its physical address.
pub(crate) fn seen_at(vm: usize, region: &Region) -> u64 {
    if vm == region.vm {
        region.ipa
    } else {
        region.pa
    }
}
