//! A request to a disk: what its descriptors say, and the memory that they name (virtio 1.2, 5.2.6).

use std::io::{self, ErrorKind};

use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT,
};

use crate::sys::Direction;
use crate::vring::{Broken, Chain, Vring};

/// Bytes of a request before its data: type, a reserved word, the first sector.
pub(super) const HEADER: u64 = 16;

/// Outcome of a request, as the guest sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    IoError,
    Unsupported,
}

impl Status {
    /// Returns the last byte of the request (virtio 1.2, 5.2.6).
    pub(super) const fn byte(self) -> u8 {
        (match self {
            Self::Ok => VIRTIO_BLK_S_OK,
            Self::IoError => VIRTIO_BLK_S_IOERR,
            Self::Unsupported => VIRTIO_BLK_S_UNSUPP,
        }) as u8
    }

    /// Returns the outcome that an error is to a guest.
    pub(super) fn of(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::Unsupported => Self::Unsupported,
            _ => Self::IoError,
        }
    }
}

/// A request under way. Its memory is reused.
#[derive(Debug, Default)]
pub(super) struct Request {
    /// Descriptors of the header, the data and the status.
    pub(super) chain: Chain,
    /// VIRTIO_BLK_T_*.
    pub(super) kind: u32,
    /// First sector of the data.
    pub(super) sector: u64,
    /// Bytes for the guest before the status.
    pub(super) room: u64,
    /// Where the data is in this process, for the kernel; refilled for each transfer.
    pub(super) vectors: Vec<libc::iovec>,
    /// Bytes of data that were moved.
    pub(super) moved: u64,
}

impl Request {
    /// Takes the next one; false if there is none.
    pub(super) fn take(&mut self, ring: &mut Vring) -> Result<bool, Broken> {
        if !ring.take_any(&mut self.chain)? {
            return Ok(false);
        }
        self.read(ring)?;
        Ok(true)
    }

    /// Reads what the descriptors of the request say.
    pub(super) fn read(&mut self, ring: &Vring) -> Result<(), Broken> {
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
        Ok(())
    }

    /// Returns which way data goes, if it does, and how much.
    pub(super) fn transfer(&self) -> Option<(Direction, u64)> {
        match self.kind {
            VIRTIO_BLK_T_IN => Some((Direction::Read, self.room)),
            VIRTIO_BLK_T_OUT => Some((Direction::Write, self.chain.readable.length() - HEADER)),
            _ => None,
        }
    }

    /// Finds the memory of the data from byte `done` on.
    pub(super) fn find(&mut self, direction: Direction, done: u64, length: u64) {
        let (buffers, skip) = match direction {
            Direction::Read => (&self.chain.writable, 0),
            Direction::Write => (&self.chain.readable, HEADER),
        };
        buffers.vectors(skip + done, length - done, &mut self.vectors);
    }
}
