//! Requirements: G1-BOOT-003.

use gear1_core::addr::Pa;
use gearv_manifest::{Archive, Manifest, read};

use super::prepare;
use crate::fdt;
use crate::layout::FreeMemory;
use crate::region::Region;
use crate::testing::{Files, VIRT_GICV3, kernel, tree};
use crate::trees::{smallest, text};

const MIB: u64 = 1 << 20;
/// Bytes of a tree that names no initial RAM disk, and of one that does: the second needs a page
/// more.
const SIZES: [usize; 2] = [4050, 4126];

/// A tree that names an initial RAM disk is longer than one that names none. Its place has to have
/// room for all of it, or the rest is written over what lies behind.
#[test]
fn a_tree_lies_in_memory_that_was_taken_for_it() {
    let blob = smallest().set("/vms/linux", "initrd", text("rd")).flatten();
    let manifest: Manifest<'_> = read(blob.as_slice(), &mut |_| {}).unwrap();
    let files = Files::default()
        .with("artifact:debian-kernel", &kernel(0, 3 * MIB, 100))
        .with("rd", &[0; 5000])
        .pack();
    let board = tree(VIRT_GICV3).flatten();
    let board = fdt::read(board.as_slice()).board.unwrap();
    let mut free = FreeMemory::new(&[Region::new(MIB, 2 * MIB)], &[]);
    let make = |_, initrd: Region| Ok(alloc::vec![0; SIZES[usize::from(initrd.bytes() != 0)]]);
    let prepared = prepare(
        manifest.vms.get(0).unwrap(),
        Pa::new(64 * MIB),
        Some(&make),
        &Archive::new(&files).unwrap(),
        &board,
        &mut free,
    )
    .unwrap();
    let (bytes, kept) = prepared.tree.unwrap();
    let kept = Region::new(kept.get(), kept.get() + bytes.len() as u64);
    assert_eq!(bytes.len(), SIZES[1]);
    assert!(!free.regions().iter().any(|free| free.overlaps(&kept)));
}
