//! One virtqueue in use: takes requests out, puts completions in, and decides when to interrupt.
//!
//! Invariants: backends complete requests in the order in which they were taken, so that the used
//! index alone tells a restarted GDM the position, or note what they have (`in_flight.rs`); a chain
//! that violates the specification breaks the device, not GDM.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use virtio_bindings::bindings::virtio_ring::VRING_DESC_F_WRITE;
use virtio_queue::{DescriptorChain, Queue, QueueOwnedT, QueueT};
use vm_memory::{
    Bytes, GuestAddress, GuestMemory, GuestMemoryError, GuestMemoryMmap, GuestRegionMmap,
    MmapRegion,
};

use crate::buffers::Buffers;
use crate::memory::Memory;
use crate::state::{DeviceState, Word};
use order::Rings;
pub(crate) use order::Shared;
pub use order::Used;

mod order;

/// Address and size of the ring that names a request again: no guest has RAM there.
const AGAIN: u64 = 1 << 48;
/// One page: the ring of one request needs far less.
const AGAIN_BYTES: usize = 0x1000;
/// Bytes of a descriptor: address, length, flags, next (virtio 1.2, 2.7.5).
const DESCRIPTOR: usize = 16;

/// The guest broke a rule; the device needs a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The available index is further ahead than the queue is long.
    AvailableIndex,
    /// A chain that does not end, leaves its table, or is too long.
    Chain,
    /// A descriptor names something else than the guest's RAM, where the device cannot do without.
    Address,
    /// A device-readable descriptor behind a device-writable one.
    Order,
    /// The ring cannot be accessed any longer.
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

impl Chain {
    /// Tells whether all that the request names is the guest's RAM.
    pub fn is_reachable(&self) -> bool {
        self.readable.is_all_reachable() && self.writable.is_all_reachable()
    }
}

/// A virtqueue that is ready.
#[derive(Debug)]
pub struct Vring {
    /// Walks the chains.
    queue: Queue,
    /// All other accesses to the rings.
    rings: Rings,
    /// How far the driver was at the last look; all that it wrote for these requests is visible.
    seen: u16,
    /// The guest's RAM. All addresses of rings and descriptors are guest-physical.
    memory: Memory,
    /// The device's page, for its counters.
    state: DeviceState,
}

impl Vring {
    /// Checks what the driver set up; `None` if it cannot be a queue of at most `max_size` entries.
    pub fn new(
        memory: &Memory,
        state: DeviceState,
        max_size: u16,
        setup: Setup,
        event_index: bool,
    ) -> Option<Self> {
        let queue = queue_of(max_size, setup)?;
        queue.is_valid(&**memory).then(|| Self {
            rings: Rings {
                size: queue.size(),
                available: queue.avail_ring(),
                used: queue.used_ring(),
                event_index,
                next_used: 0,
                completed: 0,
            },
            queue,
            seen: 0,
            memory: memory.clone(),
            state,
        })
    }

    /// Goes on where the used ring says that an earlier GDM stopped.
    pub fn resume(&mut self) -> Result<(), Broken> {
        let used = self.rings.used_index(&self.memory).map_err(broken)?;
        // The used index says how many were done; a backend that completes in another order passes
        // over those that it has.
        self.queue.set_next_avail(used);
        self.seen = used;
        self.rings.next_used = used;
        Ok(())
    }

    /// Returns how many entries the queue has.
    pub fn size(&self) -> u16 {
        self.rings.size
    }

    /// Tells whether requests were taken that are not completed.
    pub fn has_taken(&self) -> bool {
        self.queue.next_avail() != self.rings.next_used
    }

    /// Returns the address of the descriptor table.
    pub fn descriptors(&self) -> u64 {
        self.queue.desc_table()
    }

    /// Returns the used index: the position of the next completion.
    pub fn used(&self) -> u16 {
        self.rings.next_used
    }

    /// Returns the position of the next request to be taken.
    pub fn next(&self) -> u16 {
        self.queue.next_avail()
    }

    /// Passes over the next `count` requests: they were taken before, and are not completed.
    pub fn pass_over(&mut self, count: u16) {
        let next = self.queue.next_avail().wrapping_add(count);
        self.queue.set_next_avail(next);
        self.seen = next;
    }

    /// Returns the request that the used ring names at `position`, one of the last
    /// [`Self::size`] ones.
    pub fn completed_at(&self, position: u16) -> Result<u16, Broken> {
        let head = self.rings.completed_at(&self.memory, position);
        head.map_err(broken)
    }

    /// Returns the guest's RAM.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the device's counters.
    pub fn state(&self) -> DeviceState {
        self.state
    }

    /// Returns whether the guest was stopped and Gear2 wants its memory back: no new request may
    /// begin.
    pub fn is_withdrawn(&self) -> bool {
        self.state.reset_asked().is_some()
    }

