//! virtio-blk (virtio 1.2, 5.2) on a file or a block device of the device VM.
//!
//! Requests are done one after the other and completed in order. Data goes between
//! the file and guest RAM without a copy, and past the page cache (`O_DIRECT`) where
//! the request's alignment allows it.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_RO,
    VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_WRITE_ZEROES, VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK,
    VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID,
    VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
};
use virtio_bindings::virtio_ids::VIRTIO_ID_BLOCK;

use super::{Backend, Progress};
use crate::state::Word;
use crate::sys::{self, Direction};
use crate::transport::Identity;
use crate::vring::{Broken, Chain, Vring};

#[cfg(test)]
mod tests;

const SECTOR: u64 = 512;
const HEADER: u64 = 16;
const QUEUE_SIZE: u16 = 256;
/// Header and status take two of the queue's descriptors.
const SEGMENTS: u32 = 254;
/// Requests between two interrupts at most: each may take long.
const TURN: usize = 8;
const ID_LENGTH: usize = 20;
const RANGE: usize = 16;
/// Most ranges of a discard, and sectors of one: bounds what a request costs.
const MAX_RANGES: u32 = 16;
const MAX_RANGE_SECTORS: u32 = 1 << 22;

/// Outcome of a request, as the guest sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ok,
    IoError,
    Unsupported,
}

impl Status {
    const fn byte(self) -> u8 {
        (match self {
            Self::Ok => VIRTIO_BLK_S_OK,
            Self::IoError => VIRTIO_BLK_S_IOERR,
            Self::Unsupported => VIRTIO_BLK_S_UNSUPP,
        }) as u8
    }
}

/// A disk.
#[derive(Debug)]
pub struct Block {
    file: File,
    /// The same, opened with `O_DIRECT`.
    direct: Option<File>,
    is_device: bool,
    read_only: bool,
    bytes: u64,
    block_size: u32,
    /// The driver did not take FLUSH: each write is made durable.
    write_through: bool,
    /// So many of the next requests fail: they waited too long.
    expired: u16,
    id: [u8; ID_LENGTH],
    chain: Chain,
    vectors: Vec<libc::iovec>,
}

// SAFETY: the vectors are filled and used within one request; between requests they mean nothing.
unsafe impl Send for Block {}

impl Block {
    /// Opens the disk at `path`.
    pub fn open(path: &str, read_only: bool) -> Result<Self, String> {
        Self::try_open(path, read_only).map_err(|error| format!("{path}: {error}"))
    }

    fn try_open(path: &str, read_only: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(!read_only);
        let mut file = options.open(path)?;
        let kind = file.metadata()?.file_type();
        let is_device = kind.is_block_device();
        if !is_device && !kind.is_file() {
            return Err(io::Error::other("is neither a file nor a block device"));
        }
        let direct = options.custom_flags(libc::O_DIRECT).open(path).ok();
        let bytes = file.seek(SeekFrom::End(0))?;
        let block_size = if is_device {
            sys::block_size(&file)?
        } else {
            SECTOR as u32
        };
        let mut id = [0; ID_LENGTH];
        let name = path.bytes().skip(path.len().saturating_sub(ID_LENGTH));
        id.iter_mut().zip(name).for_each(|(to, from)| *to = from);
        Ok(Self {
            file,
            direct,
            is_device,
            read_only,
            bytes,
            block_size,
            write_through: false,
            expired: 0,
            id,
            chain: Chain::default(),
            vectors: Vec::new(),
        })
    }

    fn serve(&mut self, ring: &mut Vring) -> Result<bool, Broken> {
        let mut chain = std::mem::take(&mut self.chain);
        let found = ring.take(&mut chain);
        let done = match found {
            Ok(true) => self.request(ring, &chain),
            other => other,
        };
        self.chain = chain;
        done
    }

