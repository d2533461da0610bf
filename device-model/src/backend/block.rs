//! virtio-blk (virtio 1.2, 5.2) on a file or a block device of the device VM.
//!
//! Reads, writes and flushes are under way beside each other (`flight.rs`) and are completed as they
//! end; everything else is done at once. Data goes between the file and guest RAM without a copy,
//! and past the page cache (`O_DIRECT`) where the request's alignment allows it.
//!
//! Invariants: a reset is answered when the kernel has nothing of the guest's; a flush covers
//! whatever was completed before it was taken; nothing of a guest that was stopped begins or is
//! completed.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_WRITE_ZEROES,
};
use virtio_bindings::virtio_ids::VIRTIO_ID_BLOCK;

use super::{Backend, Opened, Parts, Progress};
use crate::board::DeviceNode;
use crate::in_flight::MAX_REQUESTS;
use crate::order::{Answer, Order};
use crate::rate::Shared;
use crate::state::{DeviceState, NOTED_QUEUES, Word};
use crate::transport::Identity;
use crate::vring::{Broken, Vring};
use empty::Empty;
use flight::Flights;
use media::{Files, Geometry, Media, Waited};
use range::ranges_of;
use request::Request;

mod config;
mod empty;
mod flight;
mod media;
mod range;
mod request;
#[cfg(test)]
mod tests;

/// Unit of all places and lengths in the protocol, whatever blocks the disk has (virtio 1.2,
/// 5.2.6).
const SECTOR: u64 = 512;
/// Type in the register DeviceID (virtio 1.2, 5.2.1).
pub(super) const DEVICE_ID: u32 = VIRTIO_ID_BLOCK;
/// Longest queue that a driver may choose.
/// The places for notes bound it.
pub(super) const QUEUE_SIZE: u16 = MAX_REQUESTS;
/// Header and status take two of the queue's descriptors.
const SEGMENTS: u32 = QUEUE_SIZE as u32 - 2;
/// Most queues of a disk.
const QUEUES: usize = NOTED_QUEUES;
/// Requests that are taken in a turn.
const TURN: usize = super::TURN;
/// Bytes of VIRTIO_BLK_T_GET_ID's answer.
const ID_LENGTH: usize = 20;
/// Between two looks at the size of the file or the device.
const LOOK: Duration = Duration::from_secs(1);
/// Most ranges of a discard: bounds what a request costs, as the limit of a range does.
const MAX_RANGES: u32 = 16;
/// Bytes of a range that are discarded or zeroed at once, on boundaries of as much: a guest that is
/// stopped is looked for in between.
const RANGE_PIECE: u64 = 16 << 20;

/// A disk.
#[derive(Debug)]
pub struct Block {
    /// Moves and syncs data; waits for the kernel are announced to the hub.
    media: Waited,
    /// Size and logical block of the disk.
    geometry: Geometry,
    /// Set by the manifest. The driver is told, and its writes are refused all the same.
    read_only: bool,
    /// Each write is made durable before it is completed.
    write_through: bool,
    /// Features that the driver accepted.
    features: u64,
    /// The device's page, which keeps the driver's choice of the cache.
    state: Option<DeviceState>,
    /// The configuration is another one; whether the guest is to be told.
    news: Option<bool>,
    /// Time of the last look at the size.
    looked: Instant,
    /// Rates of the manifest, in requests and bytes a second.
    limits: Shared,
    /// By queue, the request that was taken and waits for its share of the limits.
    held: [Option<(Request, u16)>; QUEUES],
    /// Requests under way, whose number is bounded.
    flights: Flights,
    /// Whether the request that is done at once used this kernel's page cache.
    buffered: Cell<bool>,
    /// Queues that the driver may use.
    queues: usize,
    /// Another medium has other descriptors.
    is_rewired: bool,
    /// By queue, the number of coming requests that fail because they have waited too long.
    expired: [u16; QUEUES],
    /// Serial number, filled up with zeroes.
    id: [u8; ID_LENGTH],
}

/// The medium of a disk: a file or a block device that is open.
#[derive(Debug)]
pub struct Medium(Box<dyn Media>);

