//! Requirements: G1-CHN-002, G1-CHN-003.

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

/// Takes the interrupt as a kernel does: the line is cleared before anybody has looked.
fn interrupts(gpio: &mut Pl061) -> u32 {
    let lines = gpio.read(MIS);
    gpio.write(IC, lines);
    u32::from(lines != 0)
}

#[test]
fn kicks_make_one_interrupt_until_somebody_has_looked() {
    let mut gpio = Pl061::new();
    gpio.write(IE, 0xff);
    gpio.arm(8);
    for _ in 0..3 {
        let mut count = 0;
        for _ in 0..1000 {
            gpio.raise(3);
            count += interrupts(&mut gpio);
        }
        assert_eq!(count, 1);
        // Edges since then are one more, and none is lost.
        gpio.arm(8);
        assert_eq!(interrupts(&mut gpio), 1);
        gpio.arm(8);
        assert_eq!(interrupts(&mut gpio), 0);
    }
}

#[test]
fn an_edge_is_shown_or_held_whatever_is_armed_when() {
    // Each sequence of edges, looks of the kernel, armings and changes of user, of nine steps.
    for sequence in 0..4_u32.pow(9) {
        let mut gpio = Pl061::new();
        gpio.write(IE, 0xff);
        gpio.arm(1);
        let (mut unseen, mut shown, mut armings, mut steps) = (false, 0, 1, sequence);
        let mut has_one_user = true;
        for _ in 0..9 {
            match steps % 4 {
                0 => {
                    gpio.raise(0);
                    unseen = true;
                }
                1 if interrupts(&mut gpio) == 1 => {
                    shown += 1;
                    unseen = false;
                }
                1 => {}
                2 => {
                    gpio.arm(1);
                    armings += 1;
                }
                _ => {
                    gpio.write(IE, 0xfe);
                    gpio.write(IE, 0xff);
                    has_one_user = false;
                }
            }
            steps /= 4;
            assert!(shown <= armings || !has_one_user, "{sequence}");
        }
        gpio.arm(1);
        unseen &= interrupts(&mut gpio) == 0;
        assert!(!unseen, "{sequence}");
        assert_eq!(interrupts(&mut gpio), 0);
        // A line that nobody arms is shown each time.
        for _ in 0..2 {
            gpio.raise(5);
            assert_eq!(interrupts(&mut gpio), 1);
        }
    }
}

/// A user that knows nothing of arming follows one that did: a program for measurements, or an
/// older GDM.
#[test]
fn the_next_user_of_a_line_need_not_arm_it() {
    let mut gpio = Pl061::new();
    gpio.write(IE, 9);
    gpio.arm(9);
    gpio.raise(0);
    gpio.raise(0);
    gpio.raise(3);
    gpio.raise(3);
    assert_eq!(interrupts(&mut gpio), 1);
    gpio.write(IE, 8);
    gpio.raise(0);
    gpio.write(IE, 9);
    assert_eq!(gpio.read(MIS), 1, "line 3 is held back as before");
    for _ in 0..3 {
        assert_eq!(interrupts(&mut gpio), 1);
        gpio.raise(0);
        gpio.raise(3);
    }
    gpio.write(IC, 1);
    gpio.arm(8);
    assert_eq!(gpio.read(MIS), 8);
}
