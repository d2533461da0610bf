//! virtio-blk (virtio 1.2, 5.2) on a file or a block device of the device VM.
//!
//! Reads and writes that are there together are done together, everything else alone;
//! all are completed in order. Data goes between the file and guest RAM without a copy,
//! and past the page cache (`O_DIRECT`) where the request's alignment allows it.
//!
//! Invariants: a turn that has ended has nothing under way, so a reset finds the device idle, and a
//! flush covers whatever was taken before it. A turn of a guest that was stopped ends early: it
//! waits for what the kernel has begun, and begins and completes nothing more.

use std::cell::Cell;
use std::io::{self, ErrorKind};

use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_RO,
    VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_WRITE_ZEROES, VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK,
    VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID,
    VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
};
use virtio_bindings::virtio_ids::VIRTIO_ID_BLOCK;

use super::{Backend, Progress};
use crate::mapping::Memory;
use crate::overlap::Overlap;
use crate::progress;
use crate::state::Word;
use crate::sys::Direction;
use crate::transport::Identity;
use crate::vring::{Broken, Chain, Vring};
use media::{Files, Geometry, Media, Piece, Waited};
use range::{MAX_RANGE_SECTORS, RANGE, Range};

mod media;
mod range;
#[cfg(test)]
mod tests;

/// Unit of all places and lengths in the protocol, whatever blocks the disk has (virtio 1.2,
/// 5.2.6).
const SECTOR: u64 = 512;
/// Bytes of a request before its data: type, a reserved word, the first sector.
const HEADER: u64 = 16;
pub(super) const DEVICE_ID: u32 = VIRTIO_ID_BLOCK;
/// Longest queue that a driver may choose.
pub(super) const QUEUE_SIZE: u16 = 256;
/// Header and status take two of the queue's descriptors.
const SEGMENTS: u32 = 254;
/// Requests that are under way at once, and between two interrupts.
const TURN: usize = Overlap::MOST;
/// Bytes of VIRTIO_BLK_T_GET_ID's answer.
const ID_LENGTH: usize = 20;
/// Most ranges of a discard: bounds what a request costs, as [`MAX_RANGE_SECTORS`] does.
const MAX_RANGES: u32 = 16;
/// Bytes of a range that are discarded or zeroed at once, on boundaries of as much: a guest that is
/// stopped is looked for in between.
const RANGE_PIECE: u64 = 16 << 20;

/// Outcome of a request, as the guest sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ok,
    IoError,
    Unsupported,
}

impl Status {
    /// Returns the last byte of the request (virtio 1.2, 5.2.6).
    const fn byte(self) -> u8 {
        (match self {
            Self::Ok => VIRTIO_BLK_S_OK,
            Self::IoError => VIRTIO_BLK_S_IOERR,
            Self::Unsupported => VIRTIO_BLK_S_UNSUPP,
        }) as u8
    }
}

/// A request under way. Its memory is reused.
#[derive(Debug, Default)]
struct Request {
    /// Descriptors of the header, the data and the status.
    chain: Chain,
    /// VIRTIO_BLK_T_*.
    kind: u32,
    /// First sector of the data.
    sector: u64,
    /// Bytes for the guest before the status.
    room: u64,
    /// Where the data is in this process, for the kernel; refilled for each transfer.
    vectors: Vec<libc::iovec>,
    /// Bytes of data that were moved together with other requests.
    moved: u64,
}

impl Request {
    /// Takes the next one; false if there is none.
    fn take(&mut self, ring: &mut Vring) -> Result<bool, Broken> {
        if !ring.take_any(&mut self.chain)? {
            return Ok(false);
        }
        let mut header = [0; HEADER as usize];
        let complete = self.chain.readable.read(ring.memory(), 0, &mut header) == header.len();
        // The last byte is for the status (virtio 1.2, 5.2.6).
        let Some(room) = self.chain.writable.length().checked_sub(1) else {
            return Err(Broken::Request);
        };
        if !complete {
            return Err(Broken::Request);
        }
        // Nobody could be told how it ended.
        if self.chain.writable.address(room).is_none() {
            return Err(Broken::Address);
        }
        // Type and a reserved word, then the sector: 4, 4 and 8 bytes, little-endian.
        let (words, _) = header.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        self.kind = words.next().unwrap_or(0) as u32;
        self.sector = words.next().unwrap_or(0);
        self.room = room;
        self.moved = 0;
        Ok(true)
    }

