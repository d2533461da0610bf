//! Requirements: G1-CHN-002.

use super::{FIRST_ID, IC, IE, LINES, MIS, Pl061, RIS};

#[test]
fn an_edge_while_masked_is_kept() {
    let mut gpio = Pl061::new();
    gpio.raise(3);
    assert!(!gpio.interrupt());
    assert_eq!((gpio.read(RIS), gpio.read(MIS)), (8, 0));
    gpio.write(IE, 8);
    assert!(gpio.interrupt());
    assert_eq!(gpio.read(MIS), 8);
}

#[test]
fn clearing_a_line_leaves_the_others() {
    let mut gpio = Pl061::new();
    gpio.write(IE, 0xff);
    gpio.raise(0);
    gpio.raise(7);
    assert_eq!(gpio.read(MIS), 0x81);
    gpio.write(IC, 1);
    assert_eq!(gpio.read(MIS), 0x80);
    assert!(gpio.interrupt());
    gpio.write(IC, 0x80);
    assert!(!gpio.interrupt());
}

#[test]
fn lines_that_do_not_exist_raise_nothing() {
    let mut gpio = Pl061::new();
    gpio.write(IE, 0xff);
    gpio.raise(LINES);
    gpio.raise(u32::MAX);
    assert!(!gpio.interrupt());
}

#[test]
fn the_driver_finds_its_identification() {
    let gpio = Pl061::new();
    let id = |n: u64| gpio.read(FIRST_ID + 4 * n);
    let part = id(0) | (id(1) & 0xf) << 8;
    assert_eq!(part, 0x061);
    assert_eq!([id(4), id(5), id(6), id(7)], [0x0d, 0xf0, 0x05, 0xb1]);
    assert_eq!(gpio.read(0x800), 0);
}
