//! Requirements: G1-CPU-007, G1-CPU-008.

use super::*;

#[test]
fn debug_registers_are_told_apart() {
    let point = |bank, number| Some(DebugReg::Point { bank, number });
    let of = |crn, crm, op2| DebugReg::from_id(SysregId::new(2, 0, crn, crm, op2));
    assert_eq!(of(0, 0, 4), point(0, 0));
    assert_eq!(of(0, 15, 5), point(1, 15));
    assert_eq!(of(0, 3, 6), point(2, 3));
    assert_eq!(of(0, 2, 7), point(3, 2));
    assert_eq!(of(0, 2, 2), Some(DebugReg::Control));
    assert_eq!(of(1, 0, 4), Some(DebugReg::Lock));
    assert_eq!(of(1, 1, 4), Some(DebugReg::LockStatus));
    // MDCCINT, OSDTRTX, OSDLR, DBGPRCR, DBGCLAIMSET, MDCCSR_EL0.
    for (op1, crn, crm, op2) in [
        (0, 0, 2, 0),
        (0, 0, 3, 2),
        (0, 1, 3, 4),
        (0, 1, 4, 4),
        (0, 7, 8, 6),
        (3, 0, 1, 0),
    ] {
        let id = SysregId::new(2, op1, crn, crm, op2);
        assert_eq!(DebugReg::from_id(id), None, "{id:?}");
    }
}

#[test]
fn a_counter_is_reached_by_number_and_by_selection() {
    for number in 0..31_u8 {
        let counter = u32::from(number);
        let (crm, op2) = (counter >> 3, counter & 7);
        let count = SysregId::new(3, 3, 14, 8 + crm, op2);
        assert_eq!(PmuReg::from_id(count, 0), Some(PmuReg::Pmevcntr(number)));
        let kind = SysregId::new(3, 3, 14, 12 + crm, op2);
        assert_eq!(PmuReg::from_id(kind, 0), Some(PmuReg::Pmevtyper(number)));
        let selected = |op2| PmuReg::from_id(SysregId::new(3, 3, 9, 13, op2), 32 + number);
        assert_eq!(selected(1), Some(PmuReg::Pmevtyper(number)));
        assert_eq!(selected(2), Some(PmuReg::Pmevcntr(number)));
    }
    let filter = SysregId::new(3, 3, 14, 15, 7);
    assert_eq!(PmuReg::from_id(filter, 0), Some(PmuReg::Pmevtyper(31)));
    assert_eq!(PmuReg::from_id(SysregId::new(3, 3, 14, 11, 7), 0), None);
}

#[test]
fn el2_never_counts() {
    assert_eq!(TYPE_GUEST & (1 << 27 | 1 << 24), 0);
    assert_eq!(
        !MDSCR_GUEST & (1 << 14 | 1 << 29 | 1 << 30),
        1 << 14 | 3 << 29
    );
}

#[test]
fn every_register_of_the_pmu_is_known() {
    let known = |op1, crn, crm, op2| PmuReg::from_id(SysregId::new(3, op1, crn, crm, op2), 0);
    let count = |op1, crm| {
        (0..8)
            .filter(|op2| known(op1, 9, crm, *op2).is_some())
            .count()
    };
    assert_eq!(
        (count(3, 12), count(3, 13), count(3, 14), count(0, 14)),
        (8, 3, 2, 3)
    );
    assert_eq!(known(0, 9, 14, 6), Some(PmuReg::Pmmir));
    assert_eq!(known(0, 9, 12, 0), None);
}
