use std::fs::{self, OpenOptions};
use std::time::Duration;

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
        buffers.vectors(0, PIECE as u64, &mut list);
        [list[0]]
    });
    let vectors = vectors.collect();
    (mapping, vectors)
}

/// Does transfers and waits for all; returns how many bytes each has moved, 0 for a failed one.
fn run(overlap: &mut Overlap, transfers: &[Transfer<'_>]) -> Vec<u64> {
    for (transfer, number) in transfers.iter().zip(0..) {
        overlap.begin(number, transfer).unwrap();
    }
    assert!(overlap.is_fresh());
    let mut moved = vec![0; transfers.len()];
    for (number, result) in overlap.settle() {
        moved[number as usize] = result.unwrap_or(0);
    }
    assert!(!overlap.is_fresh());
    moved
}

/// A slow call, here the read of a pipe that nobody writes, holds back nothing else.
#[test]
fn what_is_slow_does_not_hold_others_back() {
    let Ok(mut overlap) = Overlap::new() else {
        return;
    };
    let directory = Directory::new("overlap");
    let quick = fs::File::open(directory.file("from", &[7; PIECE])).unwrap();
    let (slow, writer) = std::io::pipe().unwrap();
    let slow = fs::File::from(std::os::fd::OwnedFd::from(slow));
    let (_memory, vectors) = pieces(2);
    for (number, file) in [(4, &slow), (9, &quick)] {
        let transfer = Transfer {
            file,
            direction: Direction::Read,
            vectors: &vectors[usize::from(number == 9)],
            offset: 0,
        };
        overlap.begin(number, &transfer).unwrap();
    }
    let ended = overlap.ended(Duration::from_millis(200));
    let numbers: Vec<u64> = ended.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [9]);
    overlap.begin_sync(11, &quick).unwrap();
    let ended = overlap.ended(Duration::from_secs(20));
    assert_eq!(ended.first().map(|(number, _)| *number), Some(11));
    // The end of the writers ends the read.
    drop(writer);
    let ended = overlap.settle();
    assert_eq!(ended.len(), 1);
    assert_eq!((ended[0].0, ended[0].1.as_ref().ok()), (4, Some(&0)));
}

#[test]
fn no_more_begin_than_there_is_room_for() {
    let Ok(mut overlap) = Overlap::new() else {
        return;
    };
    let directory = Directory::new("overlap");
    let file = fs::File::open(directory.file("from", &[7; PIECE])).unwrap();
    for number in 0..Overlap::MOST as u64 {
        overlap.begin_sync(number, &file).unwrap();
    }
    assert!(overlap.begin_sync(1000, &file).is_err());
    assert_eq!(overlap.settle().len(), Overlap::MOST);
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
    let moved = run(&mut overlap, &transfers(&from, Direction::Read, false));
    assert_eq!(moved, [PIECE as u64; 16]);
    let moved = run(&mut overlap, &transfers(&to, Direction::Write, true));
    assert_eq!(moved, [PIECE as u64; 16]);
    let expected: Vec<u8> = (0..16 * PIECE).map(|at| 15 - (at / PIECE) as u8).collect();
    assert_eq!(fs::read(path).unwrap(), expected);
    // An impossible transfer fails, and the others succeed.
    let mut mixed = transfers(&from, Direction::Read, false);
    mixed[3].offset = 16 * PIECE as u64;
    mixed[5].file = &to;
    let moved = run(&mut overlap, &mixed);
    assert_eq!((moved[3], moved[5], moved[15]), (0, 0, PIECE as u64));
}
