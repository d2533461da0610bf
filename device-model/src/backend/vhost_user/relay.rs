//! The rings between GDM and a backend: GDM passes requests on from the guest's available ring, and
//! completions back to the guest's used ring. The backend reads the guest's descriptors itself.
//!
//! Rings of GDM's own, beside the guest's, make three things possible. GDM knows which requests a
//! backend has, whatever the backend knows of that ([`InFlight`](crate::in_flight::InFlight)): a
//! backend that dies costs no request. GDM knows when the backend has finished with the guest's
//! memory. A backend that completes what it was not given is found out before the guest sees it.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vhost::{VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryError, GuestRegionMmap,
};

use crate::in_flight::MAX_REQUESTS;
use crate::memory::Memory;
use crate::state::NOTED_QUEUES;
use crate::sys;
use crate::vring::{Shared, Used, Vring};

/// Address of the rings among the backend's memory: no guest has RAM from there on. A guest that
/// names it reaches the rings of its own device, and GDM believes nothing that it reads there.
const BASE: u64 = 1 << 48;
/// Bytes between the rings of two queues, and place of the used ring.
const QUEUE_BYTES: u64 = 0x1000;
const USED: u64 = 0x800;
/// Bytes in front of a ring's entries, and place of the index (virtio 1.2, 2.7.6 and 2.7.8).
const ENTRIES: u64 = 4;
const INDEX: u64 = 2;
const AVAILABLE_SIZE: u64 = 2;
const USED_SIZE: u64 = 8;
const _: () = assert!(ENTRIES + AVAILABLE_SIZE * MAX_REQUESTS as u64 <= USED);
const _: () = assert!(USED + ENTRIES + USED_SIZE * MAX_REQUESTS as u64 <= QUEUE_BYTES);
/// `VRING_USED_F_NO_NOTIFY`.
const NO_NOTIFY: u16 = 1;

/// Makes the memory of all rings of a device; also returns it as what it is made of.
pub(super) fn memory() -> Result<(Memory, Arc<File>), String> {
    let size = QUEUE_BYTES * NOTED_QUEUES as u64;
    let file = sys::shared_memory(c"gdm-rings", size);
    let file = file.map_err(|error| format!("memory of rings: {error}"))?;
    let file = Arc::new(file);
    let place = FileOffset::from_arc(Arc::clone(&file), 0);
    let region = GuestRegionMmap::from_range(GuestAddress(BASE), size as usize, Some(place));
    let region = region.map_err(|error| format!("memory of rings: {error}"))?;
    let memory = Memory::of(region).map_err(|error| format!("memory of rings: {error}"))?;
    Ok((memory, file))
}

/// Returns what a backend maps: the guest's RAM, and the rings.
pub(super) fn regions(
    guest: &Memory,
    rings: &Memory,
) -> Result<Vec<VhostUserMemoryRegionInfo>, String> {
    let regions = guest.iter().chain(rings.iter());
    let regions = regions.map(VhostUserMemoryRegionInfo::from_guest_region);
    let regions: Result<Vec<_>, _> = regions.collect();
    regions.map_err(|error| format!("the guest's RAM has no descriptor: {error}"))
}

/// The rings of one queue, seen from the driver's side.
#[derive(Debug)]
pub(super) struct Relay {
    /// Memory of all rings of the device; nothing that is read from it is believed.
    memory: Memory,
    /// Addresses of both rings among the backend's memory.
    available: u64,
    used: u64,
    /// Entries of each ring, a power of two.
    size: u16,
    /// Index behind the last request offered.
    offered: u16,
    /// Index behind the last completion taken.
    taken: u16,
}

impl Relay {
    /// Makes empty rings for a queue of the guest's, at index 0.
    pub(super) fn new(memory: &Memory, queue: usize, size: u16) -> Result<Self, String> {
        let available = BASE + QUEUE_BYTES * queue as u64;
        let zeroes = [0; QUEUE_BYTES as usize];
        let zeroed = memory.write_slice(&zeroes, GuestAddress(available));
        zeroed.map_err(in_words)?;
        Ok(Self {
            memory: memory.clone(),
            available,
            used: available + USED,
            size,
            offered: 0,
            taken: 0,
        })
    }

    /// Returns where the queue's parts are in this process.
    pub(super) fn rings(&self, ring: &Vring) -> Result<VringConfigData, String> {
        let place = |memory: &Memory, address| {
            let place = memory.get_host_address(GuestAddress(address));
            place.map(|place| place.addr() as u64).map_err(in_words)
        };
        Ok(VringConfigData {
            queue_max_size: MAX_REQUESTS,
            queue_size: self.size,
            flags: 0,
            desc_table_addr: place(ring.memory(), ring.descriptors())?,
            used_ring_addr: place(&self.memory, self.used)?,
            avail_ring_addr: place(&self.memory, self.available)?,
            log_addr: None,
        })
    }

    /// Offers a request to the backend. The entry is stored before the index, by which the backend
    /// learns of it (virtio 1.2, 2.7.13.3).
    pub(super) fn offer(&mut self, head: u16) -> Result<(), String> {
        let place = u64::from(self.offered.checked_rem(self.size).unwrap_or(0));
        let at = self.available + ENTRIES + AVAILABLE_SIZE * place;
        let stored = self.memory.store(at, head, Ordering::Relaxed);
        stored.map_err(in_words)?;
        self.offered = self.offered.wrapping_add(1);
        let index = self.available + INDEX;
        let stored = Shared::store(&self.memory, index, self.offered, Ordering::Release);
        stored.map_err(in_words)
    }

    /// Tells whether the backend wants to be told of what was offered.
    pub(super) fn wants_kick(&self) -> Result<bool, String> {
        // The backend says that it wants to be told, then looks at the available index.
        self.memory.fence();
        let flags = Shared::load(&self.memory, self.used, Ordering::Relaxed);
        Ok(flags.map_err(in_words)? & NO_NOTIFY == 0)
    }

    /// Takes the next completion. The backend may write anything at any time, so that each word is
    /// read once and judged before it is used.
    pub(super) fn complete(&mut self) -> Result<Option<Used>, String> {
        let index = self.used_index()?;
        let (done, given) = (
            index.wrapping_sub(self.taken),
            self.offered.wrapping_sub(self.taken),
        );
        if done == 0 {
            return Ok(None);
        }
        // planted: a backend completes more than it was given
        if done > given {
            return Err(format!(
                "the backend says that it has completed {done} requests of {given}"
            ));
        }
        let place = u64::from(self.taken.checked_rem(self.size).unwrap_or(0));
        let at = GuestAddress(self.used + ENTRIES + USED_SIZE * place);
        let word: [u32; 2] = self.memory.read_obj(at).map_err(in_words)?;
        let [head, written] = word.map(u32::from_le);
        let head = u16::try_from(head).ok().filter(|head| *head < self.size);
        let head = head.ok_or("the backend completes a request that cannot be")?;
        self.taken = self.taken.wrapping_add(1);
        Ok(Some(Used { head, written }))
    }

    /// Tells whether all requests before `base` are completed: the backend has nothing in progress.
    pub(super) fn is_idle(&self, base: u16) -> Result<bool, String> {
        Ok(self.used_index()? == base)
    }

    /// Reads the index behind the last completion. Acquire: its entry is read after it.
    fn used_index(&self) -> Result<u16, String> {
        let index = Shared::load(&self.memory, self.used + INDEX, Ordering::Acquire);
        index.map_err(in_words)
    }
}

/// An access outside of the rings is a defect of GDM, and ends the use of this backend alone.
fn in_words(error: GuestMemoryError) -> String {
    format!("rings of a queue: {error}")
}
