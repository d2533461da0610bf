//! A disk for QEMU that stalls and loses power: a server of the network block device protocol (NBD,
//! fixed newstyle, simple replies) on a socket.
//!
//! Written data is kept here until a flush, and only then goes to the image, as in the cache of a
//! disk. Requests are served one after the other, so a stall is one of the whole disk.
//!
//! QEMU speaks this protocol by itself, so a disk can misbehave without a change of QEMU or of its
//! image. Only what QEMU asks for is answered; other options are refused as the protocol wants it,
//! and QEMU then does without them. The layout of messages: the NBD project's `doc/proto.md`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Numbers of the protocol; all integers are big-endian on the wire.
const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
/// Fixed newstyle, no zeroes behind the answer to `EXPORT_NAME`. Without the first, a client may
/// use `EXPORT_NAME` alone.
const HANDSHAKE: u16 = 0b11;
/// Flags, FLUSH, FUA, TRIM, WRITE_ZEROES. FLUSH must be offered, or QEMU answers a guest's flushes
/// without a word to the disk, and nothing that was written would ever be safe.
const TRANSMISSION: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6;
/// Flag of a request: on the medium before the answer.
const FUA: u16 = 1;
/// The protocol has its own error numbers, which are Linux's for these two.
const EINVAL: u32 = 22;
const EIO: u32 = 5;

/// Options of the negotiation, and kinds of replies. Replies with the top bit are errors.
mod option {
    pub(super) const EXPORT_NAME: u32 = 1;
    pub(super) const ABORT: u32 = 2;
    pub(super) const INFO: u32 = 6;
    pub(super) const GO: u32 = 7;
    pub(super) const ACK: u32 = 1;
    pub(super) const REPLY_INFO: u32 = 3;
    pub(super) const UNSUPPORTED: u32 = 1 << 31 | 1;
}

/// Kinds of requests.
mod command {
    pub(super) const READ: u16 = 0;
    pub(super) const WRITE: u16 = 1;
    pub(super) const DISCONNECT: u16 = 2;
    pub(super) const FLUSH: u16 = 3;
    pub(super) const TRIM: u16 = 4;
    pub(super) const WRITE_ZEROES: u16 = 6;
}

/// Unit in which the cache keeps and loses data. A block is lost whole, as by a disk with sectors
/// of 4 KiB.
const BLOCK: usize = 4096;
/// Longest request; QEMU's are not longer than 32 MiB. A length is allocated before its data
/// arrive, so it has a bound even though the peer is QEMU.
const MOST: usize = 64 << 20;
/// Longest data of an option. The protocol's strings, such as names of exports, have at most 4 KiB.
const MOST_OPTION: usize = 1 << 16;
/// Average number of requests between two stalls, if any request stalls. Rare enough that the
/// guest's work goes on between stalls.
const STALL_ONE_IN: u64 = 48;

/// A disk that is served until this is dropped. QEMU may start several times in that life: a loss
/// of power is an end of QEMU, while the medium stays.
pub(crate) struct Disk {
    shared: Arc<Shared>,
    socket: PathBuf,
}

/// One connection is usual. A QEMU that is killed may still have a thread here when the next one
/// connects, so the state is shared and locked.
struct Shared {
    file: File,
    size: u64,
    /// Blocks that were written and are not in the file.
    cache: Mutex<BTreeMap<u64, Box<[u8; BLOCK]>>>,
    /// Longest stall in milliseconds; 0 is none.
    longest_stall: AtomicU64,
    random: AtomicU64,
    stalls: AtomicU64,
    flushes: AtomicU64,
    is_over: AtomicBool,
}

impl Disk {
    /// Serves the image at a socket. The socket exists when this returns, so QEMU may be started at
    /// once.
    pub(crate) fn serve(image: &Path, socket: &Path, seed: u64) -> Result<Disk> {
        let file = File::options().read(true).write(true).open(image);
        let file = file.with_context(|| image.display().to_string())?;
        // An earlier run may have left a socket.
        let _ = fs::remove_file(socket);
        let listener = UnixListener::bind(socket);
        let listener = listener.with_context(|| socket.display().to_string())?;
        let shared = Arc::new(Shared::new(file, seed)?);
        let server = Arc::clone(&shared);
        thread::spawn(move || listen(&listener, &server));
        Ok(Disk {
            shared,
            socket: socket.to_owned(),
        })
    }

    /// Returns what QEMU calls the disk.
    pub(crate) fn url(&self) -> PathBuf {
        format!("nbd+unix:///?socket={}", self.socket.display()).into()
    }

    /// Has one request in some take up to so long from now on. Zero ends the stalls.
    pub(crate) fn stall(&self, longest: Duration) {
        let longest = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        self.shared.longest_stall.store(longest, Ordering::Relaxed);
    }

    /// Drops unflushed data, and returns its size in bytes. Call this after QEMU has ended: a
    /// request in flight would be cached behind the loss.
    pub(crate) fn lose_power(&self) -> usize {
        let mut cache = self.shared.cache();
        let lost = cache.len() * BLOCK;
        cache.clear();
        lost
    }

