//! The pages of a transaction, in the stage-2 tables of VMs: search, change and tidying, some pages
//! at a time.
//!
//! Invariants: only [`edit_pages`], which claims pages to send and maps pages to retrieve, may be
//! refused or need a table. [`amend_pages`], which takes rights away or gives memory back, needs no
//! table and has no result: each page that can be undone has a descriptor of its own (see
//! [`Stage2::amend`](crate::stage2::Stage2::amend)). A VM that has used up its tables therefore
//! loses its rights like any other.
//!
//! Requirements: G1-MEM-012, G1-MEM-017.

use gear1_abi::boot::BootRegion;
use gear1_abi::id::VmId;
use gear1_abi::layout::PAGE_SIZE;

use super::transaction::Cursor;
pub(super) use super::transaction::edit;
use super::{COUNT_BITS, Error, MAX_RANGES, Transaction, Vms};
use crate::addr::{Ipa, Pa};
use crate::stage2::{Edit, Edited, PageState};
use crate::table::{Descriptors as _, MapError};

/// Most pages that are looked at in one step.
pub(super) const PAGES_AT_ONCE: u16 = 16;
/// Bytes that a table of pages maps.
const TABLE_SPAN: u64 = 2 << 20;

/// Returns the region that holds all of `size` bytes from `at`.
pub(super) fn region_of(
    regions: &[BootRegion],
    at: u64,
    size: u64,
    start: impl Fn(&BootRegion) -> u64,
) -> Option<&BootRegion> {
    // Bound: MAX_REGIONS (4).
    regions.iter().find(|region| {
        let offset = at.wrapping_sub(start(region));
        offset < region.size && size <= region.size.wrapping_sub(offset)
    })
}

/// Tells whether a VM sees its own memory at any of `size` bytes from `ipa`.
pub(super) fn touches(regions: &[BootRegion], ipa: u64, size: u64) -> bool {
    // Bound: MAX_REGIONS (4).
    regions.iter().any(|region| {
        let starts_in = ipa.wrapping_sub(region.ipa) < region.size;
        let is_reached = region.ipa.wrapping_sub(ipa) < size && region.size != 0;
        starts_in || is_reached
    })
}

/// Returns where `vm` sees the page at `pa`: where the manifest put it if it is its own, else at
/// its physical address.
pub(super) fn ipa_of<V: Vms>(vms: &V, vm: VmId, pa: Pa) -> Ipa {
    match region_of(vms.regions(vm), pa.get(), PAGE_SIZE, |region| region.pa) {
        Some(region) => Ipa::new(pa.get().wrapping_sub(region.pa).wrapping_add(region.ipa)),
        None => Ipa::new(pa.get()),
    }
}

/// Returns range `index` of a list: its first page, and how many there are.
pub(super) fn range<V: Vms>(vms: &mut V, transaction: &Transaction, index: u16) -> (Pa, u16) {
    let tables = vms.tables(transaction.offer.sender);
    let word = tables.read(transaction.list, usize::from(index) % MAX_RANGES);
    let first = (word >> COUNT_BITS).wrapping_mul(PAGE_SIZE);
    (Pa::new(first), word as u16)
}

impl Cursor {
    /// Returns the page there, and the cursor behind it; nothing at the end, or at the limit.
    pub(super) fn page<V: Vms>(self, vms: &mut V, transaction: &Transaction) -> Option<(Pa, Self)> {
        if self.range >= transaction.filled || self >= transaction.limit {
            return None;
        }
        let (first, count) = range(vms, transaction, self.range);
        let offset = u64::from(self.page).wrapping_mul(PAGE_SIZE);
        let pa = Pa::new(first.get().wrapping_add(offset));
        // planted: a cursor skips a page where a step ends
        Some((pa, self.skip(1, count)))
    }

    /// Returns the cursor `pages` pages further in a range of `count`, at most at the end of that
    /// range.
    const fn skip(self, pages: u16, count: u16) -> Self {
        let page = self.page.saturating_add(pages);
        if page < count {
            Self { page, ..self }
        } else {
            Self {
                range: self.range.wrapping_add(1),
                page: 0,
            }
        }
    }

