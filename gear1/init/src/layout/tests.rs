//! Requirements: G1-BOOT-003.

use alloc::string::ToString;

use gear1_core::addr::Pa;

use super::{FreeMemory, Region};

const MIB: u64 = 1 << 20;

fn region(start: u64, end: u64) -> Region {
    Region::new(start * MIB, end * MIB)
}

#[test]
fn small_things_go_into_small_holes() {
    let mut free = FreeMemory::new(&[region(0, 64)], &[region(2, 4)]);
    assert_eq!(free.take(5, 4096, "x"), Ok(Pa::new(0)));
    assert_eq!(free.take(4096, 4096, "x"), Ok(Pa::new(4096)));
    assert_eq!(free.take(2 * MIB, 4096, "x"), Ok(Pa::new(4 * MIB)));
    assert_eq!(free.take(4096, MIB, "x"), Ok(Pa::new(MIB)));
    assert_eq!(free.total(), 62 * MIB - 2 * MIB - 3 * 4096);
}

#[test]
fn nothing_is_given_out_twice() {
    let mut free = FreeMemory::new(&[region(0, 8), region(16, 24)], &[]);
    assert!(free.take_at(region(2, 4)));
    assert!(!free.take_at(region(3, 5)));
    assert!(!free.take_at(region(7, 17)));
    assert_eq!(
        free.take_lowest(4 * MIB, 2 * MIB, 0),
        Some(Pa::new(4 * MIB))
    );
    assert_eq!(
        free.take_lowest(4 * MIB, 2 * MIB, 0),
        Some(Pa::new(16 * MIB))
    );
    assert_eq!(free.take_lowest(8 * MIB, 2 * MIB, 0), None);
    let refused = free.take(8 * MIB, 4096, "the heap").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "machine: no 8192 KiB of free memory for the heap"
    );
}

#[test]
fn what_is_before_memory_does_not_move_it_off_its_alignment() {
    let mut free = FreeMemory::new(&[region(0, 8), region(18, 100)], &[]);
    let start = free.take_lowest(8 * MIB, 16 * MIB, 2 * MIB);
    assert_eq!(start, Some(Pa::new(32 * MIB)));
    assert_eq!(
        free.regions(),
        [region(0, 8), region(18, 30), region(40, 100)]
    );
    assert_eq!(free.take_lowest(2 * MIB, 128 * MIB, 2 * MIB), None);
}
