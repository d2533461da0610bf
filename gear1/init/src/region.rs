//! Differences and unions of sets of address ranges.
//!
//! Requirements: G1-BOOT-003.

use alloc::vec::Vec;

pub use gearv_manifest::Region;

const PAGE: u64 = gear1_abi::layout::PAGE_SIZE;

/// Returns the region grown to whole pages: what is taken or given is taken with its pages.
#[must_use]
pub fn pages(region: &Region) -> Region {
    let end = region.end.checked_next_multiple_of(PAGE);
    Region::new(region.start & !(PAGE - 1), end.unwrap_or(!(PAGE - 1)))
}

/// Returns the regions in order, joined where they touch or overlap.
#[must_use]
pub fn merged(mut regions: Vec<Region>) -> Vec<Region> {
    regions.sort_by_key(|region| region.start);
    let mut list: Vec<Region> = Vec::new();
    for region in regions {
        match list.last_mut() {
            Some(last) if region.start <= last.end => last.end = last.end.max(region.end),
            Some(_) | None => list.push(region),
        }
    }
    list
}

/// Returns the rest of `from` without `taken`, in order, as whole pages. Memory shrinks to whole
/// pages and holes grow to them, so no page is left that something else has a part of.
#[must_use]
pub fn subtract(from: &[Region], taken: &[Region]) -> Vec<Region> {
    let inner = |region: &Region| {
        let start = region.start.checked_next_multiple_of(PAGE);
        Region::new(start.unwrap_or(region.end), region.end & !(PAGE - 1))
    };
    let mut left: Vec<Region> = from.iter().map(inner).collect();
    left.retain(|region| region.bytes() != 0);
    for hole in taken.iter().filter(|hole| hole.bytes() != 0).map(pages) {
        for at in 0..left.len() {
            let Some(region) = left.get_mut(at) else {
                break;
            };
            // planted: memory is taken on both sides of a hole
            let behind = Region::new(region.start.max(hole.end), region.end);
            region.end = region.end.min(hole.start);
            if behind.bytes() != 0 {
                left.push(behind);
            }
        }
        left.retain(|region| region.bytes() != 0);
    }
    left.sort_by_key(|region| region.start);
    left
}

#[cfg(test)]
mod tests;
