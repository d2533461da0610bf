//! Placement of Gear1, Gear2 and the VMs in physical memory.
//!
//! Owns the list of free memory. Invariant: a range is given out at most once, and nothing is free
//! that firmware reserves or that init still reads. VMs with an address of their own come first,
//! then Gear1 and Gear2 in the smallest holes, then the other VMs, the largest first.
//!
//! Requirements: G1-BOOT-003.

use alloc::vec;
use alloc::vec::Vec;

use gear1_core::addr::Pa;
use gearv_manifest::{Manifest, Rule, Vm};

use crate::dax;

use crate::refusal::{Fault, Refusal, refusal};
use crate::region::{Region, pages, subtract};

#[cfg(test)]
mod tests;

/// Smallest piece of memory, and the largest block of a stage 2 that Gear1 uses.
const PAGE: u64 = gear1_abi::layout::PAGE_SIZE;
const GIB: u64 = 1 << 30;

/// Memory that nobody has yet.
#[derive(Clone, Debug)]
pub struct FreeMemory {
    /// In ascending order, as whole pages.
    regions: Vec<Region>,
}

impl FreeMemory {
    /// Returns the rest of `memory` without `taken`.
    #[must_use]
    pub fn new(memory: &[Region], taken: &[Region]) -> Self {
        Self {
            regions: subtract(memory, taken),
        }
    }

    /// Takes `size` bytes, grown to whole pages, on a multiple of `align` from the smallest region
    /// that has them.
    pub fn take(&mut self, size: u64, align: u64, what: &str) -> Result<Pa, Refusal> {
        let places = self.regions.iter().enumerate().filter_map(|(at, region)| {
            let start = place(region, size, align)?;
            Some((at, region.bytes(), start))
        });
        let (at, _, start) = places.min_by_key(|(_, bytes, _)| *bytes).ok_or_else(|| {
            refusal!(
                Machine,
                "no {} KiB of free memory for {what}",
                size.div_ceil(1024)
            )
        })?;
        if size != 0 {
            self.cut(at, pages(&Region::new(start, start + size)));
        }
        Ok(Pa::new(start))
    }

    /// Takes `size` bytes on a multiple of `align`, and `lead` bytes before them, from the lowest
    /// addresses that are free.
    pub fn take_lowest(&mut self, size: u64, align: u64, lead: u64) -> Option<Pa> {
        let start = self.regions.iter().find_map(|region| {
            let behind = Region::new(region.start.checked_add(lead)?, region.end);
            place(&behind, size, align)
        })?;
        self.take_at(Region::new(start.checked_sub(lead)?, start + size))
            .then_some(Pa::new(start))
    }

    /// Takes the region, if all of it is free.
    pub fn take_at(&mut self, region: Region) -> bool {
        let mut regions = self.regions.iter();
        let Some(at) = regions.position(|free| free.contains(&region)) else {
            return false;
        };
        if region.bytes() != 0 {
            self.cut(at, pages(&region));
        }
        true
    }

    /// Takes `hole` out of the free region that it is in, whose index is `at`.
    fn cut(&mut self, at: usize, hole: Region) {
        let Some(free) = self.regions.get_mut(at) else {
            return;
        };
        // planted: memory is given out twice
        let before = Region::new(free.start, hole.start);
        let behind = Region::new(hole.end, free.end);
        match (before.bytes(), behind.bytes()) {
            (0, 0) => {
                self.regions.remove(at);
            }
            (0, _) => *free = behind,
            (_, 0) => *free = before,
            (_, _) => {
                *free = before;
                self.regions.insert(at + 1, behind);
            }
        }
    }

    /// Returns the free ranges.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Returns what was given out since `before`, with what it is for.
    #[must_use]
    pub fn given_since(&self, before: &Self, what: &'static str) -> Vec<(Region, &'static str)> {
        let given = subtract(&before.regions, &self.regions);
        given.into_iter().map(|region| (region, what)).collect()
    }

    /// Returns how many bytes are free, in all regions together: no single VM may get as many.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.regions.iter().map(Region::bytes).sum()
    }
}

/// Returns where in the region `size` bytes on a multiple of `align` begin: as low as possible, so
/// that the rest of the region stays in one piece above.
fn place(region: &Region, size: u64, align: u64) -> Option<u64> {
    let start = region.start.checked_next_multiple_of(align)?;
    (start.checked_add(size.next_multiple_of(PAGE))? <= region.end).then_some(start)
}

/// Returns the bytes before the VM's memory that describe it to the device VM: none for a VM that
/// is not served.
fn lead(manifest: &Manifest<'_>, vm: &Vm<'_>) -> u64 {
    let is_served = manifest.virtio_of(vm.id).next().is_some();
    if is_served { dax::DATA_OFFSET } else { 0 }
}

/// Takes the memory of those VMs whose address the manifest fixes, at their place in the result.
pub fn take_fixed(
    free: &mut FreeMemory,
    manifest: &Manifest<'_>,
) -> Result<Vec<Option<Pa>>, Refusal> {
    let take = |vm: &Vm<'_>| {
        let Some(mut region) = vm.memory.physical() else {
            return Ok(None);
        };
        let start = Pa::new(region.start);
        region.start = region.start.saturating_sub(lead(manifest, vm));
        if free.take_at(region) {
            return Ok(Some(start));
        }
        let text = alloc::format!("{:#x} to {:#x}", region.start, region.end);
        let rule = Rule::MemoryReserved;
        Err(Fault::new(rule, vm.name, "memory-address", text).into())
    };
    manifest.vms.iter().map(take).collect()
}

/// Takes the memory of the VMs that have none yet, and returns that of all of them. The largest
/// goes first, as it has the fewest places.
pub fn take_rest(
    free: &mut FreeMemory,
    manifest: &Manifest<'_>,
    fixed: &[Option<Pa>],
) -> Result<Vec<Pa>, Refusal> {
    let mut starts = vec![Pa::default(); fixed.len()];
    let mut order: Vec<_> = manifest.vms.iter().zip(fixed).zip(&mut starts).collect();
    order.sort_by_key(|((vm, _), _)| core::cmp::Reverse(vm.memory.bytes));
    for ((vm, fixed), start) in order {
        let found = fixed.or_else(|| take_anywhere(free, manifest, vm));
        *start = found.ok_or_else(|| {
            let (mib, left) = (vm.memory.bytes >> 20, free.total() >> 20);
            let text = alloc::format!("{mib} MiB, where {left} MiB are left in all");
            Fault::new(Rule::NotInOnePiece, vm.name, "memory-mib", text)
        })?;
    }
    Ok(starts)
}

/// Takes a VM's memory at the lowest free address. A large VM begins at a multiple of a GiB if one
/// is free: stage 2 then maps it in blocks of a GiB, which take one TLB entry each.
fn take_anywhere(free: &mut FreeMemory, manifest: &Manifest<'_>, vm: &Vm<'_>) -> Option<Pa> {
    let (size, align) = (vm.memory.bytes, vm.memory.align);
    let lead = lead(manifest, vm);
    if size >= GIB
        && lead == 0
        && let Some(start) = free.take_lowest(size, align.max(GIB), 0)
    {
        return Some(start);
    }
    free.take_lowest(size, align, lead)
}