    /// Returns the cursor behind those of the next ranges' pages that are in the span of the first.
    fn behind_span<V: Vms>(self, vms: &mut V, transaction: &Transaction) -> Self {
        let mut at = self;
        let mut span = None;
        // Bound: PAGES_AT_ONCE (16).
        for _ in 0..PAGES_AT_ONCE {
            let Some((pa, _)) = at.page(vms, transaction) else {
                break;
            };
            // Regions begin at multiples of 2 MiB, so pages of one table are one of these spans.
            let this = pa.align_down(TABLE_SPAN);
            if span.is_some_and(|span| span != this) {
                break;
            }
            span = Some(this);
            let left = TABLE_SPAN.wrapping_sub(pa.get() % TABLE_SPAN) / PAGE_SIZE;
            let (_, count) = range(vms, transaction, at.range);
            at = at.skip(left as u16, count);
        }
        at
    }
}

/// Changes a page for the first time, which may be refused.
pub(super) fn edit_page<V: Vms>(
    vms: &mut V,
    vm: VmId,
    pa: Pa,
    edit: &Edit,
) -> Result<Edited, Error> {
    let ipa = ipa_of(vms, vm, pa);
    let stage2 = vms.stage2(vm);
    match stage2.edit(&mut vms.tables(vm), ipa, pa, edit) {
        Ok(Edited::Refused)
        | Err(MapError::Unaligned | MapError::OutOfRange | MapError::Occupied(_)) => {
            Err(Error::Denied)
        }
        Ok(edited) => Ok(edited),
        Err(MapError::NoTables) => Err(Error::NoMemory),
    }
}

/// Changes a page that [`edit_page`] has changed. Tells whether it was as `change` says.
pub(super) fn amend_page<V: Vms>(vms: &mut V, vm: VmId, pa: Pa, change: &Edit) -> bool {
    let ipa = ipa_of(vms, vm, pa);
    let stage2 = vms.stage2(vm);
    stage2.amend(&mut vms.tables(vm), ipa, pa, change)
}

/// Takes the last table for a page away, if it is not needed. Tells whether it did.
pub(super) fn tidy_page<V: Vms>(vms: &mut V, vm: VmId, pa: Pa) -> bool {
    let ipa = ipa_of(vms, vm, pa);
    vms.stage2(vm).tidy(&mut vms.tables(vm), ipa)
}

/// Changes the next pages of a transaction in `vm`'s stage 2, if it `allows` each. Tells whether
/// those were the last.
#[inline(never)]
pub(super) fn edit_pages<V: Vms>(
    vms: &mut V,
    vm: VmId,
    transaction: &mut Transaction,
    edit: &Edit,
    allows: impl Fn(&mut V, Pa) -> bool,
) -> Result<bool, Error> {
    // Bound: PAGES_AT_ONCE (16).
    for _ in 0..PAGES_AT_ONCE {
        let Some((pa, next)) = transaction.at.page(vms, transaction) else {
            return Ok(true);
        };
        if !allows(vms, pa) {
            return Err(Error::Denied);
        }
        if edit_page(vms, vm, pa, edit)? == Edited::TableMade {
            // planted: a step makes all tables that its pages take
            break;
        }
        transaction.at = next;
    }
    Ok(false)
}

/// Calls `amend` with the next pages of a transaction. Tells whether those were the last.
#[inline(never)]
pub(super) fn amend_pages<V: Vms>(
    vms: &mut V,
    transaction: &mut Transaction,
    mut amend: impl FnMut(&mut V, Pa),
) -> bool {
    // Bound: PAGES_AT_ONCE (16).
    for _ in 0..PAGES_AT_ONCE {
        let Some((pa, next)) = transaction.at.page(vms, transaction) else {
            return true;
        };
        amend(vms, pa);
        transaction.at = next;
    }
    false
}

/// Frees one table of `vm` that the transaction's pages no longer need. Returns whether none is
/// left.
#[inline(never)]
pub(super) fn tidy_pages<V: Vms>(vms: &mut V, vm: VmId, transaction: &mut Transaction) -> bool {
    let Some((pa, _)) = transaction.at.page(vms, transaction) else {
        return true;
    };
    if !tidy_page(vms, vm, pa) {
        transaction.at = transaction.at.behind_span(vms, transaction);
    }
    false
}

/// Returns the transaction that `home` donated the page at `pa` in.
pub(super) fn donated_by<V: Vms>(vms: &mut V, home: VmId, pa: Pa) -> Option<usize> {
    let ipa = ipa_of(vms, home, pa);
    let stage2 = vms.stage2(home);
    let tag = stage2.tag(&vms.tables(home), ipa, PageState::Donated);
    tag.map(usize::from)
}
