//! Filter of addresses that a VM's stores are compared with: one look tells of most addresses that
//! none of the set is there.
//!
//! A register of an emulated device is more often none of the VM's channels than one, and a search
//! through all channels would cost each such access a few instructions a channel.
//!
//! Requirements: G1-CHN-005 (an address of the set is never said to be none).

/// Set of addresses, by bits 7:2 of each: it may hold addresses that were not put in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressFilter(u64);

impl AddressFilter {
    /// No address.
    pub const EMPTY: Self = Self(0);

    /// Returns the set with an address more.
    #[must_use]
    pub const fn with(self, address: u64) -> Self {
        Self(self.0 | 1_u64.rotate_left(place(address)))
    }

    /// Tells whether the address may be one of the set. False: it is none.
    #[must_use]
    #[inline(always)]
    pub const fn may_have(self, address: u64) -> bool {
        self.0.rotate_right(place(address)) & 1 != 0
    }
}

/// Returns the bit of an address: neighbours of four bytes have different ones.
#[inline(always)]
const fn place(address: u64) -> u32 {
    (address >> 2) as u32 & 63
}

#[cfg(test)]
mod tests;
