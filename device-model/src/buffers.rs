//! The memory that a request names, checked when it is added.
//!
//! A driver may name memory that is its guest's and not mapped here: a region shared between VMs,
//! as the buffer of a direct read. That harms the request alone. Invariant: every access ends at
//! the first byte that is not the guest's RAM, and [`Buffers::is_reachable`] tells beforehand.

use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

use crate::mapping::Memory;

/// Most segments of a request: what the kernel takes in one vectored call.
pub const MAX_SEGMENTS: usize = 1024;

/// A contiguous piece of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Guest-physical.
    address: GuestAddress,
    /// Bytes, not 0.
    length: u32,
    /// Whether all buffers are in the guest's RAM.
    reachable: bool,
}

/// Segments in the order of the request.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    /// Kept between requests, so that a request allocates nothing once the list is long enough.
    segments: Vec<Segment>,
    /// Bytes of all segments.
    length: u64,
}

impl Buffers {
    /// Removes all segments.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.length = 0;
    }

    /// Adds what a descriptor names; refused when there are too many segments.
    pub fn push(&mut self, memory: &Memory, address: GuestAddress, length: u32) -> bool {
        if length == 0 {
            return true;
        }
        // planted: a request has as many segments as it likes
        let fits = self.segments.len() < MAX_SEGMENTS;
        if !fits {
            return false;
        }
        self.segments.push(Segment {
            address,
            length,
            // planted: a buffer's end is not checked
            reachable: memory.check_range(address, length as usize),
        });
        self.length += u64::from(length);
        true
    }

    /// Tells whether bytes `offset..offset + length` of the request are all the guest's RAM.
    pub fn is_reachable(&self, offset: u64, length: u64) -> bool {
        let mut pieces = self.segments_of(offset, length);
        pieces.all(|(segment, _, _)| segment.reachable)
    }

    /// Returns the bytes of all segments.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Tells whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns where byte `offset` of the request lies, if that is the guest's RAM.
    pub fn address(&self, offset: u64) -> Option<GuestAddress> {
        self.pieces(offset, 1).next().map(|(address, _)| address)
    }

    /// Returns the segments that bytes `offset..offset + length` of the request lie in, with how
    /// many bytes of each are skipped and taken.
    fn segments_of(&self, offset: u64, length: u64) -> impl Iterator<Item = (&Segment, u64, u64)> {
        let mut skip = offset;
        let mut left = length;
        self.segments.iter().filter_map(move |segment| {
            let size = u64::from(segment.length);
            let skipped = skip.min(size);
            skip -= skipped;
            let take = left.min(size - skipped);
            left -= take;
            (take > 0).then_some((segment, skipped, take))
        })
    }

    /// Returns the pieces of guest RAM that bytes `offset..offset + length` of the request lie in,
    /// up to the first segment that is none.
    fn pieces(&self, offset: u64, length: u64) -> impl Iterator<Item = (GuestAddress, usize)> {
        let segments = self.segments_of(offset, length);
        let reachable = segments.take_while(|(segment, _, _)| segment.reachable);
        reachable.map(|(segment, skipped, take)| {
            // No overflow: the segment's end was checked to be an address.
            let address = GuestAddress(segment.address.0.wrapping_add(skipped));
            (address, take as usize)
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

    /// Replaces `to` by the bytes `offset..offset + length` as vectors for the kernel, up to the
    /// first byte that is not reachable. They point into a mapping that is never undone.
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
