use super::{Call, PSCI_VERSION, SMCCC_VERSION, affinity, decode, ret, target_index, vmpidr};

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
        decode(0x8400_0004, wide & !1, wide, 0),
        // Level 0xffff_ffff_0000_0001 would be refused.
        Call::Constant(affinity::ON)
    );
    assert_eq!(
        decode(0x8400_000c, wide, wide, 0),
        Call::PowerDown {
            entry: 1,
            context: 1,
            system: false
        }
    );
}

/// G1-PSCI-003.
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

/// G1-PSCI-003: what DEN 0022 lets an implementation leave out, and this one does.
#[test]
fn what_is_left_out_is_not_answered() {
    let out = [
        0x8400_0005_u64, // MIGRATE
        0xc400_0005,
        0x8400_0007, // MIGRATE_INFO_UP_CPU
        0xc400_0007,
        0x8400_000b, // CPU_FREEZE
        0x8400_000f, // PSCI_SET_SUSPEND_MODE
        0x8400_0010, // PSCI_STAT_RESIDENCY
        0xc400_0010,
        0x8400_0011, // PSCI_STAT_COUNT
        0xc400_0011,
        0x8400_0013, // MEM_PROTECT
        0x8400_0014, // MEM_PROTECT_CHECK_RANGE
        0xc400_0014,
        0xc400_0000, // no 64-bit form exists
        0xc400_0002,
        0xc400_0006,
        0xc400_0008,
        0xc400_0009,
        0xc400_000a,
    ];
    for id in out {
        assert_eq!(decode(id, 0, 0, 0), Call::Other, "{id:#x}");
        assert_eq!(constant(decode(0x8400_000a, id, 0, 0)), ret::NOT_SUPPORTED);
    }
}

/// G1-PSCI-006.
#[test]
fn a_power_state_is_standby_or_power_down() {
    assert_eq!(decode(0x8400_0001, 0, 0, 0), Call::Standby);
    assert_eq!(decode(0xc400_0001, 0x0300_ffff, 5, 6), Call::Standby);
    assert_eq!(
        decode(0xc400_0001, 0x0301_ffff, 0x4000_0000, 7),
        Call::PowerDown {
            entry: 0x4000_0000,
            context: 7,
            system: false
        }
    );
    assert_eq!(
        decode(0xc400_000e, 0x4000_0000, 7, 9),
        Call::PowerDown {
            entry: 0x4000_0000,
            context: 7,
            system: true
        }
    );
    for bit in [17, 23, 26, 31] {
        assert_eq!(
            constant(decode(0xc400_0001, 1 << bit, 0, 0)),
            ret::INVALID_PARAMETERS,
            "bit {bit}"
        );
    }
}

/// G1-PSCI-005.
#[test]
fn affinity_info_knows_the_levels_above_a_cpu() {
    assert_eq!(
        decode(0xc400_0004, 7, 0, 0),
        Call::AffinityInfo { target: 7 }
    );
    // (level, target, answer): fields below the level are ignored.
    let cases = [
        (1, 0, affinity::ON),
        (1, 0xff, affinity::ON),
        (1, 0x100, ret::INVALID_PARAMETERS),
        (2, 0xffff, affinity::ON),
        (2, 0x1_0000, ret::INVALID_PARAMETERS),
        (3, 0xff_ffff, affinity::ON),
        (3, 1 << 32, ret::INVALID_PARAMETERS),
        (3, 1 << 24, ret::INVALID_PARAMETERS),
        (3, 1 << 63, ret::INVALID_PARAMETERS),
        (4, 0, ret::INVALID_PARAMETERS),
        (u64::MAX, 0, ret::INVALID_PARAMETERS),
    ];
    for (level, target, answer) in cases {
        let got = constant(decode(0xc400_0004, target, level, 0));
        assert_eq!(got, answer, "{target:#x} at level {level}");
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

/// G1-PSCI-002.
#[test]
fn a_target_is_an_exact_affinity() {
    assert_eq!(target_index(1, 2), Some(1));
    for mpidr in [2, 8, 0x100, 0x1_0000, 1 << 31, 1 << 32, u64::MAX] {
        assert_eq!(target_index(mpidr, 2), None, "{mpidr:#x}");
    }
    assert_eq!(target_index(vmpidr(1) & !(1 << 31), 2), Some(1));
}

/// G1-TIM-007.
#[test]
fn stolen_time_is_found_by_discovery() {
    let answer = |id: u64, of: u64| constant(decode(id, of, 0, 0));
    assert_eq!(answer(0x8000_0001, 0xc500_0020), ret::SUCCESS);
    assert_eq!(answer(0xc500_0020, 0xc500_0020), ret::SUCCESS);
    assert_eq!(answer(0xc500_0020, 0xc500_0022), ret::NOT_SUPPORTED);
    assert_eq!(
        decode(0xc500_0020, 0xc500_0021, 0, 0),
        Call::StolenTime { address: false }
    );
    assert_eq!(
        decode(0xc500_0021, 0, 0, 0),
        Call::StolenTime { address: true }
    );
    // There is no 32-bit form.
    assert_eq!(decode(0x8500_0021, 0, 0, 0), Call::Other);
}
