//! Names of the facts about a configuration's figures.

/// Number of exits of the RTVM's CPUs during the measurement.
pub(super) const EXITS: &str = "exits while measuring";
/// Number of SGIs that the RTVM sent during the measurement, each of which costs one more exit.
pub(super) const SGIS: &str = "SGIs sent while measuring";
/// Number of SGIs by the count of the RTVM's kernel.
pub(super) const OWN: &str = "SGIs by its kernel's count";
/// Release of the kernel that measured.
pub(super) const KERNEL: &str = "kernel";
/// SHA-256 of the initramfs that measured.
pub(super) const INITRAMFS: &str = "initramfs";
/// Gear2's scheduler, where one shares the measured CPU out.
pub(super) const SCHEDULER: &str = "scheduler";
/// Log that the figures were read from.
pub(super) const LOG: &str = "log";
/// Reason of the last failure to measure.
pub(super) const FAILURE: &str = "not measured";