    /// Returns how many requests have stalled and how many flushes there were. A test without a
    /// stall or a flush has shown nothing, and can say so by these.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let [stalls, flushes] = [&self.shared.stalls, &self.shared.flushes];
        (
            stalls.load(Ordering::Relaxed),
            flushes.load(Ordering::Relaxed),
        )
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // Wakes who listens. The thread blocks in `accept`, and sees the end only when someone
        // connects.
        let _ = UnixStream::connect(&self.socket);
        let _ = fs::remove_file(&self.socket);
    }
}

/// Serves each client on a thread of its own, until the disk is dropped. A client that leaves in
/// the middle, as QEMU does that is killed, disturbs no other.
fn listen(listener: &UnixListener, server: &Arc<Shared>) {
    for client in listener.incoming() {
        if server.is_over.load(Ordering::Relaxed) {
            return;
        }
        let (Ok(client), server) = (client, Arc::clone(server)) else {
            return;
        };
        thread::spawn(move || server.serve(client));
    }
}

struct Request {
    flags: u16,
    kind: u16,
    handle: [u8; 8],
    offset: u64,
    length: usize,
}

/// Replies to an option. The option's number is repeated, by which the client knows which question
/// is answered.
fn reply(client: &mut UnixStream, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    client.write_all(&bytes)
}

impl Shared {
    fn new(file: File, seed: u64) -> io::Result<Shared> {
        Ok(Shared {
            size: file.metadata()?.len(),
            file,
            cache: Mutex::new(BTreeMap::new()),
            longest_stall: AtomicU64::new(0),
            random: AtomicU64::new(seed),
            stalls: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        })
    }

    /// A thread that panicked with the lock leaves whole blocks behind, so poisoning ends nothing
    /// here.
    fn cache(&self) -> MutexGuard<'_, BTreeMap<u64, Box<[u8; BLOCK]>>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request that cannot be parsed ends the connection: nothing tells where the next one
    /// begins.
    fn serve(&self, mut client: UnixStream) {
        let Ok(true) = self.greet(&mut client) else {
            return;
        };
        while let Ok(Some(request)) = read_request(&mut client) {
            if self.answer(&mut client, &request).is_err() {
                return;
            }
        }
    }

    /// Negotiates; false if the client only asked.
    fn greet(&self, client: &mut UnixStream) -> io::Result<bool> {
        client.write_all(&MAGIC.to_be_bytes())?;
        client.write_all(&OPTION_MAGIC.to_be_bytes())?;
        client.write_all(&HANDSHAKE.to_be_bytes())?;
        // The client's flags. QEMU sets both that are offered, so nothing depends on them.
        take::<4>(client)?;
        loop {
            if u64::from_be_bytes(take(client)?) != OPTION_MAGIC {
                return Err(ErrorKind::InvalidData.into());
            }
            let option = u32::from_be_bytes(take(client)?);
            let length = u32::from_be_bytes(take(client)?);
            take_bytes(client, length, MOST_OPTION)?;
            if let Some(serves) = self.answer_option(client, option)? {
                return Ok(serves);
            }
        }
    }

    /// Answers an option. Returns whether the client is served, if the option ends the negotiation.
    /// `INFO` only asks, and the negotiation goes on; `GO` and `EXPORT_NAME` lead to requests.
    fn answer_option(&self, client: &mut UnixStream, option: u32) -> io::Result<Option<bool>> {
        let mut export = self.size.to_be_bytes().to_vec();
        export.extend(TRANSMISSION.to_be_bytes());
        match option {
            option::EXPORT_NAME => {
                client.write_all(&export)?;
                Ok(Some(true))
            }
            option::GO | option::INFO => {
                // Information number 0 is the export.
                let export = [&[0, 0], export.as_slice()].concat();
                reply(client, option, option::REPLY_INFO, &export)?;
                reply(client, option, option::ACK, &[])?;
                Ok((option == option::GO).then_some(true))
            }
            option::ABORT => {
                reply(client, option, option::ACK, &[])?;
                Ok(Some(false))
            }
            _ => {
                reply(client, option, option::UNSUPPORTED, &[])?;
                Ok(None)
            }
        }
    }

    /// The data of a write are taken off the socket even if the write is then refused, because the
    /// next request stands behind them. The stall comes before the effect: a killed GDM may or may
    /// not find its request done, as with a real disk.
    fn answer(&self, client: &mut UnixStream, request: &Request) -> io::Result<()> {
        let data = match request.kind {
            command::WRITE => take_bytes(client, request.length as u32, MOST)?,
            _ => Vec::new(),
        };
        self.maybe_stall();
        let (error, data) = match self.perform(request, &data) {
            Ok(data) => (0, data),
            Err(error) if error.kind() == ErrorKind::InvalidInput => (EINVAL, Vec::new()),
            Err(_) => (EIO, Vec::new()),
        };
        let mut reply = REPLY_MAGIC.to_be_bytes().to_vec();
        reply.extend(error.to_be_bytes());
        reply.extend(request.handle);
        reply.extend(data);
        client.write_all(&reply)
    }

