//! Requirements: G1-BOOT-007.

use std::vec::Vec;

use super::{Start, block, key};

fn seed(machine: &[u8], vm: u32, number: u32) -> [u8; 40] {
    let key = &key(machine);
    Start { key, vm, number }.seed()
}

/// RFC 8439, section 2.3.2.
#[test]
fn the_block_function_is_that_of_the_rfc() {
    let machine: [u8; 32] = core::array::from_fn(|at| u8::try_from(at).unwrap());
    let key = key(&machine);
    assert_eq!((key[0], key[7]), (0x0302_0100, 0x1f1e_1d1c));
    let block = block(&key, 1, [0x0900_0000, 0x4a00_0000, 0]);
    assert_eq!(
        block[0],
        [0xe4e7_f110, 0x1559_3bd1, 0x1fdd_0f50, 0xc471_20a3]
    );
    assert_eq!(
        block[3],
        [0xd19c_12b5, 0xb94e_16de, 0xe883_d0cb, 0x4e3c_50a2]
    );
}

#[test]
fn guests_get_different_seeds() {
    let machine = [7; 40];
    assert_ne!(seed(&machine, 0, 0), seed(&machine, 1, 0));
    assert_ne!(seed(&machine, 0, 0), seed(&[7; 39], 0, 0));
    assert_eq!(seed(&machine, 1, 0), seed(&machine, 1, 0));
}

/// Each byte of the machine's seed counts, and a part of a start's seed tells of no other's.
#[test]
fn starts_get_different_seeds() {
    let seeds: Vec<[u8; 40]> = (0..300).map(|start| seed(&[7; 40], 1, start)).collect();
    for (at, one) in seeds.iter().enumerate() {
        assert!(!seeds[..at].contains(one), "start {at}");
        let halves = one.as_chunks::<8>().0;
        assert!(!seeds[..at].iter().any(|other| other.ends_with(&halves[4])));
    }
    for at in 0..40 {
        let mut machine = [7; 40];
        machine[at] = 8;
        assert_ne!(seed(&machine, 1, 0), seeds[0], "byte {at}");
    }
}
