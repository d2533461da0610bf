//! Comparison of the stage-2 tables with the model.
//!
//! Two questions are asked. [`Ghost::check`] goes over all pages of the model, and asks the tables
//! of each VM what is there. [`Ghost::check_aliases`] goes over all that the tables map, and asks
//! whether the model looks there: else a page that is mapped a second time would go unseen.
//!
//! Requirements: G1-MEM-011, G1-MEM-016.

use core::ops::Range;

use super::walk::{EXECUTE, Found, Last, READ, Tree, WRITE};
use super::{
    ALL, Checked, Ghost, Kind, NOBODY, PAGE, Page, Region, SPAN, Transaction, VMS, Wrong, bit,
    owner,
};

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
    /// Tells whether a page may have this access and these owner bits.
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

    /// Returns the rights and the owner bits before a change, which a message names where several
    /// would do.
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
    /// settled: during a call's steps some pages are as before it and some as after.
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
            return Some(sent(t.kind));
        }
        if t.holders & bit(vm) == 0 {
            return Some(Must::Be(0, owner::NONE));
        }
        if back != 0 {
            return Some(Must::Be(0, owner::DONATED));
        }
        Some(self.received(vm, t))
    }

    /// Returns the required contents for a page that a VM holds by a transaction: a holder reads
    /// always, and writes and executes as it has asked for.
    fn received(&self, vm: usize, t: &Transaction) -> Must {
        let right = |vms: u16, right: u8| if vms & bit(vm) != 0 { right } else { 0 };
        let access = READ | right(t.writing, WRITE) | right(t.executing, EXECUTE);
        match t.kind {
            Kind::Share | Kind::Lend => Must::Be(access, owner::BORROWED),
            Kind::Donate if self.changing[vm] != 0 => Must::GoBack(access),
            Kind::Donate => Must::Be(access, owner::RECEIVED),
        }
    }

    /// Returns the required contents for a page that is in no transaction: its home's alone. While
    /// the home ends, its buffers are given up at some step, and nothing is required of them.
    fn alone(&self, vm: usize, home: usize, page: usize) -> Option<Must> {
        match (vm == home, self.is_buffer(home, page)) {
            (false, _) => Some(Must::Be(0, owner::NONE)),
            (true, _) if self.changing[home] != 0 => Some(Must::Change),
            (true, false) => Some(Must::Be(ALL, owner::OWNED)),
            (true, true) if self.ending & bit(home) != 0 => None,
            (true, true) => Some(Must::Be(ALL, owner::BUFFER)),
        }
    }

    /// Compares all pages of all VMs, in the tables of each VM, with what the tables say. `read`
    /// reads the word at a physical address in a VM's table.
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

    /// Tells whether the tables of `vm` are compared where they may map a region. The device VM, to
    /// which a served VM's memory is shown from boot on, keeps it through all of that VM's calls.
    pub(crate) fn is_looked_at(&self, vm: usize, region: &Region) -> bool {
        // A VM whose own memory is there does not see another's.
        let is_hidden = vm != region.vm && self.home_region(vm, seen_at(vm, region)).is_some();
        region.shown & bit(vm) == 0 && !is_hidden
    }

    /// Compares these pages of a region.
    ///
    /// A page whose descriptor is that of the page before, one page further, and of which the ghost
    /// says the same, is right if that page was: most pages of a VM need one word each.
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
            match found.pa {
                Some(pa) if pa != region.pa + offset => {
                    return Err(Wrong::Place(vm, region.pa + offset, pa));
                }
                Some(_) | None if region.followed => {
                    self.check_pages(vm, region, page..page + count, &found)?;
                }
                Some(_) | None => check_kept(vm, region, offset, &found)?,
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

    /// Compares pages of a region, of which one descriptor says the same: a block, or a missing
    /// table, speaks for many pages, of which each must be so.
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
            if was_said.replace(said) != Some(said) {
                self.check_page(vm, region, page, found)?;
            }
            page += self.alike(region.first + page);
        }
        Ok(())
    }

    /// Returns of how many pages from this one on the ghost says the same for sure: an idle span
    /// needs one comparison.
    fn alike(&self, page: usize) -> usize {
        match self.pages.is_busy(page) {
            true => 1,
            false => SPAN - page % SPAN,
        }
    }

    /// Compares a page of a region with what the tables say of it. Of a wrong page the rights are
    /// told first: they are what a VM can use.
    fn check_page(&self, vm: usize, region: &Region, page: usize, found: &Found) -> Checked {
        let Some(must) = self.expected(vm, region.vm, region.first + page) else {
            return Ok(());
        };
        if must.allows(found.access, found.owner) {
            return Ok(());
        }
        let pa = region.pa + page as u64 * PAGE;
        let (access, whose) = must.before();
        Err(if access == found.access {
            Wrong::Owner(vm, pa, whose, found.owner)
        } else {
            Wrong::Access(vm, pa, access, found.access)
        })
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

    /// Looks at everything that one tree maps: memory of a VM's is right where it was compared, or
    /// where it is shown, and nowhere else.
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

/// Returns the required contents for a page that its home has sent: shared memory stays in use, and
/// all else is out of the sender's reach.
const fn sent(kind: Kind) -> Must {
    match kind {
        Kind::Share => Must::Be(ALL, owner::SHARED),
        Kind::Lend => Must::Be(0, owner::LENT),
        Kind::Donate => Must::Be(0, owner::DONATED),
    }
}

/// Compares memory that no call changes: its VM's alone, or nobody's while it is withdrawn.
fn check_kept(vm: usize, region: &Region, offset: u64, found: &Found) -> Checked {
    let is_withdrawn = vm == region.vm && region.withdrawn && found.pa.is_none();
    let must = if vm == region.vm { ALL } else { 0 };
    if is_withdrawn || must == found.access {
        return Ok(());
    }
    Err(Wrong::Access(vm, region.pa + offset, must, found.access))
}

/// Returns where `vm` sees a region (IPA): another's, at its physical address.
pub(crate) fn seen_at(vm: usize, region: &Region) -> u64 {
    if vm == region.vm {
        region.ipa
    } else {
        region.pa
    }
}