    /// Does a request, and returns what it reads. A write with FUA is on the medium when it is
    /// answered, whatever the cache has. Zeroes go through the cache as well, or they would survive
    /// a loss of power without a flush.
    fn perform(&self, request: &Request, data: &[u8]) -> io::Result<Vec<u8>> {
        self.check_range(request)?;
        let (offset, length) = (request.offset, request.length);
        match request.kind {
            command::READ => return self.read(offset, length),
            command::WRITE => self.write(offset, data)?,
            command::WRITE_ZEROES => self.write(offset, &vec![0; length])?,
            command::FLUSH => {
                self.flushes.fetch_add(1, Ordering::Relaxed);
                self.flush()?;
            }
            // Only advice.
            command::TRIM => {}
            _ => return Err(ErrorKind::InvalidInput.into()),
        }
        if request.flags & FUA != 0 {
            self.flush()?;
        }
        Ok(Vec::new())
    }

    /// Refuses a range that the disk does not have, and one that is longer than the answer may be.
    /// QEMU checks its guests' ranges itself, so an error here is one of QEMU's configuration or of
    /// this file.
    fn check_range(&self, request: &Request) -> io::Result<()> {
        let end = request.offset.checked_add(request.length as u64);
        match end.is_none_or(|end| end > self.size) || request.length > MOST {
            true => Err(ErrorKind::InvalidInput.into()),
            false => Ok(()),
        }
    }

    /// The lock is taken before the file is read: a flush in between would move blocks out of the
    /// cache behind the read's back.
    fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let cache = self.cache();
        self.file.read_exact_at(&mut bytes, offset)?;
        for (block, at, piece) in pieces(offset, length) {
            if let Some(cached) = cache.get(&block) {
                let size = piece.len();
                bytes[piece].copy_from_slice(&cached[at..at + size]);
            }
        }
        Ok(bytes)
    }

    /// A write of a part of a block needs the rest of the block, from the cache or from the file.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut cache = self.cache();
        for (block, at, piece) in pieces(offset, bytes.len()) {
            let mut cached = match cache.remove(&block) {
                Some(cached) => cached,
                None => {
                    let mut fresh = Box::new([0; BLOCK]);
                    let start = block * BLOCK as u64;
                    // The last block of an image may be short.
                    let size = (self.size - start).min(BLOCK as u64) as usize;
                    self.file.read_exact_at(&mut fresh[..size], start)?;
                    fresh
                }
            };
            cached[at..at + piece.len()].copy_from_slice(&bytes[piece]);
            cache.insert(block, cached);
        }
        Ok(())
    }

    /// The lock is held for all of it: a flush covers what was answered before, and nothing newer
    /// is mixed in.
    fn flush(&self) -> io::Result<()> {
        let mut cache = self.cache();
        while let Some((block, bytes)) = cache.pop_first() {
            let start = block * BLOCK as u64;
            let size = (self.size - start).min(BLOCK as u64) as usize;
            self.file.write_all_at(&bytes[..size], start)?;
        }
        Ok(())
    }

    /// The stall sleeps on the connection's thread, with no lock, so that `lose_power` and `counts`
    /// answer.
    fn maybe_stall(&self) {
        let longest = self.longest_stall.load(Ordering::Relaxed);
        if longest == 0 {
            return;
        }
        let (chance, time) = (self.draw(), self.draw());
        if chance.is_multiple_of(STALL_ONE_IN) {
            self.stalls.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(time % longest));
        }
    }

    /// A number of the generator SplitMix64. Threads share the state, so an atomic addition takes
    /// the place of the generator's plain one.
    fn draw(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let state = self.random.fetch_add(STEP, Ordering::Relaxed);
        let mut mixed = state.wrapping_add(STEP);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// Cuts a range into blocks: a block's number, where the piece begins in it, and the piece of the
/// range.
fn pieces(
    offset: u64,
    length: usize,
) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let position = offset + done as u64;
        let at = (position % BLOCK as u64) as usize;
        let start = done;
        done = length.min(start + BLOCK - at);
        Some((position / BLOCK as u64, at, start..done))
    })
}

fn take<const N: usize>(client: &mut UnixStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The length is judged before memory is allocated for it.
fn take_bytes(client: &mut UnixStream, length: u32, most: usize) -> io::Result<Vec<u8>> {
    let length = length as usize;
    if length > most {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    client.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads the next request; `None` at the end. The fields stand in this order on the wire.
fn read_request(client: &mut UnixStream) -> io::Result<Option<Request>> {
    if u32::from_be_bytes(take(client)?) != REQUEST_MAGIC {
        return Err(ErrorKind::InvalidData.into());
    }
    let request = Request {
        flags: u16::from_be_bytes(take(client)?),
        kind: u16::from_be_bytes(take(client)?),
        handle: take(client)?,
        offset: u64::from_be_bytes(take(client)?),
        length: u32::from_be_bytes(take(client)?) as usize,
    };
    Ok((request.kind != command::DISCONNECT).then_some(request))
}

#[cfg(test)]
mod tests;
