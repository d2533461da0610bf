//! Ranges of sectors to discard or to make zero (virtio 1.2, 5.2.6).

use std::io::{self, ErrorKind};

/// Bytes of a `virtio_blk_discard_write_zeroes`.
pub(super) const RANGE: usize = 16;
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
