//! Tests of the sizes of a heap's blocks.

use super::{CLASSES, SizeClass, UNIT};

#[test]
fn blocks_hold_what_was_asked_for_and_little_more() {
    let mut before = SizeClass::of(0).unwrap();
    assert_eq!((before.index, before.bytes), (0, UNIT));
    for size in 1..=1 << 20 {
        let class = SizeClass::of(size).unwrap();
        assert!(class.bytes >= size && class.bytes.is_multiple_of(UNIT));
        assert!(
            class.bytes <= size.max(UNIT) + (size / 4).max(UNIT),
            "{size}"
        );
        // One number for one size, in ascending order.
        let is_next = class.index == before.index + 1 && class.bytes > before.bytes;
        assert!(class == before || is_next, "{size}");
        before = class;
    }
    assert!(before.index < CLASSES);
}

#[test]
fn a_block_has_the_class_of_its_own_size() {
    for size in (0..1 << 21).step_by(7) {
        if let Some(class) = SizeClass::of(size) {
            assert_eq!(SizeClass::of(class.bytes), Some(class));
        }
    }
    assert_eq!(SizeClass::of(usize::MAX), None);
}
