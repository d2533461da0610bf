use super::function::{FEATURES, GET_UUID, RND_32, RND_64, VERSION};
use super::ret::{INVALID_PARAMETERS, NO_ENTROPY, NOT_SUPPORTED};
use super::{Call, Results, TRIES, UUID, decode};

const ALL_ONES: u64 = u64::MAX;

fn call(function: u32, argument: u64) -> Call {
    // The upper half of X0 is not the function.
    let x0 = 0xdead_0000_0000_0000 | u64::from(function);
    decode(x0, argument).expect("a function of the service")
}

/// Asks a source that gives ones alone.
fn ones(function: u32, argument: u64) -> Results {
    call(function, argument).answer(|| Some(ALL_ONES))
}

/// Returns X1 to X3 with the lowest `bits` of the number set, bit by bit, in registers of `width`.
fn expected(bits: u64, width: u64) -> Results {
    let mut results = [0; 4];
    for bit in 0..bits {
        let register = 3 - (bit / width) as usize;
        results[register] |= 1 << (bit % width);
    }
    results
}

/// G1-CPU-016: each number of bits that fits, and no bit beside them.
#[test]
fn as_many_bits_are_random_as_are_asked_for() {
    for bits in 1..=192 {
        assert_eq!(ones(RND_64, bits), expected(bits, 64), "{bits} of 192");
    }
    for bits in 1..=96 {
        assert_eq!(ones(RND_32, bits), expected(bits, 32), "{bits} of 96");
    }
}

/// G1-CPU-016.
#[test]
fn a_number_of_bits_that_does_not_fit_is_refused_and_reads_no_source() {
    let refused = [INVALID_PARAMETERS, 0, 0, 0];
    for (function, bits) in [
        (RND_64, 0),
        (RND_64, 193),
        (RND_64, 1 << 32 | 64),
        (RND_64, u64::MAX),
        (RND_32, 0),
        (RND_32, 97),
        (RND_32, 0x8000_0000),
    ] {
        let call = call(function, bits);
        assert_eq!(call.answer(|| panic!("read")), refused);
        assert_eq!(call.pass_on(|| panic!("called")), refused);
    }
}

/// G1-CPU-016: SMC32 passes W1.
#[test]
fn the_upper_half_of_a_32_bit_argument_does_not_count() {
    let above = 0xffff_ffff_0000_0000;
    assert_eq!(ones(RND_32, above | 96), expected(96, 32));
    assert_eq!(ones(FEATURES, above | u64::from(VERSION)), [0; 4]);
}

/// G1-CPU-016: each register has a word of its own, whichever the convention.
#[test]
fn each_register_has_new_bits() {
    let mut next = 0;
    let mut count = || {
        next += 1;
        Some(next)
    };
    assert_eq!(call(RND_64, 192).answer(&mut count), [0, 1, 2, 3]);
    assert_eq!(call(RND_32, 96).answer(&mut count), [0, 4, 5, 6]);
    assert_eq!(call(RND_64, 64).answer(&mut count), [0, 0, 0, 7]);
}

/// G1-CPU-016: a source that fails is asked again, and not for ever.
#[test]
fn without_entropy_nothing_is_given() {
    let mut reads = 0;
    let mut sometimes = || {
        reads += 1;
        (reads % TRIES == 0).then_some(ALL_ONES)
    };
    assert_eq!(call(RND_64, 192).answer(&mut sometimes), expected(192, 64));
    assert_eq!(reads, 3 * TRIES);
    let mut reads = 0;
    let mut once = || {
        reads += 1;
        (reads == 1).then_some(ALL_ONES)
    };
    let nothing = [NO_ENTROPY, 0, 0, 0];
    assert_eq!(call(RND_64, 192).answer(&mut once), nothing, "no half");
    assert_eq!(reads, 1 + TRIES);
}

/// G1-CPU-016.
#[test]
fn the_service_says_what_it_has() {
    assert_eq!(ones(VERSION, 0), [0x1_0000, 0, 0, 0]);
    for function in [VERSION, FEATURES, GET_UUID, RND_32, RND_64] {
        assert_eq!(ones(FEATURES, function.into()), [0; 4]);
    }
    for function in [0, 0x8400_0000, 0x8400_0054, 0xc400_0050, 0xc400_0052] {
        assert_eq!(ones(FEATURES, function), [NOT_SUPPORTED, 0, 0, 0]);
    }
    assert_eq!(ones(GET_UUID, 0), UUID.map(u64::from));
    assert_ne!(UUID[0], u32::MAX, "which would be NOT_SUPPORTED");
    for function in [0x8400_004f, 0x8400_0054, 0xc400_0050, 0xc400_0054] {
        assert_eq!(decode(function, 64), None);
    }
}

/// G1-CPU-017: firmware is asked for what it knows, and says no more than it may.
#[test]
fn what_firmware_says_is_cut() {
    let says = |function, argument, results| call(function, argument).pass_on(|| results);
    let full = [0xdead_0000_0000_0000, ALL_ONES, ALL_ONES, ALL_ONES];
    for bits in 1..=192 {
        assert_eq!(says(RND_64, bits, full), expected(bits, 64));
    }
    for bits in 1..=96 {
        assert_eq!(says(RND_32, bits, full), expected(bits, 32));
    }
    let error = [0xffff_fffd, 1, 2, 3];
    assert_eq!(says(RND_32, 32, error), [NO_ENTROPY, 0, 0, 0]);
    let lacks = [0xffff_ffff, 1, 2, 3];
    let not_supported = [NOT_SUPPORTED, 0, 0, 0];
    assert_eq!(says(FEATURES, RND_64.into(), lacks), not_supported);
    assert_eq!(
        says(GET_UUID, 0, full),
        [0, 0xffff_ffff, 0xffff_ffff, 0xffff_ffff]
    );
}

/// G1-CPU-017: what needs no firmware calls none.
#[test]
fn the_version_and_unknown_functions_are_gear1s() {
    let none = || panic!("called");
    assert_eq!(call(VERSION, 0).pass_on(none), [0x1_0000, 0, 0, 0]);
    let unknown = call(FEATURES, 0x8400_0054).pass_on(|| panic!("called"));
    assert_eq!(unknown, [NOT_SUPPORTED, 0, 0, 0]);
}
