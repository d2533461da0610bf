//! Requirements: G1-CPU-018.

use super::{IdReg, Values, filter, is_one, value_of};
use crate::monitors::{DEBUG, PMU};
use crate::pointer_auth::POINTER_AUTH;
use crate::sve::SVE;
use crate::syndrome::SysregId;

fn field(value: u64, shift: u32) -> u64 {
    value >> shift & 0xf
}

#[test]
fn registers_are_found_by_encoding() {
    let mut values: Values = [0; 32];
    for (number, (_, place)) in (1..).zip(IdReg::ALL) {
        assert_eq!(values[place], 0, "two have the same place");
        values[place] = number;
    }
    let id = |crm, op2| value_of(SysregId::new(3, 0, 0, crm, op2), &values);
    let named = [
        (4, 0),
        (4, 1),
        (4, 4),
        (5, 0),
        (6, 0),
        (6, 1),
        (6, 2),
        (7, 0),
        (7, 1),
        (7, 2),
    ];
    for crm in 4..8 {
        for op2 in 0..8 {
            let found = named.iter().position(|one| *one == (crm, op2));
            assert_eq!(id(crm, op2), Some(found.map_or(0, |at| at as u64 + 1)));
            assert!(is_one(SysregId::new(3, 0, 0, crm, op2)));
        }
    }
    assert_eq!(id(1, 0), None, "of AArch32");
    assert!(is_one(SysregId::new(3, 0, 0, 1, 0)));
    assert_eq!(id(0, 0), None, "MIDR_EL1");
    assert!(!is_one(SysregId::new(3, 0, 0, 0, 0)));
    assert_eq!(value_of(SysregId::new(3, 1, 0, 4, 0), &values), None);
    assert_eq!(value_of(SysregId::new(3, 0, 12, 4, 0), &values), None);
    assert_eq!(value_of(SysregId::new(3, 0, 0, 8, 0), &values), None);
}

/// Nothing is shown that the CPU does not have, whatever it has.
#[test]
fn a_filter_never_adds_a_feature() {
    for (reg, _) in IdReg::ALL {
        let shown = filter(reg, 0, 5, false, 0);
        let allowed = match reg {
            // AArch64 by construction; the fewest breakpoints the architecture allows.
            IdReg::Pfr0 => 0x11,
            IdReg::Dfr0 => 1 << 12 | 1 << 20,
            _ => 0,
        };
        assert_eq!(shown, allowed, "{reg:?}");
    }
}

#[test]
fn what_is_not_virtualized_is_hidden_from_a_cpu_that_has_everything() {
    let all = 0x1111_1111_1111_1111;
    let shown = |reg| filter(reg, all, 5, true, 0);
    let pfr0 = shown(IdReg::Pfr0);
    for (shift, name) in [
        (8, "EL2"),
        (12, "EL3"),
        (28, "RAS"),
        (32, "SVE"),
        (36, "SEL2"),
        (40, "MPAM"),
        (44, "AMU"),
        (52, "RME"),
    ] {
        assert_eq!(field(pfr0, shift), 0, "{name}");
    }
    assert_eq!(field(pfr0, 24), 1, "GIC system registers");
    let pfr1 = shown(IdReg::Pfr1);
    for (shift, name) in [(8, "MTE"), (16, "MPAM_frac"), (24, "SME"), (36, "NMI")] {
        assert_eq!(field(pfr1, shift), 0, "{name}");
    }
    let dfr0 = shown(IdReg::Dfr0);
    for (shift, name) in [
        (4, "TraceVer"),
        (8, "PMUVer"),
        (32, "PMSVer"),
        (40, "TraceFilt"),
        (44, "TraceBuffer"),
        (52, "BRBE"),
    ] {
        assert_eq!(field(dfr0, shift), 0, "{name}");
    }
    let isar1 = shown(IdReg::Isar1);
    for (shift, name) in [
        (4, "APA"),
        (8, "API"),
        (24, "GPA"),
        (28, "GPI"),
        (60, "LS64"),
    ] {
        assert_eq!(field(isar1, shift), 0, "{name}");
    }
    assert_eq!(field(shown(IdReg::Isar0), 24), 0, "TME");
    assert_eq!(field(shown(IdReg::Mmfr1), 8), 0, "VH");
    assert_eq!(field(shown(IdReg::Mmfr1), 40), 0, "HCX");
    assert_eq!(field(shown(IdReg::Mmfr2), 24), 0, "NV");
    assert_eq!(field(shown(IdReg::Mmfr2), 40), 0, "FWB");
}

/// G1-CPU-015: the fields of pointer authentication, and no others, follow the manifest.
#[test]
fn pointer_authentication_is_shown_to_whom_it_is_given() {
    let all = 0x1111_1111_1111_1111;
    for (reg, _) in IdReg::ALL {
        let without = filter(reg, all, 5, true, DEBUG | PMU);
        let with = filter(reg, all, 5, true, DEBUG | PMU | POINTER_AUTH);
        let added = match reg {
            IdReg::Isar1 => 0x0000_0000_1100_0110,
            // Nothing else of ID_AA64ISAR2_EL1 is shown: WFxT among the rest.
            IdReg::Isar2 => 0x0000_0000_0100_1100,
            _ => 0,
        };
        assert_eq!((with & !without, without & added), (added, 0), "{reg:?}");
        assert_eq!(
            filter(reg, 0, 5, true, POINTER_AUTH),
            filter(reg, 0, 5, true, 0)
        );
    }
    assert_eq!(filter(IdReg::Isar2, all, 5, true, 0), 0);
}

