//! Requirements: G1-CPU-018.

use super::{Lengths, size, zcr};

/// Lengths that QEMU's `max` has with `sve-max-vq=4`.
const FOUR: Lengths = Lengths::from_bits(0b1111);

#[test]
fn a_length_is_a_bit() {
    let lengths = [128, 256, 512]
        .into_iter()
        .fold(Lengths::NONE, Lengths::with);
    assert_eq!(lengths.bits(), 0b1011);
    assert!(lengths.has(512) && !lengths.has(384));
    assert!(lengths.has(128) && lengths.has(256) && !lengths.has(1024));
}

#[test]
fn what_is_no_length_is_not_there() {
    for length in [0, 1, 64, 127, 200, 2049, 2176, u32::MAX] {
        assert_eq!(Lengths::NONE.with(length), Lengths::NONE, "{length}");
        assert!(!Lengths::from_bits(u16::MAX).has(length), "{length}");
    }
    assert!(Lengths::from_bits(u16::MAX).has(2048));
}

/// A VM cannot tell CPUs apart by lengths beyond its own; a length that one CPU lacks below it does.
#[test]
fn cpus_are_alike_up_to_a_vms_length() {
    let longer = Lengths::from_bits(0xffff);
    let powers = [128, 256, 512];
    let powers = powers.into_iter().fold(Lengths::NONE, Lengths::with);
    assert!(FOUR.agree(longer, 512) && FOUR.agree(powers, 256));
    // 384 bits are 384 on one of the two, and 256 on the other.
    assert!(!FOUR.agree(powers, 512));
    assert!(!FOUR.agree(longer, 1024));
    assert!(!FOUR.agree(Lengths::NONE, 128));
    assert!(longer.agree(longer, 2048));
    // A VM without SVE cares for none.
    assert!(FOUR.agree(Lengths::NONE, 0));
}

#[test]
fn the_fields_and_sizes_are_those_of_the_architecture() {
    assert_eq!([128, 256, 2048].map(zcr), [0, 1, 15]);
    assert_eq!(size(128), 16 + 512 + 17 * 2);
    assert_eq!(size(2048), 16 + 8192 + 17 * 32);
}
