//! The block that makes Linux offer a `pmem-region` to userspace as a device-dax (Linux,
//! `drivers/nvdimm/pfn.h`: `struct nd_pfn_sb`, version 1.4, signature `NVDIMM_DAX_INFO`).
//!
//! Invariant: the data begin [`DATA_OFFSET`] behind the region's start; Linux reserves the space
//! before them.
//!
//! Requirements: G1-BOOT-006.

use gear1_abi::layout::PAGE_SIZE;
use gear1_core::addr::Pa;
use gear1_core::physical::PhysicalMemory;

use crate::region::Region;

#[cfg(test)]
mod tests;

/// Offset of the block in the region.
pub const BLOCK_OFFSET: u64 = 0x1000;
/// Bytes of the block.
pub const BLOCK_SIZE: usize = 4096;
/// Offset of the data, which is a multiple of every alignment that Linux knows.
pub const DATA_OFFSET: u64 = 2 << 20;

/// First bytes of the block, and the place of its checksum.
const SIGNATURE: &[u8] = b"NVDIMM_DAX_INFO\0";
const CHECKSUM: usize = 0xff8;
/// Identifies Gear1's regions among all of the device VM's; the last byte counts them.
const UUID: [u8; 16] = *b"GearV shared\0\0\0\0";
const MODE_RAM: u32 = 1;
/// Bytes that Linux keeps for each page, in its own memory.
const PAGE_STRUCT_SIZE: u16 = 64;

/// Returns the block for a region whose data have `data_size` bytes, and are mapped in pieces of
/// `align` bytes: a page, or [`DATA_OFFSET`], for which Linux takes fewer tables.
///
/// Fields of `nd_pfn_sb`, in their order: signature, UUID, version 1.4, offset of the data, number
/// of pages, mode, alignment, page size and size of a page's structure. A checksum is last. Fields
/// that stand for nothing are zero: the parent's UUID, flags, and pads at both ends.
#[must_use]
pub fn block(data_size: u64, align: u64, uuid: [u8; 16]) -> [u8; BLOCK_SIZE] {
    let mut block = [0; BLOCK_SIZE];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = block.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    put(0, SIGNATURE);
    put(0x10, &uuid);
    put(0x34, &1_u16.to_le_bytes());
    put(0x36, &4_u16.to_le_bytes());
    put(0x38, &DATA_OFFSET.to_le_bytes());
    put(0x40, &(data_size / PAGE_SIZE).to_le_bytes());
    put(0x48, &MODE_RAM.to_le_bytes());
    put(0x54, &(align as u32).to_le_bytes());
    put(0x58, &(PAGE_SIZE as u32).to_le_bytes());
    put(0x5c, &PAGE_STRUCT_SIZE.to_le_bytes());
    let checksum = fletcher64(&block);
    if let Some(place) = block.get_mut(CHECKSUM..) {
        place.copy_from_slice(&checksum.to_le_bytes());
    }
    block
}

/// Writes what describes the region to Linux before it; `number` is told from those of other
/// regions.
pub fn describe<M: PhysicalMemory>(region: Region, number: u8, align: u64, memory: &mut M) {
    let start = Pa::new(region.start - DATA_OFFSET);
    let mut uuid = UUID;
    if let Some(last) = uuid.last_mut() {
        *last = number;
    }
    memory.wipe(start, DATA_OFFSET);
    let place = Pa::new(start.get() + BLOCK_OFFSET);
    let block = block(region.bytes(), align, uuid);
    memory.write(place, &block);
    memory.clean(place, block.len() as u64);
}

/// Returns the checksum that Linux calls `nd_fletcher64`.
fn fletcher64(bytes: &[u8]) -> u64 {
    let words = bytes.as_chunks::<4>().0.iter();
    let sums = words.fold((0_u32, 0_u64), |(low, high), word| {
        let low = low.wrapping_add(u32::from_le_bytes(*word));
        (low, high.wrapping_add(low.into()))
    });
    sums.1 << 32 | u64::from(sums.0)
}
