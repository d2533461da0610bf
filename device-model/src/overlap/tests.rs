use std::fs::{self, OpenOptions};

use super::{Overlap, Transfer};
use crate::mapping::Mapping;
use crate::sys::Direction;
use crate::testing::Directory;

const PIECE: usize = 4096;

/// Memory for `count` pieces that Rust holds no reference to, as vectors.
fn pieces(count: usize) -> (Mapping, Vec<[libc::iovec; 1]>) {
    let mapping = Mapping::of_zeroes(count * PIECE).unwrap();
    let memory = mapping.memory(0).unwrap();
    let vectors = (0..count).map(|index| {
        let mut buffers = crate::buffers::Buffers::default();
        let start = vm_memory::GuestAddress((index * PIECE) as u64);
        assert!(buffers.push(&memory, start, PIECE as u32));
        let mut list = Vec::new();
        buffers.vectors(&memory, 0, PIECE as u64, &mut list);
        [list[0]]
    });
    let vectors = vectors.collect();
    (mapping, vectors)
}

#[test]
fn all_transfers_are_done_each_in_its_place() {
    // A host may forbid io_uring, as the device VM may; then nobody uses it.
    let Ok(mut overlap) = Overlap::new() else {
        return;
    };
    let directory = Directory::new("overlap");
    let content: Vec<u8> = (0..16 * PIECE).map(|at| (at / PIECE) as u8).collect();
    let path = directory.file("from", &content);
    let from = fs::File::open(path).unwrap();
    let path = directory.file("to", &[]);
    let to = OpenOptions::new().write(true).open(&path).unwrap();
    let (_memory, vectors) = pieces(16);
    let transfers = |file, direction, reversed: bool| -> Vec<Transfer<'_>> {
        let vectors = vectors.iter().zip(0_u64..);
        let transfer = vectors.map(|(vectors, index)| Transfer {
            file,
            direction,
            vectors,
            offset: PIECE as u64 * if reversed { 15 - index } else { index },
        });
        transfer.collect()
    };
    let moved = overlap
        .run(&transfers(&from, Direction::Read, false))
        .unwrap();
    assert_eq!(moved, [PIECE as u64; 16]);
    let moved = overlap
        .run(&transfers(&to, Direction::Write, true))
        .unwrap();
    assert_eq!(moved, [PIECE as u64; 16]);
    let expected: Vec<u8> = (0..16 * PIECE).map(|at| 15 - (at / PIECE) as u8).collect();
    assert_eq!(fs::read(path).unwrap(), expected);
    // An impossible transfer fails, and the others succeed.
    let mut mixed = transfers(&from, Direction::Read, false);
    mixed[3].offset = 16 * PIECE as u64;
    mixed[5].file = &to;
    let moved = overlap.run(&mixed).unwrap();
    assert_eq!((moved[3], moved[5], moved[15]), (0, 0, PIECE as u64));
}
