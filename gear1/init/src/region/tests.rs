//! Requirements: G1-BOOT-003.

use alloc::vec;

use super::{Region, pages, subtract};

#[test]
fn holes_take_whole_pages() {
    let region = Region::new;
    assert_eq!(pages(&region(0x1001, 0x1002)), region(0x1000, 0x2000));
    let holes = [region(0x3001, 0x4001), region(0x8000, 0xf000), region(0, 0)];
    let left = subtract(&[region(0x1000, 0x9000)], &holes);
    assert_eq!(left, vec![region(0x1000, 0x3000), region(0x5000, 0x8000)]);
    let left = subtract(&[region(0x8000, 0x9000), region(0x1234, 0x3fff)], &[]);
    assert_eq!(left, vec![region(0x2000, 0x3000), region(0x8000, 0x9000)]);
    assert!(subtract(&[region(0x1000, 0x2000)], &[region(0, 0x8000)]).is_empty());
    assert!(subtract(&[region(0, u64::MAX)], &[region(0, u64::MAX)]).is_empty());
}
