//! The words that CPUs share about a CPU's loop: what the loop has yet to hear, and for how long
//! vCPUs have waited on the CPU without it.
//!
//! As of `shared.rs`, `tests/protocol` compiles this very file with a checker's atomics.
//!
//! Requirements: G1-VCPU-001, G1-SUP-005.

use crate::atomic::{AtomicU64, Ordering};

/// Signals to a CPU's loop from other CPUs: wake-ups, a bit for each vCPU, rings, pokes, probes;
/// and the time that the CPU has waited with a vCPU loaded, of which its loop does not hear.
pub struct CpuShared {
    signals: AtomicU64,
    /// Ticks waited; while a wait lasts, less the counter value at its beginning. That is negative:
    /// the sum of all waits is at most the time since boot.
    waited: AtomicU64,
}

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
        Self {
            signals: AtomicU64::new(0),
            waited: AtomicU64::new(0),
        }
    }

    fn add(&self, bit: u64) {
        // planted: a wake-up is lost
        self.signals.fetch_or(bit, Ordering::SeqCst);
    }

    fn take(&self, bit: u64) -> bool {
        self.signals.fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// Leaves a wake-up of the vCPU with this index for the CPU's loop.
    pub fn wake(&self, vcpu: usize) {
        self.add(1 << (vcpu & 31));
    }

    /// Tells whether anything is pending.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.signals.load(Ordering::SeqCst) != 0
    }

    /// Takes the wake-up of the lowest vCPU.
    pub fn take_wake(&self) -> Option<usize> {
        let lowest = self.signals.load(Ordering::SeqCst).trailing_zeros();
        let is_wake = lowest < RING.trailing_zeros();
        (is_wake && self.take(1 << (lowest & 31))).then_some(lowest as usize)
    }

    /// Takes the wake-up of this vCPU, if that is all that is pending.
    #[inline(always)]
    pub fn take_only_wake(&self, vcpu: usize) -> bool {
        let wake = 1 << (vcpu & 31);
        self.signals
            .compare_exchange(wake, 0, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Forgets all waits, as a loop begins. Called by the CPU itself, like the next two.
    pub fn forget_waits(&self) {
        self.waited.store(0, Ordering::Relaxed);
    }

    /// Notes that the CPU waits from `now` on. Relaxed: a figure, and no order for anybody.
    #[inline(always)]
    pub fn begin_wait(&self, now: u64) {
        let waited = self.waited.load(Ordering::Relaxed);
        self.waited
            .store(waited.wrapping_sub(now), Ordering::Relaxed);
    }

    /// Notes that the wait since `began` has ended at `now`. Returns its ticks.
    #[inline(always)]
    pub fn end_wait(&self, began: u64, now: u64) -> u64 {
        let waited = self.waited.load(Ordering::Relaxed);
        self.waited
            .store(waited.wrapping_add(now), Ordering::Relaxed);
        now.wrapping_sub(began)
    }

    /// Returns the ticks of all waits at `now`, and whether one lasts.
    pub fn waits(&self, now: u64) -> (u64, bool) {
        let waited = self.waited.load(Ordering::Relaxed);
        if waited >> 63 != 0 {
            (waited.wrapping_add(now), true)
        } else {
            (waited, false)
        }
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
        self.signals.load(Ordering::SeqCst) & PROBE != 0
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