    fn request(&mut self, ring: &mut Vring, chain: &Chain) -> Result<bool, Broken> {
        let mut header = [0; HEADER as usize];
        let memory = ring.memory().clone();
        let complete = chain.readable.read(&memory, 0, &mut header) == header.len();
        let Some(status_at) = chain.writable.length().checked_sub(1) else {
            return Err(Broken::Request);
        };
        if !complete {
            return Err(Broken::Request);
        }
        let (words, _) = header.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let kind = words.next().unwrap_or(0) as u32;
        let sector = words.next().unwrap_or(0);
        let (status, written) = self.perform(ring, chain, kind, sector, status_at);
        if status != Status::Ok {
            ring.state().count(Word::Errors, 1);
        }
        chain.writable.write(&memory, status_at, &[status.byte()]);
        ring.complete(chain.head, written + 1)?;
        Ok(true)
    }

    /// Does the request; returns its outcome and how many bytes of data were written to the guest.
    fn perform(
        &mut self,
        ring: &Vring,
        chain: &Chain,
        kind: u32,
        sector: u64,
        room: u64,
    ) -> (Status, u64) {
        if let Some(left) = self.expired.checked_sub(1) {
            self.expired = left;
            return (Status::IoError, 0);
        }
        let outcome = match kind {
            VIRTIO_BLK_T_IN => self.transfer(ring, chain, Direction::Read, sector, room),
            VIRTIO_BLK_T_OUT => {
                let length = chain.readable.length() - HEADER;
                let done = self.transfer(ring, chain, Direction::Write, sector, length);
                done.map(|_| 0)
            }
            VIRTIO_BLK_T_FLUSH => self.flush(),
            VIRTIO_BLK_T_GET_ID => {
                let id = self.id.get(..ID_LENGTH.min(room as usize));
                let id = id.unwrap_or_default();
                Ok(chain.writable.write(ring.memory(), 0, id) as u64)
            }
            VIRTIO_BLK_T_DISCARD => self.ranges(ring, chain, false),
            VIRTIO_BLK_T_WRITE_ZEROES => self.ranges(ring, chain, true),
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
            (Some(start), Some(end)) if end <= self.bytes && length.is_multiple_of(SECTOR) => {
                Ok(start)
            }
            (Some(_) | None, Some(_) | None) => Err(ErrorKind::InvalidInput.into()),
        }
    }

    fn writable(&self) -> io::Result<()> {
        if self.read_only {
            return Err(ErrorKind::PermissionDenied.into());
        }
        Ok(())
    }

    fn transfer(
        &mut self,
        ring: &Vring,
        chain: &Chain,
        direction: Direction,
        sector: u64,
        length: u64,
    ) -> io::Result<u64> {
        let start = self.place(sector, length)?;
        let (buffers, skip, word) = match direction {
            Direction::Read => (&chain.writable, 0, Word::BytesIn),
            Direction::Write => {
                self.writable()?;
                (&chain.readable, HEADER, Word::BytesOut)
            }
        };
        let mut done = 0;
        while done < length {
            let left = length - done;
            buffers.vectors(ring.memory(), skip + done, left, &mut self.vectors);
            done += self.transfer_once(direction, start + done)? as u64;
        }
        ring.state().count(word, length);
        if direction == Direction::Write && self.write_through {
            self.file.sync_data()?;
        }
        Ok(length)
    }

    fn transfer_once(&self, direction: Direction, offset: u64) -> io::Result<usize> {
        let mask = u64::from(self.block_size.max(1)) - 1;
        let aligned = |number: u64| number & mask == 0;
        let all_aligned = aligned(offset)
            && self
                .vectors
                .iter()
                .all(|v| aligned(v.iov_base.addr() as u64) && aligned(v.iov_len as u64));
        let direct = self.direct.as_ref().filter(|_| all_aligned);
        let mut result = sys::transfer(
            direct.unwrap_or(&self.file),
            direction,
            &self.vectors,
            offset,
        );
        // A file system may want more alignment than it says.
        if direct.is_some() && matches!(&result, Err(e) if e.kind() == ErrorKind::InvalidInput) {
            result = sys::transfer(&self.file, direction, &self.vectors, offset);
        }
        match result {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
            other => other,
        }
    }

