//! The memory that a request names, checked when it is added.
//!
//! A driver may name memory that is its guest's and not mapped here: a region shared between VMs,
//! as the buffer of a direct read. That harms the request alone. Invariant: every access ends at
//! the first byte that is not the guest's RAM, and [`Buffers::is_reachable`] tells beforehand.

use std::ptr::NonNull;

use vm_memory::{Bytes, GuestAddress};

use crate::memory::Memory;

/// Most segments of a request: what the kernel takes in one vectored call.
pub const MAX_SEGMENTS: usize = 1024;

/// A contiguous piece of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Guest-physical.
    address: GuestAddress,
    /// Bytes, not 0.
    length: u32,
    /// Place in this process, if all bytes are in the guest's RAM.
    place: Option<NonNull<u8>>,
}

// SAFETY: the mapping of the guest's RAM is never undone, and its addresses are those of the
// process: they are valid in every thread.
unsafe impl Send for Segment {}

/// Segments in the order of the request.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    /// Kept between requests, so that a request allocates nothing once the list is long enough.
    segments: Vec<Segment>,
    /// Bytes of all segments.
    length: u64,
    /// Whether a segment is not in the guest's RAM.
    has_gap: bool,
}

impl Buffers {
    /// Removes all segments.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.length = 0;
        self.has_gap = false;
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
        // planted: a buffer's end is not checked
        let slice = memory.slice(address, length as usize).ok();
        let place = slice.and_then(|slice| NonNull::new(slice.ptr_guard_mut().as_ptr()));
        self.has_gap |= place.is_none();
        self.segments.push(Segment {
            address,
            length,
            place,
        });
        self.length += u64::from(length);
        true
    }

    /// Tells whether bytes `offset..offset + length` of the request are all the guest's RAM.
    pub fn is_reachable(&self, offset: u64, length: u64) -> bool {
        let mut pieces = self.segments_of(offset, length);
        pieces.all(|(segment, _, _)| segment.place.is_some())
    }

    /// Tells whether all bytes of the request are the guest's RAM.
    pub fn is_all_reachable(&self) -> bool {
        !self.has_gap
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
        let reachable = segments.take_while(|(segment, _, _)| segment.place.is_some());
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
    pub fn vectors(&self, offset: u64, length: u64, to: &mut Vec<libc::iovec>) {
        to.clear();
        for (segment, skipped, take) in self.segments_of(offset, length) {
            let Some(place) = segment.place else {
                break;
            };
            // It stays within the segment.
            let base = place.as_ptr().wrapping_add(skipped as usize);
            add(to, base, take as usize);
        }
    }

    /// Adds all bytes of the request to `to` as [`Self::vectors`] does, but for those for which
    /// there would be more than `most` vectors. Returns how many bytes were added.
    pub fn add_vectors(&self, to: &mut Vec<libc::iovec>, most: usize) -> usize {
        let mut added = 0;
        for segment in &self.segments {
            let Some(place) = segment.place.filter(|_| to.len() < most) else {
                break;
            };
            add(to, place.as_ptr(), segment.length as usize);
            added += segment.length as usize;
        }
        added
    }
}

/// Adds bytes to vectors. Bytes behind those of the last vector make it longer: drivers take the
/// buffers for frames one behind the other from larger pieces of memory, and each vector costs the
/// kernel as much as some hundred bytes.
fn add(to: &mut Vec<libc::iovec>, base: *mut u8, length: usize) {
    match to.last_mut() {
        Some(last) if last.iov_base.wrapping_byte_add(last.iov_len) == base.cast() => {
            last.iov_len += length;
        }
        _ => to.push(libc::iovec {
            iov_base: base.cast(),
            iov_len: length,
        }),
    }
}
