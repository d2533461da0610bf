//! Part of the log that a process may have which a guest may have subverted, or can make complain:
//! so many bytes at once, and a byte now and then. The log is in memory.

use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// Bytes that a process may have in the log at once, and how long the log takes to forgive a byte.
const MESSAGE_BYTES: u64 = 0x4000;
const FORGIVEN_AFTER: Duration = Duration::from_millis(100);

/// Bytes that a process may have in the log. Each that was used is forgiven after a while.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// Bytes that may be shown now.
    left: u64,
    /// Time at which bytes were forgiven last.
    at: Instant,
}

impl Allowance {
    /// Returns that of a process that has said nothing.
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            left: MESSAGE_BYTES,
            at: now,
        }
    }

    /// Takes as many bytes of `wanted` as there are.
    pub(crate) fn take(&mut self, wanted: u64, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.at).as_millis() / FORGIVEN_AFTER.as_millis();
        let forgiven = u64::try_from(since).unwrap_or(MESSAGE_BYTES);
        if forgiven > 0 {
            self.at = now;
            self.left = self.left.saturating_add(forgiven).min(MESSAGE_BYTES);
        }
        // planted: a process fills the log
        let taken = wanted.min(self.left);
        self.left -= taken;
        taken
    }
}