    /// Returns which way data goes, if it does, and how much.
    fn transfer(&self) -> Option<(Direction, u64)> {
        match self.kind {
            VIRTIO_BLK_T_IN => Some((Direction::Read, self.room)),
            VIRTIO_BLK_T_OUT => Some((Direction::Write, self.chain.readable.length() - HEADER)),
            _ => None,
        }
    }

    /// Finds the memory of the data from byte `done` on.
    fn find(&mut self, memory: &Memory, direction: Direction, done: u64, length: u64) {
        let (buffers, skip) = match direction {
            Direction::Read => (&self.chain.writable, 0),
            Direction::Write => (&self.chain.readable, HEADER),
        };
        buffers.vectors(memory, skip + done, length - done, &mut self.vectors);
    }
}

/// A disk.
#[derive(Debug)]
pub struct Block {
    media: Waited,
    geometry: Geometry,
    /// Set by the manifest. The driver is told, and its writes are refused all the same.
    read_only: bool,
    /// The driver did not take FLUSH: each write is made durable.
    write_through: bool,
    /// Whether the request used this kernel's page cache. The cache of a disk survives a crash of
    /// the device VM; the page cache does not, and the guest would not learn of the loss.
    buffered: Cell<bool>,
    /// Number of coming requests that fail because they have waited too long.
    expired: u16,
    /// Serial number: the end of the path, filled up with zeroes.
    id: [u8; ID_LENGTH],
    /// Requests of one turn, whose number bounds a guest's requests under way.
    requests: Vec<Request>,
}

// SAFETY: the vectors are filled and used within one turn; between turns they mean nothing.
unsafe impl Send for Block {}

impl Block {
    /// Opens the disk at `path`.
    pub fn open(path: &str, read_only: bool) -> Result<Self, String> {
        let files = Files::open(path, read_only).map_err(|error| format!("{path}: {error}"))?;
        Ok(Self::new(Box::new(files), path, read_only))
    }

    /// Makes the device. The end of the path is the disk's serial number: a guest with several
    /// disks tells them apart by that, in `/dev/disk/by-id`.
    fn new(media: Box<dyn Media>, path: &str, read_only: bool) -> Self {
        let mut id = [0; ID_LENGTH];
        let name = path.bytes().skip(path.len().saturating_sub(ID_LENGTH));
        id.iter_mut().zip(name).for_each(|(to, from)| *to = from);
        Self {
            geometry: media.geometry(),
            media: Waited(media),
            read_only,
            write_through: false,
            buffered: Cell::new(false),
            expired: 0,
            id,
            requests: Vec::new(),
        }
    }

    /// Takes waiting requests, up to the first that moves no data, and executes them.
    fn turn(&mut self, ring: &mut Vring, requests: &mut [Request]) -> Result<Progress, Broken> {
        let (count, end) = take_requests(ring, requests);
        // The last one taken may move no data, and is done after the others, alone.
        let taken = requests.get_mut(..count).unwrap_or_default();
        let transfers = taken.iter().take_while(|one| one.transfer().is_some());
        let (together, alone) = taken.split_at_mut(transfers.count());
        self.move_together(ring, together);
        for request in together.iter_mut().chain(alone) {
            // planted: a stopped guest's turn goes on
            if ring.is_withdrawn() {
                return Ok(Progress::More);
            }
            self.finish(ring, request)?;
        }
        match ring.is_withdrawn() {
            true => Ok(Progress::More),
            false => end,
        }
    }

