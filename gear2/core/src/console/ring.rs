//! The last bytes that a VM sent, and how far they were shown.

use alloc::boxed::Box;
use alloc::vec;

/// Bytes of output kept of each VM: 1 MiB of heap for 16 VMs.
const CAPACITY: usize = 64 << 10;

/// A ring of bytes. Positions count from the VM's first byte.
#[derive(Debug)]
pub(super) struct Ring {
    bytes: Box<[u8]>,
    /// Number of bytes that the VM has sent.
    written: u64,
    /// Position of the first byte that was not shown, which is never older than the oldest kept.
    seen: u64,
    /// The position behind the last line feed.
    lines_end: u64,
}

impl Ring {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; CAPACITY].into(),
            written: 0,
            seen: 0,
            lines_end: 0,
        }
    }

    /// Appends a byte in the place of the oldest.
    pub(super) fn push(&mut self, byte: u8) {
        self.bytes[slot(self.written)] = byte;
        self.written += 1;
        // Other VMs' lines are shown between whole lines of this one.
        if byte == b'\n' {
            self.lines_end = self.written;
        }
        // What was overwritten before anybody looked is lost, and counts as shown.
        self.seen = self.seen.max(self.oldest());
    }

    /// Returns the next byte that was not shown, which counts as shown then.
    pub(super) fn take(&mut self) -> Option<u8> {
        if self.seen == self.written {
            return None;
        }
        let byte = self.bytes[slot(self.seen)];
        self.seen += 1;
        Some(byte)
    }

    /// Returns how many bytes were not shown.
    pub(super) const fn unseen(&self) -> u64 {
        self.written - self.seen
    }

    /// Tells whether a whole line, or the rest of one, was not shown.
    pub(super) const fn has_line(&self) -> bool {
        self.lines_end > self.seen
    }

    /// Makes at least the last `count` bytes count as not shown.
    pub(super) fn show_again(&mut self, count: u64) {
        let from = self.written.saturating_sub(count).max(self.oldest());
        self.seen = self.seen.min(from);
    }

    /// Returns the last `count` bytes, or those that there are.
    pub(super) fn tail(&self, count: u64) -> impl Iterator<Item = u8> {
        let from = self.written.saturating_sub(count).max(self.oldest());
        (from..self.written).map(|position| self.bytes[slot(position)])
    }

    const fn oldest(&self) -> u64 {
        self.written.saturating_sub(CAPACITY as u64)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "smaller than the capacity")]
const fn slot(position: u64) -> usize {
    (position % CAPACITY as u64) as usize
}
