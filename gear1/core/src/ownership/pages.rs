//! The pages of a transaction, in the stage-2 tables of VMs: found, changed together, tidied.
//!
//! Invariants: [`change`] changes all pages of a transaction or none (G1-MEM-012). [`undo`], which
//! takes rights away or gives memory back, needs no table and has no result: all that a page can be
//! undone from stands in a descriptor of its own (see
//! [`Stage2::undo`](crate::stage2::Stage2::undo)), so a VM that has used up its tables loses what
//! it was given like any other.

use core::convert::Infallible;

use gear1_abi::boot::BootRegion;
use gear1_abi::id::VmId;
use gear1_abi::layout::PAGE_SIZE;

pub(super) use super::transaction::edit;
use super::{COUNT_BITS, Error, MAX_RANGES, Transaction, Vms};
use crate::addr::{Ipa, Pa};
use crate::stage2::{Edit, PageState};
use crate::table::{Descriptors as _, LiveTables as _, MapError};

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
pub(super) fn each_page<V: Vms, E>(
    vms: &mut V,
    transaction: &Transaction,
    mut visit: impl FnMut(&mut V, Pa, u16) -> Result<(), E>,
) -> Result<(), E> {
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

/// Calls `visit` with every page of a transaction.
pub(super) fn every_page<V: Vms>(
    vms: &mut V,
    transaction: &Transaction,
    mut visit: impl FnMut(&mut V, Pa),
) {
    let Ok(()) = each_page(vms, transaction, |vms, pa, _| {
        visit(vms, pa);
        Ok::<(), Infallible>(())
    });
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

/// Undoes what [`edit_page`] did, by its reverse.
pub(super) fn undo_page<V: Vms>(vms: &mut V, vm: VmId, pa: Pa, undo: &Edit) {
    let ipa = ipa_of(vms, vm, pa);
    let stage2 = vms.stage2(vm);
    stage2.undo(&mut vms.tables(vm), ipa, pa, undo);
}

pub(super) fn tidy_page<V: Vms>(vms: &mut V, vm: VmId, pa: Pa) {
    let ipa = ipa_of(vms, vm, pa);
    vms.stage2(vm).tidy(&mut vms.tables(vm), ipa);
}

/// Takes away the tables of `vm` that the transaction's pages do not need any more.
pub(super) fn tidy<V: Vms>(vms: &mut V, vm: VmId, transaction: &Transaction) {
    let mut last = None;
    every_page(vms, transaction, |vms, pa| {
        // Regions begin at multiples of 2 MiB, so pages of one table are one of these spans.
        let span = pa.align_down(TABLE_SPAN);
        if last != Some(span) {
            tidy_page(vms, vm, pa);
            last = Some(span);
        }
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
    let mut left: u16 = 0;
    let result = each_page(vms, transaction, |vms, pa, _| {
        edit_page(vms, vm, pa, edit)?;
        left = left.wrapping_add(1);
        Ok(())
    });
    if result.is_err() {
        let back = edit.reversed();
        every_page(vms, transaction, |vms, pa| {
            if left != 0 {
                undo_page(vms, vm, pa, &back);
                left = left.wrapping_sub(1);
            }
        });
    }
    if edit.takes_rights() || result.is_err() {
        vms.tables(vm).invalidate();
    }
    if result.is_err() {
        // What was changed needs its tables: only what is undone leaves some that say nothing.
        tidy(vms, vm, transaction);
    }
    result
}

/// Undoes what [`change`] did to all pages of a transaction in `vm`'s stage 2, by its reverse.
#[inline(never)]
pub(super) fn undo<V: Vms>(vms: &mut V, vm: VmId, transaction: &Transaction, undo: &Edit) {
    every_page(vms, transaction, |vms, pa| undo_page(vms, vm, pa, undo));
    if undo.takes_rights() {
        vms.tables(vm).invalidate();
    }
    tidy(vms, vm, transaction);
}

/// Returns the transaction that `home` donated the page at `pa` in.
pub(super) fn donated_by<V: Vms>(vms: &mut V, home: VmId, pa: Pa) -> Option<usize> {
    let ipa = ipa_of(vms, home, pa);
    let stage2 = vms.stage2(home);
    let tag = stage2.tag(&vms.tables(home), ipa, PageState::Donated);
    tag.map(usize::from)
}
