//! Requirements: G1-BOOT-007.

use super::{SEED_SIZE, block, guest_seed, guest_seeds};

/// RFC 8439, section 2.3.2.
#[test]
fn the_block_function_is_that_of_the_rfc() {
    let key = core::array::from_fn(|at| u8::try_from(at).unwrap());
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
    assert_ne!(guest_seed(&machine, 0), guest_seed(&machine, 1));
    assert_ne!(guest_seed(&machine, 0), guest_seed(&[7; 39], 0));
    assert_eq!(guest_seed(&machine, 1), guest_seed(&machine, 1));
}

/// A seed may begin in one block of the key stream and end in the next: none repeats.
#[test]
fn starts_get_different_seeds() {
    let seeds = guest_seeds(&[7; 40], 1, 64);
    let seeds = seeds.as_chunks::<SEED_SIZE>().0;
    assert_eq!((seeds.len(), seeds[0]), (64, guest_seed(&[7; 40], 1)));
    let pairs = seeds.iter().enumerate();
    for (at, seed) in pairs {
        assert!(!seeds[..at].contains(seed), "start {at}");
        let halves = seed.as_chunks::<8>().0;
        assert!(!seeds[..at].iter().any(|other| other.ends_with(&halves[4])));
    }
}