    /// Returns how many requests the guest has made available that were not taken.
    pub fn pending(&self) -> u16 {
        let index = self.rings.available_index(&self.memory);
        index.map_or(0, |index| index.wrapping_sub(self.queue.next_avail()))
    }

    /// Takes the next request; false if there is none. All that it names is the guest's RAM.
    pub fn take(&mut self, chain: &mut Chain) -> Result<bool, Broken> {
        let taken = self.take_any(chain)?;
        if taken && !chain.is_reachable() {
            return Err(Broken::Address);
        }
        Ok(taken)
    }

    /// Takes the next request, which may name memory that is not mapped here; false if there is
    /// none.
    pub fn take_any(&mut self, chain: &mut Chain) -> Result<bool, Broken> {
        if let Some((head, address, length, is_writable)) = self.single_buffer() {
            chain.readable.clear();
            chain.writable.clear();
            chain.head = head;
            let buffers = if is_writable {
                &mut chain.writable
            } else {
                &mut chain.readable
            };
            // One segment is not too many.
            buffers.push(&self.memory, address, length);
            let next = self.queue.next_avail();
            self.queue.set_next_avail(next.wrapping_add(1));
            return Ok(true);
        }
        let memory: &GuestMemoryMmap<()> = &self.memory;
        // planted: an index that jumps is nothing to do
        let mut available = self
            .queue
            .iter(memory)
            .map_err(|_| Broken::AvailableIndex)?;
        let Some(descriptors) = available.next() else {
            return Ok(false);
        };
        read_chain(descriptors, &self.memory, chain)?;
        Ok(true)
    }

    /// Returns the next request's number, and of its buffer the address, the length and whether the
    /// device writes it, if there is a single one, as for most frames: to walk a chain costs several
    /// times as much. All else is the walk's to judge, breaches of rules among them.
    fn single_buffer(&mut self) -> Option<(u16, GuestAddress, u32, bool)> {
        let (next, size) = (self.queue.next_avail(), self.rings.size);
        let is_ahead = |index: u16| (1..=size).contains(&index.wrapping_sub(next));
        if !is_ahead(self.seen) {
            let index = self.rings.available_index(&self.memory).ok()?;
            // An index that says nothing, or too much, is the walk's to judge, and is not kept.
            if !is_ahead(index) {
                return None;
            }
            self.seen = index;
        }
        let head = self.rings.available_at(&self.memory, next).ok()?;
        let place = DESCRIPTOR as u64 * u64::from(head);
        let place = self.queue.desc_table().checked_add(place)?;
        let place = self.memory.slice(GuestAddress(place), DESCRIPTOR).ok()?;
        // Read once: the driver may change the descriptor meanwhile.
        let address = u64::from_le(place.load(0, Ordering::Relaxed).ok()?);
        let rest = u64::from_le(place.load(8, Ordering::Relaxed).ok()?);
        let flags = (rest >> 32) as u32 & 0xffff;
        let is_writable = flags == VRING_DESC_F_WRITE;
        let is_single = head < size && (is_writable || flags == 0);
        is_single.then_some((head, GuestAddress(address), rest as u32, is_writable))
    }

    /// Takes a request by its number that an earlier GDM took: the driver may have written over its
    /// place in the available ring meanwhile. The request may name memory that is not mapped here.
    pub fn take_again(&mut self, head: u16, chain: &mut Chain) -> Result<(), Broken> {
        let memory = self.memory_with_ring_of(head)?;
        let mut queue = Queue::new(self.queue.max_size()).map_err(|_| Broken::Ring)?;
        queue.set_size(self.queue.size());
        queue
            .try_set_desc_table_address(GuestAddress(self.queue.desc_table()))
            .map_err(|_| Broken::Ring)?;
        queue
            .try_set_avail_ring_address(GuestAddress(AGAIN))
            .map_err(|_| Broken::Ring)?;
        queue.set_ready(true);
        let mut available = queue.iter(&memory).map_err(|_| Broken::AvailableIndex)?;
        let descriptors = available.next().ok_or(Broken::Chain)?;
        read_chain(descriptors, &self.memory, chain)
    }

    /// Returns the guest's memory and, at [`AGAIN`] beside it, an available ring that names one
    /// request alone. The ring is this process's own, so no driver changes it while it is read.
    fn memory_with_ring_of(&self, head: u16) -> Result<GuestMemoryMmap<()>, Broken> {
        let region = MmapRegion::new(AGAIN_BYTES).map_err(|_| Broken::Ring)?;
        let region = GuestRegionMmap::new(region, GuestAddress(AGAIN)).ok_or(Broken::Ring)?;
        let memory = self.memory.insert_region(Arc::new(region));
        let memory = memory.map_err(|_| Broken::Ring)?;
        let ring: [u16; 3] = [0, 1, head].map(u16::to_le);
        let written = memory.write_obj(ring, GuestAddress(AGAIN));
        written.map_err(broken)?;
        Ok(memory)
    }