impl Medium {
    /// Makes it of its descriptors.
    pub(crate) fn of(parts: &mut Parts) -> Result<Self, String> {
        let file = parts.take()?.into();
        let direct = parts.take_last().map(Into::into);
        let files = Files::new(file, direct, parts.take_claim());
        let files = files.map_err(|error| error.to_string())?;
        Ok(Self(Box::new(files)))
    }
}

// SAFETY: the vectors point to a guest's RAM, which stays mapped and is this process's whichever
// thread looks at them.
unsafe impl Send for Block {}

impl Block {
    /// Opens the disk at `path`, for the process that serves it; empty: the disk has no medium.
    pub(crate) fn claim(path: &str, read_only: bool) -> Result<Opened, String> {
        if path.is_empty() {
            return Ok(Opened::default());
        }
        media::claim(path, read_only).map_err(|error| format!("{path}: {error}"))
    }

    /// Makes the device of a disk that is open; `path` is where.
    pub(super) fn of(parts: &mut Parts, path: &str, read_only: bool) -> Result<Self, String> {
        if parts.is_empty() {
            return Ok(Self::new(Box::new(Empty::default()), path, read_only));
        }
        let Medium(media) = Medium::of(parts).map_err(|error| format!("{path}: {error}"))?;
        Ok(Self::new(media, path, read_only))
    }

    /// Makes the disk of the manifest's device.
    pub(super) fn of_node(parts: &mut Parts, node: &DeviceNode) -> Result<Self, String> {
        let mut disk = Self::of(parts, &node.backend, node.read_only)?;
        disk.limits = Shared::new(node.limits);
        disk.queues = node.queues.clamp(1, QUEUES);
        if !node.serial.is_empty() {
            disk.id = id_of(&node.serial);
        }
        Ok(disk)
    }

    /// Opens the disk at `path` and serves it in this process.
    #[cfg(test)]
    pub fn open(path: &str, read_only: bool) -> Result<Self, String> {
        let mut opened = Self::claim(path, read_only)?.into();
        Self::of(&mut opened, path, read_only)
    }

    /// Makes the device. Without another one the end of the path is the disk's serial number: a
    /// guest with several disks tells them apart by that, in `/dev/disk/by-id`.
    fn new(media: Box<dyn Media>, path: &str, read_only: bool) -> Self {
        Self {
            geometry: media.geometry(),
            media: Waited(media),
            read_only,
            write_through: false,
            features: 0,
            state: None,
            news: None,
            looked: Instant::now(),
            limits: Shared::new([0; 3]),
            held: [const { None }; QUEUES],
            queues: 1,
            is_rewired: false,
            buffered: Cell::new(false),
            expired: [0; QUEUES],
            id: id_of(path),
            flights: Flights::default(),
        }
    }

    /// Takes another medium, or none, when all that is under way has ended: these requests are the
    /// old one's. Those that come fail if they reach beyond the new one. Returns its size.
    fn change(&mut self, media: Box<dyn Media>) -> u64 {
        // planted: a medium is taken out under its requests
        self.settle();
        self.media = Waited(media);
        self.geometry = self.media.geometry();
        self.looked = Instant::now();
        self.is_rewired = true;
        self.news = Some(true);
        self.note_size();
        self.geometry.bytes
    }

    /// Looks at the size, which changes with the file or the device behind the disk. A request that
    /// reaches beyond a disk that shrank fails, as it would in the file system.
    fn measure(&mut self) -> io::Result<u64> {
        self.looked = Instant::now();
        let bytes = self.media.bytes()?;
        if bytes != self.geometry.bytes {
            self.geometry.bytes = bytes;
            self.news = Some(true);
            self.note_size();
        }
        Ok(bytes)
    }

    /// Returns the configuration as it is now.
    fn config(&self) -> Vec<u8> {
        config::config(&self.geometry, self.write_through, self.queues)
    }

    /// Notes the size in the device's page, where `gearctl device list` finds it.
    fn note_size(&self) {
        if let Some(state) = self.state {
            state.set(Word::Capacity, self.geometry.bytes);
        }
    }

    /// Has writes be durable as the driver's features and its choice say.
    fn choose_cache(&mut self) {
        let is_chosen = self
            .state
            .is_some_and(|state| state.get(Word::WriteThrough) != 0);
        self.write_through = config::is_write_through(self.features, is_chosen);
        // The driver made the change itself, or has not begun to read.
        self.news.get_or_insert(false);
    }

