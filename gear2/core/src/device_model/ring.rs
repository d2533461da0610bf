//! A VM's console as two rings of bytes that GDM sees.
//!
//! Owns the index that is Gear2's in each: the output's end and the input's beginning. Their copies
//! in the region are for GDM to read. Indices count bytes and wrap at 2^32.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use gear2_protocol::ConsoleBlock;
use gear2_protocol::offset::{INPUT_LOW, INPUT_SIZE, OUTPUT_SIZE};

#[cfg(test)]
mod tests;

/// The end of the output ring. It takes everything: the newest bytes replace the oldest.
#[derive(Debug)]
pub(crate) struct OutputRing {
    block: &'static ConsoleBlock,
    written: u32,
}

impl OutputRing {
    /// Goes on where the region says that it ends, which is anywhere.
    pub(crate) fn new(block: &'static ConsoleBlock) -> Self {
        let written = block.ring.output_written.load(Relaxed);
        Self { block, written }
    }

    /// Returns the last `count` bytes, as the region has them, or those that there are.
    pub(crate) fn tail(&self, count: u32) -> impl Iterator<Item = u8> {
        let count = self.written.min(count);
        let indices = (0..count).rev();
        indices.map(|behind| {
            let index = self.written.wrapping_sub(behind + 1);
            self.block.output[place(index, OUTPUT_SIZE)].load(Relaxed)
        })
    }

    /// Appends bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.block.output[place(self.written, OUTPUT_SIZE)].store(byte, Relaxed);
            self.written = self.written.wrapping_add(1);
            self.block.ring.output_written.store(self.written, Release);
        }
    }
}

/// The beginning of the input ring.
#[derive(Debug)]
pub(crate) struct InputRing {
    block: &'static ConsoleBlock,
    read: u32,
    has_room: bool,
}

impl InputRing {
    /// Goes on where the region says that it begins, which is anywhere.
    pub(crate) fn new(block: &'static ConsoleBlock) -> Self {
        Self {
            block,
            read: block.ring.input_read.load(Relaxed),
            has_room: false,
        }
    }

    /// Takes the next byte. A writer that is further ahead than the ring is long has overwritten
    /// its own bytes: reading resumes at the oldest byte that is left.
    pub(crate) fn take(&mut self) -> Option<u8> {
        let written = self.block.ring.input_written.load(Acquire);
        let length = INPUT_SIZE as u32;
        let waiting = written.wrapping_sub(self.read);
        let left = waiting.min(length).checked_sub(1)?;
        // planted: each byte that a guest reads wakes the device model
        self.has_room |= left == INPUT_LOW as u32;
        self.read = written.wrapping_sub(left + 1);
        let byte = self.block.input[place(self.read, INPUT_SIZE)].load(Relaxed);
        self.read = self.read.wrapping_add(1);
        self.block.ring.input_read.store(self.read, Release);
        Some(byte)
    }

    /// Tells whether the ring's writer, which waits while more than [`INPUT_LOW`] bytes do, can go
    /// on since the last call.
    pub(crate) const fn take_has_room(&mut self) -> bool {
        core::mem::replace(&mut self.has_room, false)
    }
}

/// Returns the place of an index in a ring. GDM may have written any index.
const fn place(index: u32, length: usize) -> usize {
    // planted: a console's index is not cut to its ring
    index as usize % length
}
