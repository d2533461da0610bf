//! Ranges of numbers in a manifest, for the rules and for messages.

use core::ops::{Range, RangeInclusive};

pub use gear1_abi::id::{MAX_CPUS, MAX_VCPUS_PER_VM};

/// Values of `slice-us`, in microseconds.
pub const SLICE_US: RangeInclusive<u32> = 100..=1_000_000;
/// The longest time that a manifest gives for restarts, in milliseconds: an hour.
pub const LONGEST_MS: u32 = 3_600_000;
/// The largest `boot-order`.
pub const MAX_BOOT_ORDER: u32 = 1000;
/// The largest `restart-limit`.
pub const MOST_RESTARTS: u32 = 16;
/// INTIDs of shared interrupts that a console can have.
pub const SHARED_INTIDS: Range<u32> = 32..512;