    fn flush(&self) -> io::Result<u64> {
        if !self.read_only {
            self.file.sync_data()?;
        }
        Ok(0)
    }

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
            let (words, _) = bytes.as_chunks::<8>();
            let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
            let sector = words.next().unwrap_or(0);
            let rest = words.next().unwrap_or(0);
            self.range(zero, sector, rest as u32, (rest >> 32) as u32)?;
        }
        if self.write_through {
            self.file.sync_data()?;
        }
        Ok(0)
    }

    fn range(&self, zero: bool, sector: u64, sectors: u32, flags: u32) -> io::Result<()> {
        // Bit 0 allows to unmap, which only writing zeroes may say.
        if flags & !1 != 0 || (!zero && flags != 0) {
            return Err(ErrorKind::Unsupported.into());
        }
        if sectors > MAX_RANGE_SECTORS {
            return Err(ErrorKind::InvalidInput.into());
        }
        let length = u64::from(sectors) * SECTOR;
        let start = self.place(sector, length)?;
        if length == 0 {
            return Ok(());
        }
        let done = if self.is_device {
            sys::block_range(&self.file, zero, start, length)
        } else {
            let mode = if zero && flags == 0 {
                libc::FALLOC_FL_ZERO_RANGE
            } else {
                libc::FALLOC_FL_PUNCH_HOLE
            };
            let mode = mode | libc::FALLOC_FL_KEEP_SIZE;
            sys::allocate(&self.file, mode, start, length)
        };
        match done {
            // A discard is only advice; zeroes can be written.
            Err(_) if !zero => Ok(()),
            Err(_) => self.write_zeroes(start, length),
            Ok(()) => Ok(()),
        }
    }

    fn write_zeroes(&self, start: u64, length: u64) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        let zeroes = [0; 0x1_0000];
        let mut done = 0;
        while done < length {
            let size = (length - done).min(zeroes.len() as u64) as usize;
            let piece = zeroes.get(..size).unwrap_or_default();
            self.file.write_all_at(piece, start + done)?;
            done += size as u64;
        }
        Ok(())
    }

    fn config(&self) -> Vec<u8> {
        let mut config = Vec::with_capacity(60);
        config.extend((self.bytes / SECTOR).to_le_bytes());
        config.extend(0_u32.to_le_bytes()); // size_max
        config.extend(SEGMENTS.to_le_bytes());
        config.extend([0; 4]); // geometry
        config.extend(self.block_size.to_le_bytes());
        config.extend([0; 8]); // topology
        config.extend([0, 0, 1, 0]); // writeback, unused, queues
        config.extend(MAX_RANGE_SECTORS.to_le_bytes());
        config.extend(MAX_RANGES.to_le_bytes());
        config.extend((self.block_size / SECTOR as u32).max(1).to_le_bytes());
        config.extend(MAX_RANGE_SECTORS.to_le_bytes());
        config.extend(MAX_RANGES.to_le_bytes());
        config.extend([1, 0, 0, 0]); // may unmap
        config
    }
}

impl Backend for Block {
    fn identity(&self) -> Identity {
        let mut features = 1 << VIRTIO_BLK_F_SEG_MAX
            | 1 << VIRTIO_BLK_F_BLK_SIZE
            | 1 << VIRTIO_BLK_F_FLUSH
            | 1 << VIRTIO_BLK_F_DISCARD
            | 1 << VIRTIO_BLK_F_WRITE_ZEROES;
        if self.read_only {
            features |= 1 << VIRTIO_BLK_F_RO;
        }
        Identity {
            device_id: VIRTIO_ID_BLOCK,
            features,
            queue_sizes: vec![QUEUE_SIZE],
            config: self.config(),
        }
    }

    fn activate(&mut self, features: u64) {
        self.write_through = features & 1 << VIRTIO_BLK_F_FLUSH == 0;
    }

    fn reset(&mut self) {
        self.expired = 0;
    }

    fn expire(&mut self, _queue: usize, pending: u16) {
        self.expired = pending;
    }

    fn process(&mut self, _queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        for _ in 0..TURN {
            if !self.serve(ring)? {
                return Ok(Progress::Drained);
            }
        }
        Ok(Progress::More)
    }
}
