//! Ranges of addresses, and the one that is a VM's memory.

/// A VM's memory: one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Size in bytes.
    pub bytes: u64,
    /// Physical address that the manifest demands; Gear1's init chooses one if there is none.
    pub address: Option<u64>,
    /// Address in the guest, where it differs from the physical address.
    pub ipa: Option<u64>,
    /// Alignment of the physical address.
    pub align: u64,
}

impl Memory {
    /// Returns the physical range, if the manifest fixes it.
    #[must_use]
    pub fn physical(&self) -> Option<Region> {
        Some(self.from(self.address?))
    }

    /// Returns the guest's range, if the manifest fixes it.
    #[must_use]
    pub fn guest(&self) -> Option<Region> {
        Some(self.from(self.ipa.or(self.address)?))
    }

    const fn from(&self, start: u64) -> Region {
        Region::new(start, start.saturating_add(self.bytes))
    }
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
}

impl Region {
    /// Makes a region from `start` up to, but without, `end`.
    #[must_use]
    pub const fn new(start: u64, end: u64) -> Self {
        Self { start, end }
    }

    /// Returns the size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Tells whether the two have an address in common.
    #[must_use]
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Tells whether `other` lies in this region.
    #[must_use]
    pub const fn contains(&self, other: &Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}
