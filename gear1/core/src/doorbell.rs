//! Pacing of a doorbell between VMs: rings that come sooner than the manifest's interval after the
//! last interrupt become one interrupt when the interval has passed.
//!
//! One CPU at a time *holds* a doorbell, from the ring that found it silent to the interrupt. A
//! ring that finds it held adds nothing: the holder's interrupt is still to come, and stands for
//! both. A holder that has to wait keeps the doorbell in its CPU's timer, so that the ring outlives
//! the VM that rang. Each operation is a fixed number of atomic accesses: a CPU never waits for
//! another.
//!
//! `tests/protocol` tries the orders of its steps.
//!
//! Requirements: G1-CHN-005 (no ring is lost), G1-CHN-006 (at most one interrupt an interval).

use crate::atomic::{AtomicU8, AtomicU64, Ordering};

const SILENT: u8 = 0;
const HELD: u8 = 1;

/// Duty of the CPU that rings, or whose timer has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    /// Make the interrupt pending now.
    Deliver,
    /// Hold the doorbell, and [expire](Doorbell::expire) it at this time.
    Wait(u64),
    /// Nothing: the interrupt of an earlier ring is still to come.
    Joined,
}

/// State of one doorbell.
pub struct Doorbell {
    held: AtomicU8,
    /// Time from which an interrupt may come. Only the holder accesses it.
    due: AtomicU64,
}

impl Default for Doorbell {
    fn default() -> Self {
        Self::new()
    }
}

impl Doorbell {
    /// A doorbell that nobody has rung.
    pub const fn new() -> Self {
        Self {
            held: AtomicU8::new(SILENT),
            due: AtomicU64::new(0),
        }
    }

    /// Takes a ring at the time `now`. `interval` is the least time between two interrupts.
    #[inline]
    pub fn ring(&self, now: u64, interval: u64) -> Ring {
        // The exchange orders what the sender has stored before the interrupt that stands for its
        // ring, whichever CPU delivers that.
        if self.held.swap(HELD, Ordering::AcqRel) == HELD {
            return Ring::Joined;
        }
        self.expire(now, interval)
    }

    /// Ends the holder's wait, if it is over at the time `now`.
    #[inline]
    pub fn expire(&self, now: u64, interval: u64) -> Ring {
        let due = self.due.load(Ordering::Relaxed);
        // planted: a doorbell is delivered before its interval has passed
        if now < due {
            return Ring::Wait(due);
        }
        self.due
            .store(now.saturating_add(interval), Ordering::Relaxed);
        // Before the interrupt, not behind it: a ring in between would join an interrupt that the
        // receiver has taken already.
        // planted: a doorbell stays held
        self.held.swap(SILENT, Ordering::AcqRel);
        Ring::Deliver
    }
}