    /// Moves data of several requests at once. What this leaves undone, for whatever reason, is
    /// done when the request is finished.
    fn move_together(&mut self, ring: &Vring, requests: &mut [Request]) {
        // One request gains nothing from the ring, and expired ones fail without a transfer.
        if requests.len() < 2 || self.expired > 0 || ring.is_withdrawn() {
            return;
        }
        let mut ready = Vec::with_capacity(requests.len());
        for request in requests {
            if let Some(offset) = self.find_aligned(ring.memory(), request) {
                ready.push((request, offset));
            }
        }
        let pieces = ready.iter().filter_map(|(request, offset)| {
            let (direction, _) = request.transfer()?;
            Some(Piece {
                direction,
                vectors: &request.vectors,
                offset: *offset,
            })
        });
        let pieces: Vec<Piece<'_>> = pieces.collect();
        // A killed GDM leaves these transfers to the kernel. The next GDM must know of them.
        ring.state().set(Word::InKernel, 1);
        let moved = self.media.together(&pieces);
        ring.state().set(Word::InKernel, 0);
        let moved = moved.into_iter().flatten();
        for ((request, _), moved) in ready.iter_mut().zip(moved) {
            request.moved = moved;
        }
    }

    /// Returns where in the file a request goes that can pass the page cache by as a whole.
    fn find_aligned(&self, memory: &Memory, request: &mut Request) -> Option<u64> {
        let (direction, length) = request.transfer()?;
        let start = self.place(request.sector, length).ok()?;
        if !request.chain.is_reachable() {
            return None;
        }
        if direction == Direction::Write {
            self.writable().ok()?;
        }
        request.find(memory, direction, 0, length);
        (length > 0 && self.is_aligned(&request.vectors, start)).then_some(start)
    }

    /// Does a request and completes it. A request of a stopped guest is not completed: the memory
    /// with its status and its ring is Gear2's by then.
    fn finish(&mut self, ring: &mut Vring, request: &mut Request) -> Result<(), Broken> {
        let (status, written) = self.perform(ring, request);
        if ring.is_withdrawn() {
            return Ok(());
        }
        if status != Status::Ok {
            ring.state().count(Word::Errors, 1);
        }
        ring.answer(&request.chain, request.room, status.byte(), written)
    }