    /// Takes the next request, and its position in the queue; none if there is none now. A request
    /// that its limits hold back is kept, and those behind it stay in the queue.
    fn take_one(
        &mut self,
        queue: usize,
        ring: &mut Vring,
    ) -> Result<Option<(Request, u16)>, Broken> {
        let held = self.held.get_mut(queue).and_then(Option::take);
        let (request, position) = match held {
            Some(held) => held,
            None => {
                let (mut request, position) = (self.flights.blank(), ring.next());
                if !request.take(ring)? {
                    return Ok(None);
                }
                (request, position)
            }
        };
        let cost = self.cost(ring, &request);
        // A request that fails because it has waited too long waits no longer.
        let expires = self.expired.get(queue).is_some_and(|left| *left > 0);
        // planted: limits hold nothing back
        let passes = expires || self.limits.admit(queue, cost);
        if !passes {
            if let Some(place) = self.held.get_mut(queue) {
                *place = Some((request, position));
            }
            return Ok(None);
        }
        self.limits.leave(queue);
        Ok(Some((request, position)))
    }

    /// Returns how many bytes of the disk a request moves: none if it will fail, so that a guest
    /// cannot spend years of its limits with one descriptor.
    fn cost(&self, ring: &Vring, request: &Request) -> u64 {
        if let Some((_, length)) = request.transfer() {
            let moves = self.place(request.sector, length).is_ok();
            return if moves { length } else { 0 };
        }
        if request.kind != VIRTIO_BLK_T_WRITE_ZEROES {
            return 0;
        }
        let ranges = ranges_of(ring, &request.chain, true).unwrap_or_default();
        let lengths = ranges.iter().map(|range| {
            let length = u64::from(range.sectors) * SECTOR;
            let moves = range.check().is_ok() && self.place(range.sector, length).is_ok();
            if moves { length } else { 0 }
        });
        lengths.sum()
    }

    /// Does a request that needs no transfer; returns how many bytes of data were written to the
    /// guest.
    fn at_once(&self, ring: &Vring, request: &Request) -> io::Result<u64> {
        match request.kind {
            VIRTIO_BLK_T_GET_ID => {
                // A driver with a shorter buffer gets the beginning.
                let id = self.id.get(..ID_LENGTH.min(request.room as usize));
                let id = id.unwrap_or_default();
                Ok(request.chain.writable.write(ring.memory(), 0, id) as u64)
            }
            VIRTIO_BLK_T_DISCARD => self.ranges(ring, &request.chain, false),
            VIRTIO_BLK_T_WRITE_ZEROES => self.ranges(ring, &request.chain, true),
            _ => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Checks that sectors exist; returns the first one's offset in the file.
    fn place(&self, sector: u64, length: u64) -> io::Result<u64> {
        let start = sector.checked_mul(SECTOR);
        let end = start.and_then(|start| start.checked_add(length));
        match (start, end) {
            // planted: sectors beyond the disk are accepted
            (Some(start), Some(end))
                if end <= self.geometry.bytes && length.is_multiple_of(SECTOR) =>
            {
                Ok(start)
            }
            (Some(_) | None, Some(_) | None) => Err(ErrorKind::InvalidInput.into()),
        }
    }

    /// Fails on a read-only disk: a driver that ignores VIRTIO_BLK_F_RO must not write.
    fn writable(&self) -> io::Result<()> {
        if self.read_only {
            return Err(ErrorKind::PermissionDenied.into());
        }
        Ok(())
    }
}

/// Returns a serial number of the end of a text.
fn id_of(text: &str) -> [u8; ID_LENGTH] {
    let mut id = [0; ID_LENGTH];
    let end = text.bytes().skip(text.len().saturating_sub(ID_LENGTH));
    id.iter_mut().zip(end).for_each(|(to, from)| *to = from);
    id
}

/// Error of a request that never completes because its guest was stopped.
fn withdrawn() -> io::Error {
    io::Error::other("the guest was stopped")
}

impl Backend for Block {
    fn keep(&mut self, state: DeviceState) {
        self.state = Some(state);
        self.note_size();
        // An earlier GDM's driver may have chosen, and reads its choice.
        self.write_through = state.get(Word::WriteThrough) != 0;
    }

    fn identity(&self) -> Identity {
        Identity {
            device_id: DEVICE_ID,
            features: config::features(self.read_only, self.queues),
            dependencies: &[],
            queue_sizes: vec![QUEUE_SIZE; self.queues],
            config: self.config(),
        }
    }

    fn activate(&mut self, features: u64) -> Result<(), String> {
        self.features = features;
        self.choose_cache();
        Ok(())
    }

    fn write_config(&mut self, offset: usize, bytes: &[u8]) {
        // All other fields are read-only (virtio 1.2, 5.2.4).
        if let (config::WRITEBACK, [value]) = (offset, bytes)
            && let Some(state) = self.state
        {
            state.set(Word::WriteThrough, u64::from(*value == 0));
            self.choose_cache();
        }
    }

    fn news_of_config(&mut self) -> Option<(Vec<u8>, bool)> {
        let is_news = self.news.take()?;
        Some((self.config(), is_news))
    }

    fn pause(&self) -> Option<Duration> {
        let holds = self.held.iter().any(Option::is_some);
        self.limits.pause().filter(|_| holds)
    }

    fn obey(&mut self, order: Order) -> Answer {
        match order {
            Order::Resize => self.measure().map_err(|error| error.to_string()),
            Order::Link(_) => Err("a disk has no link".into()),
            Order::Power => Err("a disk has no power button".into()),
            Order::Detach => Ok(self.change(Box::new(Empty::default()))),
            Order::Attach(_) => Err("no medium came with the order".into()),
        }
    }

    fn insert(&mut self, Medium(media): Medium) -> Answer {
        Ok(self.change(media))
    }

    fn watch_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_rewired)
    }

