//! The word that CPUs share about a CPU's loop: what the loop has yet to hear.
//!
//! As of `shared.rs`, `tests/protocol` compiles this very file with a checker's atomics.
//!
//! Requirements: G1-VCPU-001, G1-SUP-005.

use crate::atomic::{AtomicU64, Ordering};

/// Signals to a CPU's loop from other CPUs: wake-ups, a bit for each vCPU, rings, pokes, probes.
pub struct CpuShared(AtomicU64);

/// Bit of a ring: a VM rang the doorbell that leads to Gear2.
const RING: u64 = 1 << 32;
/// Bit of a poke: another loop wants this one to look at its VMs.
const POKE: u64 = 1 << 33;
/// Bit of a probe: the board's watchdog is fed once the loop has taken it, as it takes a poke.
const PROBE: u64 = 1 << 34;

impl Default for CpuShared {
    fn default() -> Self {
        Self::new()
    }
}

impl CpuShared {
    /// Nothing pending.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    fn add(&self, bit: u64) {
        // planted: a wake-up is lost
        self.0.fetch_or(bit, Ordering::SeqCst);
    }

    fn take(&self, bit: u64) -> bool {
        self.0.fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// Leaves a wake-up of the vCPU with this index for the CPU's loop.
    pub fn wake(&self, vcpu: usize) {
        self.add(1 << (vcpu & 31));
    }

    /// Tells whether anything is pending.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }

    /// Takes the wake-up of the lowest vCPU.
    pub fn take_wake(&self) -> Option<usize> {
        let lowest = self.0.load(Ordering::SeqCst).trailing_zeros();
        let is_wake = lowest < RING.trailing_zeros();
        (is_wake && self.take(1 << (lowest & 31))).then_some(lowest as usize)
    }

    /// Pokes the loop.
    pub fn poke(&self) {
        self.add(POKE);
    }

    /// Takes a poke or a probe, and tells whether there was one.
    pub fn take_poke(&self) -> bool {
        self.take(POKE | PROBE)
    }

    /// Probes the loop, which [`Self::take_poke`] takes.
    pub fn probe(&self) {
        self.add(PROBE);
    }

    /// Tells whether the loop has yet to take a probe.
    pub fn is_probed(&self) -> bool {
        self.0.load(Ordering::SeqCst) & PROBE != 0
    }

    /// Signals that a VM rang the doorbell that leads to Gear2.
    pub fn ring(&self) {
        self.add(RING);
    }

    /// Takes a ring, and tells whether there was one.
    pub fn take_ring(&self) -> bool {
        self.take(RING)
    }
}
