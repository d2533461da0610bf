//! Comparison of the stage-2 tables with the model.
//!
//! Requirements: G1-MEM-011, G1-MEM-016.

use super::walk::{EXECUTE, Found, Last, READ, Tree, WRITE};
use super::{ALL, Checked, Ghost, Kind, NOBODY, PAGE, Page, Region, SPAN, VMS, Wrong, bit, owner};

/// Required contents of a VM's tables for a page: access rights, and the owner bits.
type Must = (u8, u8);

impl Ghost {
    /// Returns the required contents for a page in the tables of `vm`, or nothing while that is not
    /// settled.
    fn expected(&self, vm: usize, home: usize, page: usize) -> Option<Must> {
        let Page { out, back } = self.pages.get(page);
        let Some(slot) = out.checked_sub(1) else {
            return self.alone(vm, home, page);
        };
        if self.is_settling(out) {
            return None;
        }
        let t = &self.transactions[usize::from(slot)];
        if vm == home {
            return Some(match t.kind {
                Kind::Share => (ALL, owner::SHARED),
                Kind::Lend => (0, owner::LENT),
                Kind::Donate => (0, owner::DONATED),
            });
        }
        if t.holders & bit(vm) == 0 {
            return Some((0, owner::NONE));
        }
        if back != 0 {
            return Some((0, owner::DONATED));
        }
        let write = if t.writing & bit(vm) != 0 { WRITE } else { 0 };
        let execute = if t.executing & bit(vm) != 0 {
            EXECUTE
        } else {
            0
        };
        let whose = match t.kind {
            Kind::Share | Kind::Lend => owner::BORROWED,
            Kind::Donate => owner::RECEIVED,
        };
        Some((READ | write | execute, whose))
    }

    /// Returns the required contents for a page that is in no transaction.
    fn alone(&self, vm: usize, home: usize, page: usize) -> Option<Must> {
        match (vm == home, self.is_buffer(home, page)) {
            (false, _) => Some((0, owner::NONE)),
            (true, false) => Some((ALL, owner::OWNED)),
            (true, true) if self.ending & bit(home) != 0 => None,
            (true, true) => Some((ALL, owner::BUFFER)),
        }
    }

    /// Compares all pages with what the tables say. `read` reads the word at a physical address in a
    /// VM's table.
    pub fn check(&self, read: &mut impl FnMut(usize, u64) -> u64) -> Checked {
        let regions = &self.regions[..self.region_count];
        for viewer in regions {
            for region in regions {
                if region.shown & bit(viewer.vm) == 0 {
                    self.check_region(viewer.vm, region, read)?;
                }
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
        let base = seen_at(vm, region);
        // A VM whose own memory is there does not see another's.
        if vm != region.vm && self.home_region(vm, base).is_some() {
            return Ok(());
        }
        let (mut page, mut last) = (0, Last::default());
        // The descriptor of the page before, if that is right and nobody else has to do with it.
        let mut before = None;
        while page < region.pages {
            let offset = page as u64 * PAGE;
            if let Some(descriptor) = before
                && let Some(at) = last.entry(base + offset)
                && region.followed
                && self.is_idle(region, region.first + page)
                && read(vm, at) == descriptor + PAGE
            {
                before = Some(descriptor + PAGE);
                page += 1;
                continue;
            }
            let found = self.trees[vm].walk(base + offset, &mut last, &mut |at| read(vm, at));
            let behind = found.size - (base + offset) % found.size;
            let count = ((behind / PAGE) as usize).min(region.pages - page);
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
            let is_idle = region.followed && self.is_idle(region, region.first + page);
            before = (is_idle && found.size == PAGE).then_some(found.descriptor);
            page += count;
        }
        Ok(())
    }

    /// Tells whether a page is in no transaction and no buffer.
    fn is_idle(&self, region: &Region, page: usize) -> bool {
        !self.pages.is_busy(page)
            || (self.pages.get(page).out == 0 && !self.is_buffer(region.vm, page))
    }

    /// Compares pages of a region, of which one descriptor says the same.
    fn check_pages(
        &self,
        vm: usize,
        region: &Region,
        pages: core::ops::Range<usize>,
        found: &Found,
    ) -> Checked {
        let (mut at, end) = (region.first + pages.start, region.first + pages.end);
        let mut seen_idle = false;
        while at < end {
            // Of pages that are in no transaction, one tells of all.
            let idle = at.is_multiple_of(SPAN) && end - at >= SPAN && !self.pages.is_busy(at);
            if self.is_idle(region, at) && core::mem::replace(&mut seen_idle, true) {
                at += if idle { SPAN } else { 1 };
                continue;
            }
            if let Some((access, whose)) = self.expected(vm, region.vm, at) {
                let pa = region.pa + (at - region.first) as u64 * PAGE;
                if access != found.access {
                    return Err(Wrong::Access(vm, pa, access, found.access));
                }
                if whose != found.owner {
                    return Err(Wrong::Owner(vm, pa, whose, found.owner));
                }
            }
            at += if idle { SPAN } else { 1 };
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
fn seen_at(vm: usize, region: &Region) -> u64 {
    if vm == region.vm {
        region.ipa
    } else {
        region.pa
    }
}
