//! Parts of a Gear2 restart that need no hardware: a rendezvous of all CPUs that have a loop, and a
//! budget of restarts.
//!
//! Invariant: from the moment at which a rendezvous is complete until its end, no CPU with a loop
//! executes Gear2. Every step is one atomic change of one word, so that a CPU which comes up
//! meanwhile either joins the rendezvous or waits until it is over.
//!
//! Requirements: G1-SUP-002 (no loop runs while the image is renewed), G1-SUP-003.

use core::sync::atomic::{AtomicU32, Ordering};

use gear1_abi::id::{CpuIndex, MAX_CPUS};

/// Bits of the CPUs that take part, from 0 on, and of those that are here, from this one on.
const HERE_SHIFT: u32 = MAX_CPUS as u32;
const MEMBERS: u32 = (1 << HERE_SHIFT) - 1;
/// A meeting is on.
const CALLED: u32 = 1 << (2 * HERE_SHIFT);
/// The count of meetings that are over.
const ROUND: u32 = CALLED << 1;

/// A meeting of CPUs.
pub struct Meeting(AtomicU32);

impl Default for Meeting {
    fn default() -> Self {
        Self::new()
    }
}

impl Meeting {
    /// Nobody takes part yet.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    fn word(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    fn change(&self, change: impl FnMut(u32) -> Option<u32>) -> Result<u32, u32> {
        // Bound: CPUs (8) x changes of theirs while a meeting begins or ends.
        self.0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, change)
    }

    /// Makes `cpu` take part from the next meeting on. Not while one is on.
    pub fn join(&self, cpu: CpuIndex) -> bool {
        let bit = 1_u32.wrapping_shl(cpu.index() as u32);
        self.change(|word| (word & CALLED == 0).then_some(word | bit))
            .is_ok()
    }

    /// Calls a meeting, unless one is on.
    pub fn call(&self) -> bool {
        self.change(|word| (word & CALLED == 0).then_some(word | CALLED))
            .is_ok()
    }

    /// Tells whether a meeting is on.
    pub fn is_called(&self) -> bool {
        self.word() & CALLED != 0
    }

    /// Tells whether `cpu` takes part.
    pub fn has(&self, cpu: CpuIndex) -> bool {
        self.word().wrapping_shr(cpu.index() as u32) & 1 != 0
    }

    /// `cpu`, which takes part, is here. Returns which meeting this is.
    pub fn arrive(&self, cpu: CpuIndex) -> u32 {
        let bit = (1_u32 << HERE_SHIFT).wrapping_shl(cpu.index() as u32);
        self.0.fetch_or(bit, Ordering::SeqCst) / ROUND
    }

    /// Tells whether all are here.
    pub fn is_complete(&self) -> bool {
        let word = self.word();
        word >> HERE_SHIFT & MEMBERS == word & MEMBERS
    }

    /// Ends the meeting.
    pub fn end(&self) {
        let next = |word: u32| Some((word & MEMBERS | word & !(ROUND - 1)).wrapping_add(ROUND));
        let _ = self.change(next);
    }

    /// Tells whether that meeting is over.
    pub fn is_over(&self, meeting: u32) -> bool {
        self.word() / ROUND != meeting
    }
}

/// Budget of restarts within a window of time.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    since: u64,
    count: u32,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new()
    }
}

impl Budget {
    /// Nothing is spent.
    pub const fn new() -> Self {
        Self { since: 0, count: 0 }
    }

    /// Spends one, and tells whether there was one: at most `limit` within `window` ticks,
    /// which begin with the first spent. A limit of 0 is none.
    pub fn spend(&mut self, now: u64, limit: u32, window: u64) -> bool {
        if self.count == 0 || now.wrapping_sub(self.since) > window {
            self.since = now;
            self.count = 0;
        }
        if limit != 0 && self.count >= limit {
            return false;
        }
        self.count = self.count.wrapping_add(1);
        true
    }
}

#[cfg(test)]
mod tests;
