//! Ranges of sectors to discard or to make zero (virtio 1.2, 5.2.6).

use std::io::{self, ErrorKind};

use super::media::Media;
use super::request::HEADER;
use super::{Block, MAX_RANGES, RANGE_PIECE, SECTOR, withdrawn};
use crate::progress;
use crate::vring::{Chain, Vring};

/// Bytes of a `virtio_blk_discard_write_zeroes`.
const RANGE: usize = 16;
/// Most sectors of a range.
pub(super) const MAX_RANGE_SECTORS: u32 = 1 << 22;

/// A range to discard or to make zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    /// Make zero; else discard.
    pub(super) zero: bool,
    /// First sector.
    pub(super) sector: u64,
    /// At most [`MAX_RANGE_SECTORS`] in a range that is good.
    pub(super) sectors: u32,
    /// Bit 0: the blocks may be given back.
    pub(super) flags: u32,
}

impl Range {
    /// Reads a `virtio_blk_discard_write_zeroes` (virtio 1.2, 5.2.6).
    pub(super) fn read(bytes: [u8; RANGE], zero: bool) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let sector = words.next().unwrap_or(0);
        let rest = words.next().unwrap_or(0);
        Self {
            zero,
            sector,
            sectors: rest as u32,
            flags: (rest >> 32) as u32,
        }
    }

    /// Checks the flags and the length against what the configuration announces (virtio 1.2,
    /// 5.2.6.2).
    pub(super) fn check(self) -> io::Result<()> {
        // Bit 0 allows to unmap, which only writing zeroes may say.
        if self.flags & !1 != 0 || (!self.zero && self.flags != 0) {
            return Err(ErrorKind::Unsupported.into());
        }
        if self.sectors > MAX_RANGE_SECTORS {
            return Err(ErrorKind::InvalidInput.into());
        }
        Ok(())
    }
}

impl Block {
    /// Discards the ranges that a request lists, or makes them zero.
    pub(super) fn ranges(&self, ring: &Vring, chain: &Chain, zero: bool) -> io::Result<u64> {
        self.writable()?;
        for range in ranges_of(ring, chain, zero)? {
            self.range(ring, range)?;
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
}

/// Returns the ranges that a request lists. The guest's memory is read once for each use of them: a
/// guest that changes them meanwhile fools its own limits at most by a request.
pub(super) fn ranges_of(ring: &Vring, chain: &Chain, zero: bool) -> io::Result<Vec<Range>> {
    let length = chain.readable.length() - HEADER;
    let count = length / RANGE as u64;
    if !length.is_multiple_of(RANGE as u64) || !(1..=u64::from(MAX_RANGES)).contains(&count) {
        return Err(ErrorKind::InvalidInput.into());
    }
    let ranges = (0..count).map(|index| {
        let mut bytes = [0; RANGE];
        let at = HEADER + index * RANGE as u64;
        chain.readable.read(ring.memory(), at, &mut bytes);
        Range::read(bytes, zero)
    });
    Ok(ranges.collect())
}