/// G1-CPU-014: what the CPU has is shown, but for the registers of FEAT_CSV2_2 (SCXTNUM_EL1), which
/// no guest has: CSV2 is 1 at most, as under KVM.
#[test]
fn what_the_cpu_says_of_speculation_is_shown() {
    let shown = |reg, hardware, shift| field(filter(reg, hardware << shift, 5, true, 0), shift);
    for (hardware, guest) in [(0, 0), (1, 1), (2, 1), (3, 1)] {
        assert_eq!(shown(IdReg::Pfr0, hardware, 56), guest, "CSV2");
    }
    for value in 0..3 {
        assert_eq!(shown(IdReg::Pfr0, value, 60), value, "CSV3");
        assert_eq!(shown(IdReg::Pfr1, value, 4), value, "SSBS");
        assert_eq!(shown(IdReg::Mmfr1, value, 60), value, "ECBHB");
        // SCXTNUM_EL1 again, with CSV2_1p2.
        assert_eq!(shown(IdReg::Pfr1, value, 32), 0, "CSV2_frac");
    }
}

/// Two peers read past a table on a CPU with 52-bit addresses.
#[test]
fn the_physical_address_range_is_that_of_stage_2() {
    for hardware in 0..16 {
        for limit in 0..6 {
            assert_eq!(
                field(filter(IdReg::Mmfr0, hardware, limit, true, 0), 0),
                hardware.min(limit)
            );
        }
    }
}

/// G1-CPU-001: stage 2 has no LPA2, so a guest is not shown it; whether a granule is there stays.
#[test]
fn granules_are_shown_without_their_52_bit_forms() {
    let shown = |hardware| filter(IdReg::Mmfr0, hardware, 5, true, 0);
    for (hardware, guest) in [(0, 0), (1, 0), (0xf, 0xf)] {
        assert_eq!(field(shown(hardware << 28), 28), guest, "4 KiB");
    }
    for (hardware, guest) in [(0, 0), (1, 1), (2, 1)] {
        assert_eq!(field(shown(hardware << 20), 20), guest, "16 KiB");
    }
}

/// G1-CPU-001.
#[test]
fn the_debug_architecture_is_the_oldest() {
    for hardware in 6..16 {
        assert_eq!(field(filter(IdReg::Dfr0, hardware, 5, true, 0), 0), 6);
    }
    assert_eq!(
        field(filter(IdReg::Mmfr2, u64::MAX, 5, true, 0), 12),
        0,
        "IESB"
    );
}

#[test]
fn a_gicv2_guest_sees_no_gic_system_registers() {
    assert_eq!(field(filter(IdReg::Pfr0, u64::MAX, 5, false, 0), 24), 0);
}

#[test]
fn monitors_are_shown_to_who_has_them() {
    // DebugVer 9, PMUVer 9, 6 breakpoints, 4 watchpoints, 2 of them context-aware; trace and SPE.
    let hardware = 1 << 32 | 1 << 28 | 3 << 20 | 5 << 12 | 9 << 8 | 1 << 4 | 9;
    let shown = |monitors| filter(IdReg::Dfr0, hardware, 5, true, monitors);
    assert_eq!(shown(0), 1 << 20 | 1 << 12 | 6);
    assert_eq!(shown(DEBUG), 1 << 28 | 3 << 20 | 5 << 12 | 6);
    assert_eq!(shown(PMU), 1 << 20 | 1 << 12 | 6 << 8 | 6);
    assert_eq!(shown(DEBUG | PMU), shown(DEBUG) | shown(PMU) & 0xf00);
    // A PMU of another architecture than Arm's is none.
    assert_eq!(field(filter(IdReg::Dfr0, 0xf06, 5, true, PMU), 8), 0);
    assert_eq!(field(filter(IdReg::Dfr0, 0x106, 5, true, PMU), 8), 1);
}

/// SVE and what it says of itself, of a CPU that has all of it, for a VM with SVE alone. A field that
/// is not named here may stand for registers that nobody switches.
#[test]
fn sve_is_shown_to_vms_that_have_it() {
    let all = 0x1111_1111_1111_1111;
    for (reg, _) in IdReg::ALL {
        let without = filter(reg, all, 5, true, DEBUG | PMU | POINTER_AUTH);
        let with = filter(reg, all, 5, true, DEBUG | PMU | POINTER_AUTH | SVE);
        let more = match reg {
            IdReg::Pfr0 => 1 << 32,
            IdReg::Zfr0 => 0x0110_1101_0111_1011,
            _ => 0,
        };
        assert_eq!(with ^ without, more, "{reg:?}");
        assert_eq!(without & more, 0, "{reg:?}");
        assert_eq!(
            filter(reg, 0, 5, true, SVE),
            filter(reg, 0, 5, true, 0),
            "{reg:?}"
        );
    }
}
