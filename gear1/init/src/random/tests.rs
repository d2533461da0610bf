//! Requirements: G1-BOOT-007.

use super::{block, guest_seed};

/// RFC 8439, section 2.3.2.
#[test]
fn the_block_function_is_that_of_the_rfc() {
    let key = core::array::from_fn(|at| u8::try_from(at).unwrap());
    let block = block(&key, 1, [0x0900_0000, 0x4a00_0000, 0]);
    assert_eq!(
        block[..4],
        [0xe4e7_f110, 0x1559_3bd1, 0x1fdd_0f50, 0xc471_20a3]
    );
    assert_eq!(
        block[12..],
        [0xd19c_12b5, 0xb94e_16de, 0xe883_d0cb, 0x4e3c_50a2]
    );
}

#[test]
fn guests_get_different_seeds() {
    let machine = [7; 40];
    assert_ne!(guest_seed(&machine, 0, 0), guest_seed(&machine, 1, 0));
    assert_ne!(guest_seed(&machine, 0, 0), guest_seed(&[7; 39], 0, 0));
    assert_ne!(guest_seed(&machine, 1, 0), guest_seed(&machine, 1, 1));
    assert_eq!(guest_seed(&machine, 1, 0), guest_seed(&machine, 1, 0));
}
