use super::{Call, PSCI_VERSION, SMCCC_VERSION, decode, ret, target_index, vmpidr};

fn constant(call: Call) -> u64 {
    match call {
        Call::Constant(value) => value,
        other => panic!("not a constant: {other:?}"),
    }
}

#[test]
fn versions() {
    assert_eq!(constant(decode(0x8400_0000, 0, 0, 0)), PSCI_VERSION);
    assert_eq!(constant(decode(0x8000_0000, 0, 0, 0)), SMCCC_VERSION);
}

/// SMCCC 2.7: the function identifier is W0; the upper half of X0 is ignored.
#[test]
fn only_w0_names_the_function() {
    assert_eq!(decode(0xdead_beef_8400_0002, 0, 0, 0), Call::Off);
}

#[test]
fn the_32_bit_convention_drops_the_upper_halves() {
    let wide = 0xffff_ffff_0000_0001;
    assert_eq!(
        decode(0x8400_0003, wide, wide, wide),
        Call::On {
            target: 1,
            entry: 1,
            context: 1
        }
    );
    assert_eq!(
        decode(0xc400_0003, wide, 2, 3),
        Call::On {
            target: wide,
            entry: 2,
            context: 3
        }
    );
    assert_eq!(
        decode(0x8400_0004, wide, wide, 0),
        Call::AffinityInfo {
            target: 1,
            level: 1
        }
    );
}

#[test]
fn every_function_answered_is_announced_and_no_other() {
    let announced = |id: u64| constant(decode(0x8400_000a, id, 0, 0)) == ret::SUCCESS;
    for low in 0..0x30_u64 {
        for base in [0x8400_0000_u64, 0xc400_0000] {
            let answered = decode(base + low, 0, 0, 0) != Call::Other;
            assert_eq!(announced(base + low), answered, "{:#x}", base + low);
        }
    }
    assert!(announced(0x8000_0000));
    assert!(!announced(0x8600_0001));
}

#[test]
fn reserved_bits_of_a_power_state_are_refused() {
    assert_eq!(decode(0x8400_0001, 0, 0, 0), Call::Suspend);
    assert_eq!(
        decode(0xc400_0001, 0x0301_ffff, 0x4000_0000, 7),
        Call::Suspend
    );
    for bit in [17, 23, 26, 31] {
        assert_eq!(
            constant(decode(0xc400_0001, 1 << bit, 0, 0)),
            ret::INVALID_PARAMETERS,
            "bit {bit}"
        );
    }
}

#[test]
fn only_the_architectural_reset_type_exists() {
    assert_eq!(decode(0x8400_0012, 0, 5, 0), Call::SystemReset);
    assert_eq!(
        constant(decode(0xc400_0012, 1, 0, 0)),
        ret::INVALID_PARAMETERS
    );
    assert_eq!(
        constant(decode(0xc400_0012, 0x8000_0000, 0, 0)),
        ret::INVALID_PARAMETERS
    );
}

#[test]
fn what_is_not_standard_is_left_to_the_caller() {
    for id in [0x8600_0001, 0x8400_00ff, 0xc200_0000, 0] {
        assert_eq!(decode(id, 0, 0, 0), Call::Other, "{id:#x}");
    }
}

#[test]
fn a_target_is_an_exact_affinity() {
    assert_eq!(target_index(1, 2), Some(1));
    for mpidr in [2, 8, 0x100, 0x1_0000, 1 << 31, 1 << 32, u64::MAX] {
        assert_eq!(target_index(mpidr, 2), None, "{mpidr:#x}");
    }
    assert_eq!(target_index(vmpidr(1) & !(1 << 31), 2), Some(1));
}
