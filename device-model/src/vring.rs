//! One virtqueue in use: takes requests out, puts completions in, knows when to interrupt.
//!
//! Invariants: requests are completed in the order in which they were taken, so the
//! used index alone tells a restarted GDM where to go on; a chain that breaks a
//! rule of the specification breaks the device, not GDM.

use std::sync::atomic::Ordering;

use virtio_bindings::bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress};

use crate::buffers::Buffers;
use crate::mapping::Memory;
use crate::state::{DeviceState, Word};

/// The guest broke a rule; the device needs a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The available index is further ahead than the queue is long.
    AvailableIndex,
    /// A chain that does not end, leaves its table, or is too long.
    Chain,
    /// A descriptor that names something else than the guest's RAM.
    Address,
    /// A device-readable descriptor behind a device-writable one.
    Order,
    /// A ring that cannot be accessed any more.
    Ring,
    /// A request without what its type must have.
    Request,
}

/// Queue addresses, size and features, as the driver gave them.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Entries.
    pub size: u64,
    /// Descriptor table.
    pub descriptors: u64,
    /// Available ring.
    pub available: u64,
    /// Used ring.
    pub used: u64,
}

/// A request: what the device may read, and where it may write.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// Names the request in the used ring.
    pub head: u16,
    /// From the guest.
    pub readable: Buffers,
    /// To the guest.
    pub writable: Buffers,
}

/// A virtqueue that is ready.
#[derive(Debug)]
pub struct Vring {
    queue: Queue,
    memory: Memory,
    state: DeviceState,
    completed: bool,
}

impl Vring {
    /// Checks what the driver set up; `None` if it cannot be a queue of at most `max_size` entries.
    pub fn new(memory: &Memory, state: DeviceState, max_size: u16, setup: Setup) -> Option<Self> {
        let mut queue = Queue::new(max_size).ok()?;
        queue.try_set_size(u16::try_from(setup.size).ok()?).ok()?;
        let address = GuestAddress(setup.descriptors);
        queue.try_set_desc_table_address(address).ok()?;
        let address = GuestAddress(setup.available);
        queue.try_set_avail_ring_address(address).ok()?;
        let address = GuestAddress(setup.used);
        queue.try_set_used_ring_address(address).ok()?;
        queue.set_ready(true);
        queue.is_valid(memory.as_ref()).then(|| Self {
            queue,
            memory: memory.clone(),
            state,
            completed: false,
        })
    }

    /// Sets whether VIRTIO_F_RING_EVENT_IDX was negotiated.
    pub fn set_event_idx(&mut self, enabled: bool) {
        self.queue.set_event_idx(enabled);
    }

    /// Goes on where the used ring says that an earlier GDM stopped.
    pub fn resume(&mut self) -> Result<(), Broken> {
        let used = self.queue.used_idx(self.memory.as_ref(), Ordering::Acquire);
        let used = used.map_err(|_| Broken::Ring)?.0;
        self.queue.set_next_avail(used);
        self.queue.set_next_used(used);
        Ok(())
    }

    /// Returns the guest's RAM.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the device's counters.
    pub fn state(&self) -> DeviceState {
        self.state
    }

    /// Returns how many requests the guest has made available that were not taken.
    pub fn pending(&self) -> u16 {
        let index = self
            .queue
            .avail_idx(self.memory.as_ref(), Ordering::Acquire);
        index.map_or(0, |index| index.0.wrapping_sub(self.queue.next_avail()))
    }

    /// Takes the next request; false if there is none.
    pub fn take(&mut self, chain: &mut Chain) -> Result<bool, Broken> {
        chain.readable.clear();
        chain.writable.clear();
        let memory = self.memory.clone();
        let mut available = self
            .queue
            .iter(memory.as_ref())
            .map_err(|_| Broken::AvailableIndex)?;
        let Some(descriptors) = available.next() else {
            return Ok(false);
        };
        chain.head = descriptors.head_index();
        let mut more = true;
        for descriptor in descriptors {
            more = descriptor.has_next();
            let target = if descriptor.is_write_only() {
                &mut chain.writable
            } else if chain.writable.is_empty() {
                &mut chain.readable
            } else {
                return Err(Broken::Order);
            };
            if !target.push(&memory, descriptor.addr(), descriptor.len()) {
                return Err(Broken::Address);
            }
        }
        // The iterator ends early where a chain breaks a rule: then the last one promised a next.
        if more { Err(Broken::Chain) } else { Ok(true) }
    }

    /// Completes the oldest request taken; `written` bytes of it were written.
    pub fn complete(&mut self, head: u16, written: u64) -> Result<(), Broken> {
        let written = u32::try_from(written).unwrap_or(u32::MAX);
        self.completed = true;
        self.state.count(Word::Requests, 1);
        self.queue
            .add_used(self.memory.as_ref(), head, written)
            .map_err(|_| Broken::Ring)
    }

    /// Asks the guest not to notify: the device looks by itself.
    pub fn silence(&mut self) -> Result<(), Broken> {
        let done = self.queue.disable_notification(self.memory.as_ref());
        done.map_err(|_| Broken::Ring)
    }

    /// Asks the guest to notify; true if a request came in meanwhile.
    pub fn listen(&mut self) -> Result<bool, Broken> {
        let more = self.queue.enable_notification(self.memory.as_ref());
        more.map_err(|_| Broken::Ring)
    }

    /// Tells whether the guest wants an interrupt for what was completed since the last call.
    pub fn wants_interrupt(&mut self) -> Result<bool, Broken> {
        if !std::mem::take(&mut self.completed) {
            return Ok(false);
        }
        if self.queue.event_idx_enabled() {
            let wants = self.queue.needs_notification(self.memory.as_ref());
            return wants.map_err(|_| Broken::Ring);
        }
        finish_ring();
        let flags = self
            .memory
            .load::<u16>(GuestAddress(self.queue.avail_ring()), Ordering::Relaxed);
        let flags = u32::from(u16::from_le(flags.map_err(|_| Broken::Ring)?));
        Ok(flags & VRING_AVAIL_F_NO_INTERRUPT == 0)
    }
}

/// Orders the used index before the guest's wish for interrupts is read.
fn finish_ring() {
    std::sync::atomic::fence(Ordering::SeqCst);
}