    fn reset(&mut self) {
        // Results are of no use to anybody; the memory is the guest's until then.
        // planted: a reset does not wait for what the kernel has
        let _ = self.media.settle();
        self.flights.clear();
        if let Some(state) = self.state {
            state.set(Word::InKernel, 0);
        }
        self.expired = [0; QUEUES];
        self.held = [const { None }; QUEUES];
        self.limits.clear();
        self.features = 0;
        self.write_through = false;
        self.news.get_or_insert(false);
    }

    fn close(&mut self, queue: usize, ring: Option<&mut Vring>) -> Result<(), Broken> {
        if let Some(place) = self.held.get_mut(queue) {
            *place = None;
        }
        self.limits.leave(queue);
        // planted: a closed queue's requests are left to the kernel
        self.settle();
        match ring {
            Some(ring) => self.complete(queue, ring),
            None => {
                self.flights.forget(queue);
                Ok(())
            }
        }
    }

    fn finish(&mut self, queue: usize, ring: &mut Vring) -> Result<(), Broken> {
        self.settle();
        self.complete(queue, ring)
    }

    // Only what was in the queue when this GDM started has waited: later requests are served.
    fn expire(&mut self, queue: usize, pending: u16) {
        if let Some(expired) = self.expired.get_mut(queue) {
            *expired = pending;
        }
    }

    fn poll(&mut self) {
        self.harvest();
        // A size that cannot be found out stays what it was.
        // planted: a disk keeps its first size
        if self.looked.elapsed() >= LOOK {
            let _ = self.measure();
        }
    }

    fn watch(&self) -> Vec<RawFd> {
        self.media.descriptor().into_iter().collect()
    }

    /// A request that waits for its rate is not looked for.
    fn looks_ahead(&self) -> bool {
        self.held.iter().all(Option::is_none)
    }

    fn is_at_rest(&self) -> bool {
        self.flights.is_empty()
    }

    fn process(&mut self, queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        if ring.is_withdrawn() {
            return Ok(Progress::More);
        }
        self.resume(queue, ring)?;
        self.complete(queue, ring)?;
        let taken = self.take(queue, ring);
        if taken.is_err() {
            // What was taken before is done, as if nothing bad had followed.
            self.settle();
        }
        self.complete(queue, ring)?;
        Ok(match taken? {
            // What was begun is waited for a little, ahead of the next turn.
            Progress::Drained | Progress::Waits if self.media.is_fresh() => Progress::More,
            progress => progress,
        })
    }
}
