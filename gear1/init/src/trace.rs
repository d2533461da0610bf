//! Memory of the rings of trace records: a piece for each CPU, which the runtime writes and Gear2
//! reads. No VM has it, and it is not in the list of what Gear1 keeps for itself, since Gear2 maps it.
//!
//! Requirements: G1-TRC-003.

use alloc::vec::Vec;

use gear1_abi::id::MAX_CPUS;
use gear1_abi::layout::{PAGE_SIZE, el2, gear2};
use gear1_core::addr::Pa;
use gear1_core::physical::PhysicalMemory;
use gear1_core::stage2::Attributes;
use gearv_manifest::Manifest;

use crate::fdt::Board;
use crate::flat;
use crate::layout::FreeMemory;
use crate::partition::{Mapping, Purpose, Space};
use crate::refusal::Refusal;

/// The rings of all CPUs, side by side in physical memory.
#[derive(Clone, Copy, Debug)]
pub struct Rings {
    start: Pa,
    /// Bytes of a ring, without its header's page.
    pub size: u64,
    cpu_count: u64,
}

/// Place of one CPU's piece.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Distance from the first piece, in EL2's address space and in Gear2's.
    pub offset: u64,
    /// PA of the header's page, which the records follow.
    pub pa: u64,
    /// Bytes.
    pub size: u64,
}

/// Bytes of the largest ring: with its header's page it fits into the distance of two pieces.
const LARGEST: u64 = (*gearv_manifest::limits::TRACE_KIB.end() as u64) << 10;
const _: () = assert!(LARGEST + PAGE_SIZE <= el2::TRACE_STRIDE);
const _: () = assert!(gear2::TRACE + MAX_CPUS as u64 * el2::TRACE_STRIDE <= gear2::HEAP);

/// Takes the memory of the rings, if the manifest has them. Zeroed: a ring that no CPU writes reads as
/// empty.
pub fn take<M: PhysicalMemory>(
    manifest: &Manifest<'_>,
    board: &Board,
    free: &mut FreeMemory,
    memory: &mut M,
) -> Result<Option<Rings>, Refusal> {
    let size = manifest.gear2.trace_bytes();
    if size == 0 {
        return Ok(None);
    }
    let cpu_count = board.cpus.len() as u64;
    let bytes = cpu_count * (PAGE_SIZE + size);
    let start = flat::zeroed(free, memory, bytes, "rings of trace records")?;
    Ok(Some(Rings {
        start,
        size,
        cpu_count,
    }))
}

/// Returns how many stage-2 tables the rings of a manifest take at most: a piece begins anywhere in
/// physical memory, and at its own address in Gear2.
pub fn table_count(manifest: &Manifest<'_>, cpu_count: usize) -> u64 {
    match manifest.gear2.trace_bytes() {
        0 => 0,
        size => cpu_count as u64 * ((size >> 21) + 2),
    }
}

impl Rings {
    /// Iterates over the pieces, in the order of the CPUs.
    pub fn pieces(self) -> impl Iterator<Item = Piece> {
        let size = PAGE_SIZE + self.size;
        (0..self.cpu_count).map(move |cpu| Piece {
            offset: cpu * el2::TRACE_STRIDE,
            pa: self.start.get() + cpu * size,
            size,
        })
    }

    /// Returns Gear2's mappings, which it cannot write.
    pub fn mappings(self) -> Vec<Mapping> {
        let mapping = |piece: Piece| Mapping {
            space: Space::Gear2,
            ipa: gear2::TRACE + piece.offset,
            pa: piece.pa,
            size: piece.size,
            // planted: Gear2 writes the records of Gear1
            attributes: Attributes::READ_ONLY_UNOWNED,
            why: Purpose::Gear2("trace records"),
        };
        self.pieces().map(mapping).collect()
    }
}

#[cfg(test)]
mod tests;