    /// Completes a request; `written` bytes of it were written. Requests are completed in the order
    /// of taking, or noted (`in_flight.rs`).
    pub fn complete(&mut self, head: u16, written: u64) -> Result<(), Broken> {
        self.complete_all(&[Used::new(head, written)])
    }

    /// Completes requests that belong together: the driver sees all of them at once. One that sees
    /// fewer buffers than a frame has drops the frame (virtio 1.2, 5.1.6.4).
    pub fn complete_all(&mut self, all: &[Used]) -> Result<(), Broken> {
        self.count(all.len());
        self.rings.complete(&self.memory, all).map_err(broken)
    }

    /// Completes a request as [`Self::complete`] does. `status` is its last byte, at `place` of the
    /// writable ones, after `place` bytes of which `written` were written.
    pub fn answer(
        &mut self,
        chain: &Chain,
        place: u64,
        status: u8,
        written: u64,
    ) -> Result<(), Broken> {
        let address = chain.writable.address(place).ok_or(Broken::Address)?;
        // The status counts too (virtio 1.2, 2.7.8.2).
        let used = Used::new(chain.head, written.saturating_add(1));
        self.count(1);
        let answered = self.rings.answer(&self.memory, used, (address.0, status));
        answered.map_err(broken)
    }

    /// Counts requests before the guest can see that they are completed: a GDM that starts meanwhile
    /// would take the device for one that has done nothing.
    fn count(&self, requests: usize) {
        self.state.count(Word::Requests, requests as u64);
    }

    /// Asks the guest not to notify: the device looks by itself.
    pub fn silence(&mut self) -> Result<(), Broken> {
        self.rings.silence(&self.memory).map_err(broken)
    }

    /// Asks the guest to notify; true if a request came in meanwhile.
    pub fn listen(&mut self) -> Result<bool, Broken> {
        let next = self.queue.next_avail();
        self.rings.listen(&self.memory, next).map_err(broken)
    }

    /// Returns whether the guest wants an interrupt for the requests completed since the last call.
    pub fn wants_interrupt(&mut self) -> Result<bool, Broken> {
        self.rings.wants_interrupt(&self.memory).map_err(broken)
    }
}

/// Returns the queue that the driver set up; `None` if its size is no power of 2 of at most
/// `max_size`, or an address is not aligned (virtio 1.2, 2.7). Whether the rings lie in RAM is not
/// judged here.
fn queue_of(max_size: u16, setup: Setup) -> Option<Queue> {
    let mut queue = Queue::new(max_size).ok()?;
    queue.try_set_size(u16::try_from(setup.size).ok()?).ok()?;
    let address = GuestAddress(setup.descriptors);
    queue.try_set_desc_table_address(address).ok()?;
    let address = GuestAddress(setup.available);
    queue.try_set_avail_ring_address(address).ok()?;
    let address = GuestAddress(setup.used);
    queue.try_set_used_ring_address(address).ok()?;
    queue.set_ready(true);
    Some(queue)
}

/// Reads what a request names. Buffers are judged by the guest's own memory.
fn read_chain<M>(
    descriptors: DescriptorChain<M>,
    memory: &Memory,
    chain: &mut Chain,
) -> Result<(), Broken>
where
    M: Deref,
    M::Target: GuestMemory,
{
    chain.readable.clear();
    chain.writable.clear();
    chain.head = descriptors.head_index();
    let mut more = true;
    for descriptor in descriptors {
        more = descriptor.has_next();
        let target = if descriptor.is_write_only() {
            // planted: readable behind writable is taken
            &mut chain.writable
        } else if chain.writable.is_empty() {
            &mut chain.readable
        } else {
            return Err(Broken::Order);
        };
        if !target.push(memory, descriptor.addr(), descriptor.len()) {
            return Err(Broken::Chain);
        }
    }
    // The iterator ends early where a chain breaks a rule: then the last one promised a next.
    // planted: a loop or a next outside of the table ends a chain well
    if more { Err(Broken::Chain) } else { Ok(()) }
}

/// Returns the fault of a ring that lies outside of the guest's RAM: the driver chose the place.
fn broken(_: GuestMemoryError) -> Broken {
    Broken::Ring
}

impl Shared for Memory {
    type Error = GuestMemoryError;

    fn load(&self, address: u64, order: Ordering) -> Result<u16, GuestMemoryError> {
        // Rings are little-endian (virtio 1.2, 2.7).
        let word = self.slice(GuestAddress(address), size_of::<u16>())?;
        Ok(u16::from_le(word.load(0, order)?))
    }

    fn store(&self, address: u64, value: u16, order: Ordering) -> Result<(), GuestMemoryError> {
        let word = self.slice(GuestAddress(address), size_of::<u16>())?;
        Ok(word.store(value.to_le(), 0, order)?)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), GuestMemoryError> {
        let place = self.slice(GuestAddress(address), bytes.len())?;
        Ok(place.write_slice(bytes, 0)?)
    }

    fn fence(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}
