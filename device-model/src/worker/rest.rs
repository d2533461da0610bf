//! The end of a backend's use of the guest's memory: a reset, the closing of a queue, and the pause
//! of the VM are answered when nothing is under way there, since whoever asked has another use for
//! the memory, or wants it to stay as it is.

use super::Worker;
use crate::state::Word;
use crate::transport::{Write, register};
use crate::vring::Broken;

/// Tells whether a write resets the device (virtio 1.2, 2.1).
pub(super) const fn is_reset(write: Write) -> bool {
    write.register == register::STATUS && write.size == 4 && write.value as u32 == 0
}

impl Worker {
    /// Tells whether nothing is under way in the guest's memory. Nothing of this GDM is, between
    /// two turns; what an earlier one left to the kernel has ended when the backend could be
    /// opened.
    pub(super) fn has_memory_at_rest(&self) -> bool {
        // planted: a reset does not wait for an earlier gdm's requests
        !self.is_awaiting
            || self.state.get(Word::InKernel) == 0
            || self.wiring.away.is_another_boot()
    }

    /// Has the backend finish with the guest's memory, and tells whether it has: a driver uses the
    /// memory for something else once its reset is answered. A backend that does not finish is
    /// given up, and the driver's vCPU waits until that backend is certainly gone.
    pub(super) fn comes_to_rest(&mut self) -> bool {
        if !self.has_memory_at_rest() {
            return false;
        }
        self.backend.reset();
        self.replace_lost();
        self.has_memory_at_rest()
    }

    /// Has the backend finish with the queue that a write closes, if it closes one, and tells
    /// whether it has (virtio 1.2, 4.2.2.1). Requests that end meanwhile are completed, and the
    /// driver is told, ahead of the answer. A backend that does not finish is given up, as for a
    /// reset.
    pub(super) fn has_finished(&mut self, write: Write) -> bool {
        // planted: a queue that its driver closed keeps its place in line
        let Some(queue) = self.transport.closes(write) else {
            return true;
        };
        match self.close(queue) {
            // The queue's driver is told of all its completions ahead of the answer.
            Ok(wants) if !wants && !self.delay.is_pending() => {}
            Ok(_) => {
                self.transport.show_used();
                self.interrupt();
            }
            Err(reason) => {
                if self.break_queue(queue, reason) {
                    self.interrupt();
                }
            }
        }
        self.replace_lost();
        self.has_memory_at_rest()
    }

    /// Has the backend finish with what it has of all queues when the VM was paused, and answers
    /// when it has. Requests that end meanwhile are completed, and the guest finds them when it
    /// goes on. A backend that does not finish is given up, as for a reset. When the VM was
    /// resumed, the queues have turns again.
    pub(super) fn heed_hold(&mut self) {
        let Some(asked) = self.state.hold_asked() else {
            return;
        };
        if self.state.is_held() {
            // planted: a device of a paused VM does not finish
            self.finish_queues();
            self.replace_lost();
            if !self.has_memory_at_rest() {
                return;
            }
        }
        self.state.answer_hold(asked);
    }

    /// Has the backend finish with what it has of each queue, and tells the guest of what was
    /// completed.
    fn finish_queues(&mut self) {
        let (mut wants, broken) = self.finish_up_to_broken();
        // No turn of a paused VM ends a wait.
        // planted: a guest that is paused hears of a frame when it goes on
        wants |= self.delay.is_pending();
        if wants {
            self.transport.show_used();
        }
        if let Some((queue, reason)) = broken {
            wants |= self.break_queue(queue, reason);
        }
        if wants {
            self.interrupt();
        }
    }

    /// Finishes one queue after the other, up to the first that is broken. Returns whether the
    /// guest wants an interrupt for those before it, and the broken one with the reason.
    fn finish_up_to_broken(&mut self) -> (bool, Option<(usize, Broken)>) {
        let mut wants = false;
        for (queue, ring) in self.transport.rings().iter_mut().enumerate() {
            let Some(ring) = ring else {
                continue;
            };
            let finished = self.backend.finish(queue, ring);
            match finished.and_then(|()| ring.wants_interrupt()) {
                Ok(wanted) => wants |= wanted,
                Err(reason) => return (wants, Some((queue, reason))),
            }
        }
        (wants, None)
    }

    /// Has the backend finish with a queue; returns whether to interrupt the guest.
    fn close(&mut self, queue: usize) -> Result<bool, Broken> {
        // A device that is broken has no rings for the backend.
        let rings = self.transport.rings();
        let mut ring = rings.get_mut(queue).and_then(Option::as_mut);
        self.backend.close(queue, ring.as_deref_mut())?;
        ring.map_or(Ok(false), |ring| ring.wants_interrupt())
    }
}
