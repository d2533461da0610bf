use super::{CHECKSUM, DATA_OFFSET, block};

/// The bytes that Linux 6.12 accepted in `experiments/`.
#[test]
fn the_checksum_is_the_one_that_linux_accepts() {
    let uuid = [
        0, 0, 0, 0, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44,
    ];
    let block = block(254 << 20, DATA_OFFSET, uuid);
    assert_eq!(block[0x40..0x48], 0xfe00_u64.to_le_bytes());
    let expected = [0xf4, 0xd8, 0x41, 0x82, 0x05, 0x53, 0x91, 0x08];
    assert_eq!(block[CHECKSUM..], expected);
    let by_page = super::block(254 << 20, 4096, uuid);
    assert_eq!(by_page[0x54..0x58], 4096_u32.to_le_bytes());
}
