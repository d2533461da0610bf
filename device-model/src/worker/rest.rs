//! The end of a backend's use of the guest's memory: a reset is answered when nothing is under way
//! there, since whoever asked for it has another use for the memory.

use super::Worker;
use crate::state::Word;
use crate::transport::{Write, register};

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
}
