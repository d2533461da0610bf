//! The heartbeat of a real-time VM: a word that the VM changes, and that another CPU looks at.
//!
//! The VM stores to a page of its own and leaves its guest for nothing. The CPU that looks does so
//! [`LOOKS`] times in each period of the manifest. A VM that has changed the word in each period is
//! never taken for a silent one, and one that stops is found at most a look after its period.
//!
//! The CPU that starts a VM notes the word first ([`Heartbeat::begin`]), so that a change before the
//! first look counts. One CPU looks: nobody else accesses the other words here.
//!
//! Requirements: G1-SUP-004.

use crate::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Looks in a period.
pub const LOOKS: u64 = 4;
/// A VM may take so many periods from its start to the first change of the word.
const BOOT_PERIODS: u64 = 4;

/// Result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// The VM may go on.
    Alive,
    /// The VM has not changed the word for too long.
    Silent,
}

/// State of a VM's heartbeat.
pub struct Heartbeat {
    /// The life, a number of starts, that the rest is about.
    life: AtomicU32,
    /// The word when the VM was started, as a former life has left it.
    first: AtomicU64,
    /// The word at the last look.
    word: AtomicU64,
    /// The look that found the word changed, or the first one of this life.
    since: AtomicU64,
    /// Whether the VM has changed the word in this life.
    has_begun: AtomicBool,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self::new()
    }
}

impl Heartbeat {
    /// A heartbeat that nobody has looked at.
    pub const fn new() -> Self {
        Self {
            life: AtomicU32::new(0),
            first: AtomicU64::new(0),
            word: AtomicU64::new(0),
            since: AtomicU64::new(0),
            has_begun: AtomicBool::new(false),
        }
    }

    /// Notes the word of a VM that is about to start, before anybody looks at that life.
    pub fn begin(&self, word: u64) {
        self.first.store(word, Ordering::SeqCst);
    }

    /// Looks at the time `now` at the word of a VM that runs, in the life numbered `life`. `period`
    /// is the longest time between two changes.
    pub fn look(&self, life: u32, word: u64, now: u64, period: u64) -> Beat {
        let is_new = self.life.swap(life, Ordering::Relaxed) != life;
        let last = self.word.swap(word, Ordering::Relaxed);
        let first = self.first.load(Ordering::SeqCst);
        // planted: changes before the first look at a life do not count
        let before = if is_new { first } else { last };
        let has_changed = before != word;
        if is_new || has_changed {
            self.since.store(now, Ordering::Relaxed);
            self.has_begun.store(has_changed, Ordering::Relaxed);
            return Beat::Alive;
        }
        let periods = match self.has_begun.load(Ordering::Relaxed) {
            true => 1,
            false => BOOT_PERIODS,
        };
        let silence = now.saturating_sub(self.since.load(Ordering::Relaxed));
        // planted: a real-time VM's heartbeat may stop
        if silence >= period.saturating_mul(periods) {
            return Beat::Silent;
        }
        Beat::Alive
    }
}

#[cfg(test)]
mod tests;
