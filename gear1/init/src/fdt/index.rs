//! The index of the board's tree, in init's heap.
//!
//! Requirements: G1-BOOT-001.

use alloc::vec::Vec;

use gearv_manifest::blob::Blob;

/// Most words of an index, for which `gear1-init.ld` has 64 KiB of init's heap beside what the
/// trees of VMs need. A tree has a word for each four bytes of nodes and properties.
const MAX_INDEX: usize = 0x4000;

/// Returns the tree with an index, which is made in `words`: a boot reads all of the tree a dozen
/// times. A tree that is too large for that is read without one.
#[must_use]
pub fn indexed<'w>(tree: &Blob<'w>, words: &'w mut Vec<u32>) -> Blob<'w> {
    if tree.structure_cells() > MAX_INDEX {
        return *tree;
    }
    words.resize(tree.structure_cells(), 0);
    tree.indexed(
        words,
        &mut alloc::vec![0; tree.strings().len().min(MAX_INDEX)],
    )
}
