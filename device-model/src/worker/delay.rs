//! Interrupts that wait for a while: those of queues whose driver waits for no completion.
//!
//! A frame that has left the guest is news that Linux needs for the frame's memory alone. An answer
//! to the frame often follows soon, and its interrupt brings both news at once. The guest then takes
//! one interrupt instead of two, each of which costs the ring of a doorbell, an acknowledgement and,
//! as a rule, the end of a WFI.
//!
//! Bound: an interrupt waits for at most [`LONGEST_US`] and for fewer than [`MOST`] completions,
//! whatever the guest does. Nothing of a wait has to outlive this process: the next one interrupts
//! the guest when it takes the device over.

use std::time::Duration;

use super::Worker;
use crate::mapping::counter;

/// Longest time for which an interrupt waits, in microseconds. QEMU's timer of frames that wait to be
/// sent has as much (`x-txtimer`).
pub(crate) const LONGEST_US: u64 = 150;
/// Completions since the last interrupt with which one that is wanted no longer waits: a driver
/// whose queue is full waits for them.
const MOST: u16 = 16;

/// Completions that the guest was not told of, of those queues whose interrupts may wait.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delay {
    /// Counter when the interrupt was wanted first.
    since: Option<u64>,
    /// Completions since the last interrupt.
    completed: u16,
    /// There are as many as one that is wanted does not wait for.
    is_enough: bool,
}

impl Delay {
    /// Takes in the completions of a turn of a queue with `size` entries, and whether the driver
    /// wants an interrupt for them.
    pub(super) fn note(&mut self, completed: u16, size: u16, wants: bool) {
        self.completed = self.completed.saturating_add(completed);
        // planted: a driver with a small queue waits for each frame
        self.is_enough |= completed > 0 && self.completed >= MOST.min(size / 4);
        if wants && self.since.is_none() {
            self.since = Some(counter());
        }
    }

    /// Tells whether an interrupt waits.
    pub(super) const fn is_pending(&self) -> bool {
        self.since.is_some()
    }

    /// The guest is interrupted, or needs no interrupt any longer.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// Returns how many ticks the interrupt may still wait; `None`: none waits.
    fn left(&self, longest: u64) -> Option<u64> {
        let waited = counter().wrapping_sub(self.since?);
        Some(match self.is_enough {
            true => 0,
            false => longest.saturating_sub(waited),
        })
    }
}

impl Worker {
    /// Interrupts the guest if an interrupt has waited for long enough. Called in each turn, also
    /// in one that serves no queue.
    pub(super) fn tell_late(&mut self) {
        // planted: an interrupt waits for the next one without end
        if self.delay.is_pending() && self.delay_left() == Some(Duration::ZERO) {
            self.interrupt();
        }
    }

    /// Returns for how long an interrupt may still wait.
    pub(super) fn delay_left(&self) -> Option<Duration> {
        let longest = self.ticks(self.wiring.delay_us);
        let left = self.delay.left(longest)?;
        // No overflow: a counter of 1 GHz has 150,000 ticks in the longest time.
        let nanoseconds = left.saturating_mul(1_000_000_000);
        Some(Duration::from_nanos(nanoseconds.div_ceil(self.hz().max(1))))
    }
}
