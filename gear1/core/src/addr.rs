//! Addresses: physical, intermediate physical and virtual, as types that do not mix.
//!
//! Owns the arithmetic that is allowed on them. Invariants: every sum is checked and named, so an
//! address never wraps; there is no `+`, and no way from one kind of address to another but
//! through its number, which shows in the code.
//!
//! Requirements: G1-MEM-004.

use gear1_abi::layout::PAGE_SIZE;

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Returns the address with this number.
            #[must_use]
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// Returns the address's number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// Returns the address `bytes` further on, if there is one.
            #[must_use]
            pub const fn checked_add(self, bytes: u64) -> Option<Self> {
                match self.0.checked_add(bytes) {
                    Some(number) => Some(Self(number)),
                    None => None,
                }
            }

            /// Tells whether the address is a multiple of `size`, a power of two.
            #[must_use]
            pub const fn is_aligned(self, size: u64) -> bool {
                self.0 & size.wrapping_sub(1) == 0
            }

            /// Returns the last multiple of `size`, a power of two, that is not behind the address.
            #[must_use]
            pub const fn align_down(self, size: u64) -> Self {
                Self(self.0 & !size.wrapping_sub(1))
            }

            /// Returns the first multiple of `size`, a power of two, that is not before the
            /// address.
            #[must_use]
            pub const fn align_up(self, size: u64) -> Option<Self> {
                match self.0.checked_add(size.wrapping_sub(1)) {
                    Some(number) => Some(Self(number).align_down(size)),
                    None => None,
                }
            }

            /// Returns the start of the address's page.
            #[must_use]
            pub const fn page(self) -> Self {
                self.align_down(PAGE_SIZE)
            }
        }

        impl core::fmt::LowerHex for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

address!(
    /// A physical address.
    Pa
);
address!(
    /// An intermediate physical address: what a VM takes for physical.
    Ipa
);
address!(
    /// A virtual address of EL2.
    Va
);

#[cfg(test)]
mod tests;