    /// Does the request; returns its outcome and how many bytes of data were written to the guest.
    fn perform(&mut self, ring: &Vring, request: &mut Request) -> (Status, u64) {
        if let Some(left) = self.expired.checked_sub(1) {
            self.expired = left;
            return (Status::IoError, 0);
        }
        // A region that the guest shares with another VM, for example, is not mapped here.
        // planted: data that is not reachable is left out of a request
        if !request.chain.is_reachable() {
            return (Status::IoError, 0);
        }
        let outcome = match request.kind {
            VIRTIO_BLK_T_IN => self.transfer(ring, request),
            VIRTIO_BLK_T_OUT => self.transfer(ring, request).map(|_| 0),
            VIRTIO_BLK_T_FLUSH => self.flush(),
            VIRTIO_BLK_T_GET_ID => {
                // A driver with a shorter buffer gets the beginning.
                let id = self.id.get(..ID_LENGTH.min(request.room as usize));
                let id = id.unwrap_or_default();
                Ok(request.chain.writable.write(ring.memory(), 0, id) as u64)
            }
            VIRTIO_BLK_T_DISCARD => self.ranges(ring, &request.chain, false),
            VIRTIO_BLK_T_WRITE_ZEROES => self.ranges(ring, &request.chain, true),
            _ => Err(ErrorKind::Unsupported.into()),
        };
        match outcome {
            Ok(written) => (Status::Ok, written),
            Err(error) if error.kind() == ErrorKind::Unsupported => (Status::Unsupported, 0),
            Err(_) => (Status::IoError, 0),
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

    /// Moves what is left of a request's data, piece by piece. The kernel may move less than it was
    /// asked for, and an interrupted call nothing at all.
    fn transfer(&self, ring: &Vring, request: &mut Request) -> io::Result<u64> {
        let Some((direction, length)) = request.transfer() else {
            return Err(ErrorKind::Unsupported.into());
        };
        let start = self.place(request.sector, length)?;
        let word = match direction {
            Direction::Read => Word::BytesIn,
            Direction::Write => {
                self.writable()?;
                Word::BytesOut
            }
        };
        // `move_together` may have moved the beginning, or all.
        let mut done = request.moved;
        while done < length {
            if ring.is_withdrawn() {
                return Err(withdrawn());
            }
            request.find(ring.memory(), direction, done, length);
            done += self.transfer_once(&request.vectors, direction, start + done)? as u64;
        }
        ring.state().count(word, length);
        let buffered = self.buffered.take();
        // planted: a write of a driver without FLUSH is not synced
        // planted: what went through the page cache is left there
        if direction == Direction::Write && (self.write_through || buffered) {
            self.media.sync()?;
        }
        Ok(length)
    }

    /// Tells whether the transfer may pass the page cache by.
    fn is_aligned(&self, vectors: &[libc::iovec], offset: u64) -> bool {
        // Logical blocks are powers of two. The kernel wants place, memory and length in whole
        // blocks.
        let mask = u64::from(self.geometry.block_size.max(1)) - 1;
        let aligned = |number: u64| number & mask == 0;
        let mut all = vectors.iter();
        aligned(offset)
            && all.all(|v| aligned(v.iov_base.addr() as u64) && aligned(v.iov_len as u64))
    }

    /// Moves data once, past the page cache where that can be; may move less.
    fn transfer_once(
        &self,
        vectors: &[libc::iovec],
        direction: Direction,
        offset: u64,
    ) -> io::Result<usize> {
        let piece = Piece {
            direction,
            vectors,
            offset,
        };
        let moved = self.direct(piece).unwrap_or_else(|| {
            self.buffered.set(self.geometry.is_device);
            self.media.buffered(piece)
        });
        match moved {
            // The file is shorter than it was when it was opened.
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
            other => other,
        }
    }

    /// Moves data past the page cache, once. `None` where that cannot be.
    fn direct(&self, piece: Piece<'_>) -> Option<io::Result<usize>> {
        if !self.is_aligned(piece.vectors, piece.offset) {
            return None;
        }
        match self.media.direct(piece) {
            // A file system may want more alignment than it says.
            Some(Err(error)) if error.kind() == ErrorKind::InvalidInput => None,
            other => other,
        }
    }

    /// Makes all writes durable that were completed before (virtio 1.2, 5.2.6.2). The turn has
    /// nothing else under way: a flush moves no data, so it ends the taking of requests.
    fn flush(&self) -> io::Result<u64> {
        if !self.read_only {
            // planted: a flush syncs nothing
            self.media.sync()?;
        }
        Ok(0)
    }

    /// Discards the ranges that a request lists, or makes them zero.
    fn ranges(&self, ring: &Vring, chain: &Chain, zero: bool) -> io::Result<u64> {
        self.writable()?;
        let length = chain.readable.length() - HEADER;
        let whole = length.is_multiple_of(RANGE as u64) && length > 0;
        if !whole || length / RANGE as u64 > u64::from(MAX_RANGES) {
            return Err(ErrorKind::InvalidInput.into());
        }
        for index in 0..length / RANGE as u64 {
            let mut bytes = [0; RANGE];
            let at = HEADER + index * RANGE as u64;
            chain.readable.read(ring.memory(), at, &mut bytes);
            self.range(ring, Range::read(bytes, zero))?;
        }
        let buffered = self.buffered.take();
        // planted: zeroes are left in the page cache
        if self.write_through || buffered {
            self.media.sync()?;
        }
        Ok(0)
    }

    /// Discards a range or makes it zero, piece by piece.
    fn range(&self, ring: &Vring, range: Range) -> io::Result<()> {
        range.check()?;
        let length = u64::from(range.sectors) * SECTOR;
        let start = self.place(range.sector, length)?;
        let mut done = 0;
        while done < length {
            if ring.is_withdrawn() {
                return Err(withdrawn());
            }
            progress::step();
            let at = start + done;
            // The first piece ends on a boundary, and those behind begin on one.
            let piece = (RANGE_PIECE - at % RANGE_PIECE).min(length - done);
            self.erase(ring, &range, at, piece)?;
            done += piece;
        }
        Ok(())
    }

    /// Discards a piece of a range or makes it zero.
    fn erase(&self, ring: &Vring, range: &Range, at: u64, bytes: u64) -> io::Result<()> {
        if !range.zero {
            // A discard is only advice.
            let _ = self.media.discard(at, bytes);
            return Ok(());
        }
        let zeroed = self.media.zero(at, bytes, range.flags != 0);
        zeroed.or_else(|_| self.write_zeroes(ring, at, bytes))
    }

    /// Writes zeroes where the file system or the device has no way of its own to make them.
    fn write_zeroes(&self, ring: &Vring, start: u64, length: u64) -> io::Result<()> {
        // 64 KiB a write: the thread shows progress, and looks for the guest's end, after each.
        let zeroes = [0; 0x1_0000];
        let mut done = 0;
        while done < length {
            if ring.is_withdrawn() {
                // planted: a stopped guest waits for all ranges
                return Err(withdrawn());
            }
            progress::step();
            let size = (length - done).min(zeroes.len() as u64) as usize;
            self.buffered.set(self.geometry.is_device);
            let piece = zeroes.get(..size).unwrap_or_default();
            self.media.write(piece, start + done)?;
            done += size as u64;
        }
        Ok(())
    }

    /// Returns `struct virtio_blk_config` (virtio 1.2, 5.2.4).
    fn config(&self) -> Vec<u8> {
        let mut config = Vec::with_capacity(60);
        // A rest that is no whole sector is out of the guest's reach.
        config.extend((self.geometry.bytes / SECTOR).to_le_bytes());
        config.extend(0_u32.to_le_bytes()); // size_max
        config.extend(SEGMENTS.to_le_bytes());
        config.extend([0; 4]); // geometry
        config.extend(self.geometry.block_size.to_le_bytes());
        config.extend([0; 8]); // topology
        config.extend([0, 0, 1, 0]); // writeback, unused, queues
        config.extend(MAX_RANGE_SECTORS.to_le_bytes());
        config.extend(MAX_RANGES.to_le_bytes());
        config.extend(
            (self.geometry.block_size / SECTOR as u32)
                .max(1)
                .to_le_bytes(),
        );
        config.extend(MAX_RANGE_SECTORS.to_le_bytes());
        config.extend(MAX_RANGES.to_le_bytes());
        config.extend([1, 0, 0, 0]); // may unmap
        config
    }
}

/// Takes waiting requests, up to the first that moves no data. Returns how many were taken, and how
/// the turn ends when these are done.
fn take_requests(ring: &mut Vring, requests: &mut [Request]) -> (usize, Result<Progress, Broken>) {
    let mut count = 0;
    let mut end = Ok(Progress::More);
    for request in requests.iter_mut() {
        match request.take(ring) {
            Ok(true) => count += 1,
            Ok(false) => end = Ok(Progress::Drained),
            Err(broken) => end = Err(broken),
        }
        if end != Ok(Progress::More) || request.transfer().is_none() {
            break;
        }
    }
    (count, end)
}

/// Error of a request that never completes because its guest was stopped.
fn withdrawn() -> io::Error {
    io::Error::other("the guest was stopped")
}

impl Backend for Block {
    fn identity(&self) -> Identity {
        // SEG_MAX keeps a request within the queue. BLK_SIZE lets the driver align its requests, so
        // that their data passes the page cache by.
        let mut features = 1 << VIRTIO_BLK_F_SEG_MAX
            | 1 << VIRTIO_BLK_F_BLK_SIZE
            | 1 << VIRTIO_BLK_F_FLUSH
            | 1 << VIRTIO_BLK_F_DISCARD
            | 1 << VIRTIO_BLK_F_WRITE_ZEROES;
        if self.read_only {
            features |= 1 << VIRTIO_BLK_F_RO;
        }
        Identity {
            device_id: DEVICE_ID,
            features,
            dependencies: &[],
            queue_sizes: vec![QUEUE_SIZE],
            config: self.config(),
        }
    }

    // A driver that cannot flush takes each completed write for durable.
    fn activate(&mut self, features: u64) -> Result<(), String> {
        self.write_through = features & 1 << VIRTIO_BLK_F_FLUSH == 0;
        Ok(())
    }

    fn reset(&mut self) {
        self.expired = 0;
    }

    // Only what was in the queue when this GDM started has waited: later requests are served.
    fn expire(&mut self, _queue: usize, pending: u16) {
        self.expired = pending;
    }

    fn process(&mut self, _queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        // Taken out for the turn, which needs the device and its requests at once. Their memory is
        // reused.
        let mut requests = std::mem::take(&mut self.requests);
        requests.resize_with(TURN, Request::default);
        let done = self.turn(ring, &mut requests);
        self.requests = requests;
        done
    }
}
