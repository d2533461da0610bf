//! The words of a split virtqueue that both sides read, and the order of the accesses to them
//! (virtio 1.2, 2.7).
//!
//! Invariants: a driver that sees the used index sees all bytes that the request wrote, the last
//! one included. Completions that belong together, as the buffers of one frame do, are seen at
//! once. A device that asks whether an interrupt is wanted and a driver that asks whether there are
//! used entries: one of them sees the other's store. The same holds for a driver that makes a
//! request available and a device that stops looking. The tests try this in the orders that a CPU
//! with a store buffer allows.

use std::sync::atomic::Ordering;

#[cfg(test)]
mod tests;

/// `VRING_AVAIL_F_NO_INTERRUPT`, and `VRING_USED_F_NO_NOTIFY`.
const NO_EVENT: u16 = 1;
/// Bytes in front of a ring's entries: flags, then the index.
const ENTRIES: u64 = 4;
/// Offset of the index in a ring, and sizes of the entries (virtio 1.2, 2.7.6 and 2.7.8).
const INDEX: u64 = 2;
const AVAILABLE_SIZE: u64 = 2;
const USED_SIZE: u64 = 8;
/// Most entries of the used ring that are written at once.
const RUN: usize = 16;

/// Memory that a guest and a device work on at once.
pub(crate) trait Shared {
    /// Error of an access outside of the memory.
    type Error;

    /// Reads a little-endian word.
    fn load(&self, address: u64, order: Ordering) -> Result<u16, Self::Error>;

    /// Writes a little-endian word.
    fn store(&self, address: u64, value: u16, order: Ordering) -> Result<(), Self::Error>;

    /// Writes bytes, in no order.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Has all stores before seen by everybody before any load behind.
    fn fence(&self);
}

/// The rings of a queue, and the device's place in the used one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rings {
    /// Entries.
    pub(crate) size: u16,
    /// Address of the available ring.
    pub(crate) available: u64,
    /// Address of the used ring.
    pub(crate) used: u64,
    /// VIRTIO_F_RING_EVENT_IDX was negotiated.
    pub(crate) event_index: bool,
    /// The used index.
    pub(crate) next_used: u16,
    /// Completed since [`Self::wants_interrupt`] was asked.
    pub(crate) completed: u16,
}

/// An entry of the used ring: a request that is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Names the request.
    pub head: u16,
    /// Bytes that the device wrote.
    pub written: u32,
}

impl Used {
    /// Returns the entry of a request of which `written` bytes were written.
    pub fn new(head: u16, written: u64) -> Self {
        Self {
            head,
            written: u32::try_from(written).unwrap_or(u32::MAX),
        }
    }
}

/// The last byte of a request: its status, and where it goes.
pub(crate) type Status = (u64, u8);

impl Rings {
    /// Returns how far the driver is; all that it wrote for these requests is visible.
    pub(crate) fn available_index<M: Shared>(&self, memory: &M) -> Result<u16, M::Error> {
        memory.load(self.available + INDEX, Ordering::Acquire)
    }

    /// Returns the request that the available ring names at `position`, behind which the driver is.
    pub(crate) fn available_at<M: Shared>(
        &self,
        memory: &M,
        position: u16,
    ) -> Result<u16, M::Error> {
        let place = u64::from(position.checked_rem(self.size).unwrap_or(0));
        let entry = self.available + ENTRIES + place * AVAILABLE_SIZE;
        memory.load(entry, Ordering::Relaxed)
    }

    /// Returns how far the device that had this queue before was.
    pub(crate) fn used_index<M: Shared>(&self, memory: &M) -> Result<u16, M::Error> {
        memory.load(self.used + INDEX, Ordering::Acquire)
    }

    /// Returns the request that the used ring names at `position`, one of the last `size` ones.
    pub(crate) fn completed_at<M: Shared>(
        &self,
        memory: &M,
        position: u16,
    ) -> Result<u16, M::Error> {
        memory.load(self.entry(position), Ordering::Relaxed)
    }

