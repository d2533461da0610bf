//! Ranges of numbers in a manifest, for the rules and for messages.

use core::ops::{Range, RangeInclusive};

pub use gear1_abi::id::{MAX_CPUS, MAX_VCPUS_PER_VM};

/// Values of `slice-us`, in microseconds.
pub const SLICE_US: RangeInclusive<u32> = 100..=1_000_000;
/// Values of `ceiling-us`, in microseconds.
pub const CEILING_US: RangeInclusive<u32> = 100..=60_000_000;
/// Values of `frame-us`, in microseconds.
pub const FRAME_US: RangeInclusive<u32> = 100..=60_000_000;
/// Values of `start-us`, in microseconds.
pub const START_US: RangeInclusive<u32> = 0..=60_000_000;
/// Values of `length-us`, in microseconds.
pub const LENGTH_US: RangeInclusive<u32> = 50..=60_000_000;
/// Time that the rules leave for a switch to another vCPU, in nanoseconds: about what Gear1, Gear2
/// and back take at 1 GHz.
pub const SWITCH_NS: u32 = 2000;
/// Part of a CPU, in millionths, with less of which a vCPU is starved.
pub const LEAST_PPM: u64 = 50_000;
/// Values of `weight`.
pub const WEIGHT: RangeInclusive<u32> = 1..=1000;
/// Values of `cap-percent`.
pub const CAP_PERCENT: RangeInclusive<u32> = 1..=100;
/// Values of `period-us`, in microseconds. Two switches of a shorter period would take more than
/// some percent of it.
pub const PERIOD_US: RangeInclusive<u32> = 100..=10_000_000;
/// Values of `budget-us`, in microseconds.
pub const BUDGET_US: RangeInclusive<u32> = 1..=10_000_000;
/// Values of `min-interval-us`, in microseconds.
pub const MIN_INTERVAL_US: RangeInclusive<u32> = 0..=60_000_000;
/// Values of `priority`.
pub const PRIORITY: RangeInclusive<u32> = 0..=31;
/// Values of `latency-us`, in microseconds.
pub const LATENCY_US: RangeInclusive<u32> = 0..=1_000_000;
/// The longest time in milliseconds that a manifest gives for restarts, watchdogs and the order of
/// boot: an hour. Longer ones are probably microseconds, and would never end.
pub const LONGEST_MS: u32 = 3_600_000;
/// Values of `trace-kib`, of which the powers of two are sizes of a ring: a piece of the layout holds
/// the largest with its header.
pub const TRACE_KIB: RangeInclusive<u32> = 16..=8192;
/// The largest `boot-order`.
pub const MAX_BOOT_ORDER: u32 = 1000;
/// Values of `sve-bits`, the multiples of [`SVE_STEP`] among them (Arm ARM, ZCR_EL2.LEN).
pub const SVE_BITS: RangeInclusive<u32> = 128..=2048;
/// Lengths of vectors are multiples of this, in bits.
pub const SVE_STEP: u32 = 128;
/// The largest `dma-fault-limit`.
pub const MOST_DMA_FAULTS: u32 = 1_000_000;
/// The largest `restart-limit`.
pub const MOST_RESTARTS: u32 = 16;
/// Values of `iops-limit`.
pub const IOPS: RangeInclusive<u32> = 1..=10_000_000;
/// Values of `bytes-per-second-limit`: the least moves a page in 64 ms.
pub const BYTES_PER_SECOND: RangeInclusive<u32> = 65_536..=u32::MAX;
/// Values of `burst-ms`, in milliseconds.
pub const BURST_MS: RangeInclusive<u32> = 1..=10_000;
/// Least and longest time after which requests fail that wait for another program, in milliseconds.
pub const TIMEOUT_MS: RangeInclusive<u32> = 100..=LONGEST_MS;
/// Values of `queues` of a disk, and of a network card, which has pairs of them.
pub const SERVED_QUEUES: RangeInclusive<u32> = 1..=4;
/// Values of `mtu`, in bytes: what Linux takes for an Ethernet card and for a tap device.
pub const MTU: RangeInclusive<u32> = 68..=65_521;
/// INTIDs of shared interrupts that a console or a channel can have.
pub const SHARED_INTIDS: Range<u32> = 32..512;
