//! Interrupts that wait for a while: those of queues whose driver waits for no completion.
//!
//! A frame that has left the guest is news that Linux needs for the frame's memory alone. An answer
//! to the frame often follows soon, and its interrupt brings both news at once. The guest then takes
//! one interrupt instead of two, each of which costs the ring of a doorbell, an acknowledgement and,
//! as a rule, the end of a WFI.
//!
//! Bound: an interrupt waits for [`LONGEST_US`] and the turn under way, and for fewer than [`MOST`]
//! completions. A turn of all queues has a bound of its own. How soon Linux gives a CPU to a thread
//! whose sleep has ended is the device VM's matter.
//!
//! Nothing of a wait has to outlive this process: the next one interrupts the guest at its start,
//! whether the device's backend is there or not.

use std::time::Duration;

use virtio_bindings::bindings::virtio_ring::{
    VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC,
};

use super::Worker;
use crate::mapping::counter;

/// Time after which the next turn brings an interrupt that waits, in microseconds. QEMU's timer of
/// frames that wait to be sent has as much (`x-txtimer`).
pub(crate) const LONGEST_US: u64 = 150;
/// Completions since the last interrupt with which one that is wanted no longer waits: a driver
/// whose queue is full waits for them. A completion is one entry of the queue's table: interrupts
/// wait for drivers with indirect descriptors alone.
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
    /// Tells whether the driver in use is one whose interrupts may wait: Linux's accepts both
    /// features. A driver without event indices may wait for each of its frames. Without indirect
    /// descriptors a few frames may fill the queue, of whose entries [`Delay`] knows nothing.
    pub(super) fn has_patient_driver(&self) -> bool {
        const OF_PATIENT: u64 = 1 << VIRTIO_RING_F_EVENT_IDX | 1 << VIRTIO_RING_F_INDIRECT_DESC;
        self.transport.features() & OF_PATIENT == OF_PATIENT
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns with which completion an interrupt no longer waits. The driver wants one for the
    /// first of them, or for the last one alone.
    fn enough(size: u16, wants_first: bool) -> u16 {
        let mut delay = Delay::default();
        for completed in 1..=size {
            delay.note(1, size, wants_first);
            let mut wanted = delay;
            wanted.note(0, size, true);
            if wanted.left(u64::MAX) == Some(0) {
                return completed;
            }
        }
        panic!("it waits for the whole queue");
    }

    #[test]
    fn so_many_completions_are_enough() {
        for wants_first in [true, false] {
            let all = [256, 64, 63, 8, 7, 2, 1].map(|size| enough(size, wants_first));
            assert_eq!(all, [16, 16, 15, 2, 1, 1, 1]);
        }
        // One turn may complete more than the queue has entries.
        let mut delay = Delay::default();
        for _ in 0..2 {
            delay.note(u16::MAX, 256, true);
            assert_eq!(delay.left(u64::MAX), Some(0));
        }
        delay.end();
        assert!(!delay.is_pending() && delay.left(u64::MAX).is_none());
    }

    #[test]
    fn no_interrupt_waits_that_nobody_wants() {
        let mut delay = Delay::default();
        delay.note(100, 256, false);
        assert!(!delay.is_pending() && delay.left(u64::MAX).is_none());
        // A turn without a completion ends no wait.
        let mut delay = Delay::default();
        delay.note(0, 1, true);
        assert!(delay.is_pending() && delay.left(u64::MAX) != Some(0));
    }
}