    /// Completes requests: their entries, then the index, by which the driver sees all of them at
    /// once (virtio 1.2, 2.7.8 and 5.1.6.4).
    pub(crate) fn complete<M: Shared>(&mut self, memory: &M, all: &[Used]) -> Result<(), M::Error> {
        let mut rest = all;
        while !rest.is_empty() {
            let place = self.next_used.checked_rem(self.size).unwrap_or(0);
            let until_end = usize::from(self.size.saturating_sub(place)).max(1);
            let (run, behind) = rest.split_at(rest.len().min(RUN).min(until_end));
            let begin = self.entry(self.next_used);
            let mut bytes = [0; RUN * USED_SIZE as usize];
            let (entries, _) = bytes.as_chunks_mut();
            for (entry, used) in entries.iter_mut().zip(run) {
                *entry = (u64::from(used.head) | u64::from(used.written) << 32).to_le_bytes();
                self.next_used = self.next_used.wrapping_add(1);
                // planted: the buffers of a frame are seen one by one
                self.completed = self.completed.wrapping_add(1);
            }
            let entries = bytes.get(..run.len() * USED_SIZE as usize);
            memory.write(begin, entries.unwrap_or_default())?;
            rest = behind;
        }
        // planted: the used index waits for nothing
        memory.store(self.used + INDEX, self.next_used, Ordering::Release)
    }

    /// Completes a request whose last byte is its status.
    pub(crate) fn answer<M: Shared>(
        &mut self,
        memory: &M,
        used: Used,
        (address, status): Status,
    ) -> Result<(), M::Error> {
        // planted: the status comes behind the used index
        memory.write(address, &[status])?;
        self.complete(memory, &[used])
    }

    /// Returns the address of the used ring's entry at `position`.
    fn entry(&self, position: u16) -> u64 {
        let place = u64::from(position.checked_rem(self.size).unwrap_or(0));
        self.used + ENTRIES + place * USED_SIZE
    }

    /// Returns whether the driver wants an interrupt for the requests completed since the last
    /// call.
    pub(crate) fn wants_interrupt<M: Shared>(&mut self, memory: &M) -> Result<bool, M::Error> {
        let completed = core::mem::take(&mut self.completed);
        if completed == 0 {
            return Ok(false);
        }
        // The driver says that it wants one, then looks at the used index.
        // planted: no fence before the look at the wish for interrupts
        memory.fence();
        if !self.event_index {
            let flags = memory.load(self.available, Ordering::Relaxed)?;
            return Ok(flags & NO_EVENT == 0);
        }
        let at = self.available + ENTRIES + AVAILABLE_SIZE * u64::from(self.size);
        let event = memory.load(at, Ordering::Relaxed)?;
        let behind = self.next_used.wrapping_sub(event).wrapping_sub(1);
        Ok(behind < completed)
    }

    /// Asks the driver not to notify: the device looks by itself.
    pub(crate) fn silence<M: Shared>(&self, memory: &M) -> Result<(), M::Error> {
        if self.event_index {
            // The event stays where the device has been already.
            return Ok(());
        }
        memory.store(self.used, NO_EVENT, Ordering::Relaxed)
    }

    /// Asks the driver to notify of the request number `next`; true if it is there meanwhile.
    pub(crate) fn listen<M: Shared>(&self, memory: &M, next: u16) -> Result<bool, M::Error> {
        if self.event_index {
            let at = self.used + ENTRIES + USED_SIZE * u64::from(self.size);
            memory.store(at, next, Ordering::Relaxed)?;
        } else {
            memory.store(self.used, 0, Ordering::Relaxed)?;
        }
        // The driver makes a request available, then looks whether to notify.
        // planted: no fence before the last look for requests
        memory.fence();
        Ok(memory.load(self.available + INDEX, Ordering::Relaxed)? != next)
    }
}
