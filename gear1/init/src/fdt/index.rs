//! The indexes of the board's tree and of the manifest, in init's heap.
//!
//! Requirements: G1-BOOT-001.

use alloc::vec::Vec;

use gearv_manifest::blob::{Blob, BlobError, RecordRoom};

/// Most nodes of an index of the board's tree, for which `gear1-init.ld` has 128 KiB of init's heap
/// beside what the trees of VMs need.
pub const BOARD_NODES: usize = 0xb80;
/// Most nodes of an index of the manifest's tree, which has 32 KiB.
pub const MANIFEST_NODES: usize = 0x2e0;
/// Most bytes of names that are looked at once.
const MAX_NAMES: usize = 0x4000;

/// Checks the tree in `bytes`, and returns it with an index, which is made in `records`: a boot
/// reads all of the tree a dozen times. A tree with more than `max_nodes` is read without one.
pub fn indexed<'r>(
    bytes: &'r [u8],
    records: &'r mut Vec<RecordRoom>,
    max_nodes: usize,
) -> Result<Blob<'r>, BlobError> {
    let size = Blob::index_size(bytes)?;
    *records = alloc::vec![RecordRoom::default(); size.records.min(max_nodes)];
    let mut names = alloc::vec![0_u8; size.names.min(MAX_NAMES)];
    Blob::indexed(bytes, records, &mut names)
}
