//! The memory that a request names: segments of guest RAM, checked when they are added.
//!
//! Invariant: every segment lies in the guest's RAM, so that no access here can
//! fail for any other reason than an offset beyond the request's own length.

use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

use crate::mapping::Memory;

/// Most segments of a request: what the kernel takes in one vectored call.
pub const MAX_SEGMENTS: usize = 1024;

/// A contiguous piece of guest RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    address: GuestAddress,
    length: u32,
}

/// Segments in the order of the request.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    segments: Vec<Segment>,
    length: u64,
}

impl Buffers {
    /// Removes all segments.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.length = 0;
    }

    /// Adds what a descriptor names; refused when it is not all guest RAM.
    pub fn push(&mut self, memory: &Memory, address: GuestAddress, length: u32) -> bool {
        if length == 0 {
            return true;
        }
        let fits = self.segments.len() < MAX_SEGMENTS;
        if !fits || !memory.check_range(address, length as usize) {
            return false;
        }
        self.segments.push(Segment { address, length });
        self.length += u64::from(length);
        true
    }

    /// Returns the bytes of all segments.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Tells whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the pieces that bytes `offset..offset + length` of the request lie in.
    fn pieces(&self, offset: u64, length: u64) -> impl Iterator<Item = (GuestAddress, usize)> {
        let mut skip = offset;
        let mut left = length;
        self.segments.iter().filter_map(move |segment| {
            let size = u64::from(segment.length);
            let skipped = skip.min(size);
            skip -= skipped;
            let take = left.min(size - skipped);
            left -= take;
            // No overflow: the segment's end was checked to be an address.
            let address = GuestAddress(segment.address.0.wrapping_add(skipped));
            (take > 0).then_some((address, take as usize))
        })
    }

    /// Copies out of the request from `offset`; returns how many bytes there were.
    pub fn read(&self, memory: &Memory, offset: u64, bytes: &mut [u8]) -> usize {
        let mut done = 0;
        for (address, size) in self.pieces(offset, bytes.len() as u64) {
            let Some(target) = bytes.get_mut(done..done + size) else {
                break;
            };
            if memory.read_slice(target, address).is_err() {
                break;
            }
            done += size;
        }
        done
    }

    /// Copies into the request from `offset`; returns how many bytes had room.
    pub fn write(&self, memory: &Memory, offset: u64, bytes: &[u8]) -> usize {
        let mut done = 0;
        for (address, size) in self.pieces(offset, bytes.len() as u64) {
            let Some(source) = bytes.get(done..done + size) else {
                break;
            };
            if memory.write_slice(source, address).is_err() {
                break;
            }
            done += size;
        }
        done
    }

    /// Appends the bytes `offset..offset + length` as vectors for the kernel. They point into
    /// a mapping that is never undone.
    pub fn vectors(&self, memory: &Memory, offset: u64, length: u64, to: &mut Vec<libc::iovec>) {
        to.clear();
        for (address, size) in self.pieces(offset, length) {
            if let Ok(slice) = memory.get_slice(address, size) {
                to.push(libc::iovec {
                    iov_base: slice.ptr_guard_mut().as_ptr().cast(),
                    iov_len: slice.len(),
                });
            }
        }
    }
}
