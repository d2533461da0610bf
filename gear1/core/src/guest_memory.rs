//! Pieces of VMs' memory that Gear1 wipes, cleans, reads and writes.
//!
//! Requirements: G1-MEM-003, G1-MEM-015.

use gear1_abi::boot::BootVm;
use gear1_abi::layout::PAGE_SIZE;
use gear1_abi::layout::el2::WINDOW_SIZE;

/// A range of physical memory inside one region of one VM, which a window maps whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestMemory {
    pa: u64,
    size: u64,
}

impl GuestMemory {
    /// Returns `size` bytes at `pa`, unless they are empty, larger than a window, or no memory of
    /// one region of one of the VMs.
    #[must_use]
    pub fn of(vms: &[BootVm], pa: u64, size: u64) -> Option<Self> {
        let room = WINDOW_SIZE.wrapping_sub(pa % PAGE_SIZE);
        let mut regions = vms.iter().flat_map(|vm| &vm.regions);
        // Bound: MAX_VMS (16) x MAX_REGIONS (4).
        let is_inside = regions.any(|region| {
            let offset = pa.wrapping_sub(region.pa);
            // planted: a window reaches behind the region that it begins in
            offset < region.size && size <= region.size.wrapping_sub(offset)
        });
        (size != 0 && size <= room && is_inside).then_some(Self { pa, size })
    }

    /// Returns the physical address of the first byte.
    #[must_use]
    pub const fn pa(self) -> u64 {
        self.pa
    }

    /// Returns the number of bytes.
    #[must_use]
    pub const fn size(self) -> u64 {
        self.size
    }
}

#[cfg(test)]
mod tests;
