//! A guest's RAM in this process.
//!
//! The RAM of a guest is one region. vm-memory's collections search for the region of each address,
//! and walk over pieces of several regions: that costs some 70 instructions for each of the words
//! that a queue's rings have. An access here goes to the region at once, which checks its bounds.

use std::ops::Deref;
use std::sync::Arc;

use vm_memory::{
    GuestAddress, GuestMemoryError, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
    MemoryRegionAddress, VolatileSlice,
};

#[cfg(test)]
mod tests;

/// A guest's RAM at its guest addresses, or rings that another program of the device VM shares. A
/// clone is the same memory.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The region.
    region: Arc<GuestRegionMmap<()>>,
    /// The region as virtio-queue's walk of a chain takes it.
    all: Arc<GuestMemoryMmap<()>>,
}

impl Memory {
    /// Makes memory of a region.
    ///
    /// # Errors
    ///
    /// None are known of a single region.
    pub fn of(region: GuestRegionMmap<()>) -> Result<Self, GuestMemoryError> {
        let region = Arc::new(region);
        let all = GuestMemoryMmap::from_arc_regions(vec![Arc::clone(&region)]);
        let all = all.map_err(|_| GuestMemoryError::InvalidGuestAddress(region.start_addr()))?;
        Ok(Self {
            region,
            all: Arc::new(all),
        })
    }

    /// Returns the `length` bytes at a guest-physical address, which may change at any time.
    ///
    /// # Errors
    ///
    /// The bytes are not all in the region.
    pub fn slice(
        &self,
        address: GuestAddress,
        length: usize,
    ) -> Result<VolatileSlice<'_, ()>, GuestMemoryError> {
        // An address in front of the region becomes an offset that no region is long enough for.
        // planted: what lies in front of a guest's ram is the begin of the ram
        let offset = address.0.wrapping_sub(self.region.start_addr().0);
        self.region.get_slice(MemoryRegionAddress(offset), length)
    }
}

impl Deref for Memory {
    type Target = GuestMemoryMmap<()>;

    fn deref(&self) -> &GuestMemoryMmap<()> {
        &self.all
    }
}
