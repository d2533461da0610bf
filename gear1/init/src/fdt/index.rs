//! The index of the board's tree, in init's heap.
//!
//! Requirements: G1-BOOT-001.

use alloc::vec::Vec;

use gearv_manifest::blob::{Blob, Record};

/// Most nodes of an index, for which `gear1-init.ld` has 128 KiB of init's heap beside what the
/// trees of VMs need.
const MAX_NODES: usize = 0xc00;
/// Most bytes of names that are looked at once.
const MAX_NAMES: usize = 0x4000;

/// Returns the tree with an index, which is made in `records`: a boot reads all of the tree a dozen
/// times. A tree that is too large for that is read without one.
#[must_use]
pub fn indexed<'r>(tree: &Blob<'r>, records: &'r mut Vec<Record>) -> Blob<'r> {
    if tree.node_count() > MAX_NODES {
        return *tree;
    }
    records.resize(tree.node_count(), Record::default());
    let mut names = alloc::vec![0; tree.strings().len().min(MAX_NAMES)];
    tree.indexed(records, &mut names)
}
