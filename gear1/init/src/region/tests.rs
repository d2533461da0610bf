//! Requirements: G1-BOOT-003.

use alloc::vec;

use super::{Region, merged, pages, subtract};

#[test]
fn regions_that_touch_are_one() {
    let region = Region::new;
    let list = merged(vec![
        region(0x5000, 0x6000),
        region(0x1000, 0x2000),
        region(0x2000, 0x3000),
        region(0x1000, 0x1800),
    ]);
    assert_eq!(list, vec![region(0x1000, 0x3000), region(0x5000, 0x6000)]);
}

#[test]
fn holes_take_whole_pages() {
    let region = Region::new;
    assert_eq!(pages(&region(0x1001, 0x1002)), region(0x1000, 0x2000));
    let holes = [region(0x3001, 0x4001), region(0x8000, 0xf000), region(0, 0)];
    let left = subtract(&[region(0x1000, 0x9000)], &holes);
    assert_eq!(left, vec![region(0x1000, 0x3000), region(0x5000, 0x8000)]);
    let left = subtract(&[region(0x8000, 0x9000), region(0x1234, 0x3fff)], &[]);
    assert_eq!(left, vec![region(0x2000, 0x3000), region(0x8000, 0x9000)]);
    // Banks without a whole page, with and without a hole elsewhere.
    let small = [region(0x8000, 0x8800), region(0x1200, 0x1800)];
    assert!(subtract(&small, &[]).is_empty());
    assert!(subtract(&small, &[region(0x4_0000, 0x5_0000)]).is_empty());
    assert!(subtract(&[region(0x1000, 0x2000)], &[region(0, 0x8000)]).is_empty());
    assert!(subtract(&[region(0, u64::MAX)], &[region(0, u64::MAX)]).is_empty());
}
