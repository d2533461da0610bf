//! The pages of a transaction, in the stage-2 tables of VMs: found, changed together, tidied.
//!
//! Invariant: [`change`] changes all pages of a transaction or none (G1-MEM-012).

use gear1_abi::boot::BootRegion;
use gear1_abi::id::VmId;
use gear1_abi::layout::PAGE_SIZE;

use super::{COUNT_BITS, Error, MAX_RANGES, Transaction, Vms};
use crate::addr::{Ipa, Pa};
use crate::stage2::{Attributes, Edit, PageState};
use crate::table::{LiveTables as _, MapError, TableMemory as _};

/// Bytes that a table of pages maps.
const TABLE_SPAN: u64 = 2 << 20;

/// Returns the region that holds all of `size` bytes from `at`.
pub(super) fn region_of(
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

/// Calls `visit` with each page of a transaction and its number, until that is refused.
pub(super) fn each_page<V: Vms>(
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

pub(super) fn edit_page<V: Vms>(vms: &mut V, vm: VmId, pa: Pa, edit: &Edit) -> Result<(), Error> {
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

pub(super) fn tidy_page<V: Vms>(vms: &mut V, vm: VmId, pa: Pa) {
    let ipa = ipa_of(vms, vm, pa);
    vms.stage2(vm).tidy(&mut vms.tables(vm), ipa);
}

/// Takes away the tables of `vm` that the transaction's pages do not need any more.
pub(super) fn tidy<V: Vms>(vms: &mut V, vm: VmId, transaction: &Transaction) {
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
pub(super) fn change<V: Vms>(
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

/// Returns the transaction that `home` donated the page at `pa` in.
pub(super) fn donated_by<V: Vms>(vms: &mut V, home: VmId, pa: Pa) -> Option<usize> {
    let ipa = ipa_of(vms, home, pa);
    let stage2 = vms.stage2(home);
    let tag = stage2.tag(&vms.tables(home), ipa, PageState::Donated);
    tag.map(usize::from)
}

pub(super) const fn edit(from: Option<PageState>, to: Option<PageState>, tag: usize) -> Edit {
    Edit {
        from,
        to,
        rights: Attributes::DATA,
        tag: tag as u8,
    }
}
