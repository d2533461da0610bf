use gear1_abi::regs::NO_DEADLINE;

use super::{PhysicalReg, PhysicalTimer, deadline, nanoseconds};
use crate::syndrome::SysregId;

use PhysicalReg::{CompareValue, Control, TimerValue};

#[test]
fn the_three_registers_are_known_and_no_other() {
    let id = |op2| SysregId::new(3, 3, 14, 2, op2);
    assert_eq!(PhysicalReg::from_id(id(0)), Some(TimerValue));
    assert_eq!(PhysicalReg::from_id(id(1)), Some(Control));
    assert_eq!(PhysicalReg::from_id(id(2)), Some(CompareValue));
    assert_eq!(PhysicalReg::from_id(id(3)), None);
    assert_eq!(PhysicalReg::from_id(SysregId::new(3, 3, 14, 3, 1)), None);
}

/// G1-TIM-002: ISTATUS follows the condition, masked or not, and cannot be written.
#[test]
fn istatus_tells_the_condition() {
    let mut timer = PhysicalTimer::OFF;
    timer.write(CompareValue, 100, 0);
    timer.write(Control, u64::MAX, 0);
    assert_eq!(timer.read(Control, 99), 3);
    assert_eq!(timer.read(Control, 100), 7);
    timer.write(Control, 5, 100);
    assert_eq!(timer.read(Control, 99), 1);
    assert_eq!(timer.read(Control, 101), 5);
    timer.write(Control, 2, 101);
    assert_eq!(timer.read(Control, 101), 2);
}

/// G1-TIM-003.
#[test]
fn the_line_is_high_while_due_enabled_and_not_masked() {
    let mut timer = PhysicalTimer::new(1, 100);
    assert!(!timer.is_high(99) && timer.is_high(100) && timer.is_high(u64::MAX));
    timer.write(Control, 3, 200);
    assert!(!timer.is_high(200));
    timer.write(Control, 0, 200);
    assert!(!timer.is_high(200));
    timer.write(Control, 1, 200);
    timer.write(CompareValue, 201, 200);
    assert!(!timer.is_high(200) && timer.is_high(201));
}

/// G1-TIM-002: TVAL is a signed distance of 32 bits, and reads so.
#[test]
fn tval_is_a_signed_distance() {
    let mut timer = PhysicalTimer::new(1, 0);
    timer.write(TimerValue, 0xffff_ffff_0000_0010, 1 << 40);
    assert_eq!(timer.read(CompareValue, 0), (1 << 40) + 16);
    assert_eq!(timer.read(TimerValue, 1 << 40), 16);
    assert_eq!(timer.read(TimerValue, (1 << 40) + 17), 0xffff_ffff);
    timer.write(TimerValue, 0xffff_ffff, 1000);
    assert_eq!(timer.read(CompareValue, 0), 999);
    timer.write(TimerValue, 0x8000_0000, 0);
    assert_eq!(timer.read(CompareValue, 0), 0u64.wrapping_sub(1 << 31));
    assert!(!timer.is_high(1 << 31));
}

/// G1-TIM-004: one that is masked, or too far away to be counted, is never due.
#[test]
fn deadlines() {
    assert_eq!(PhysicalTimer::new(1, 7).deadline(), 7);
    assert_eq!(deadline(1, 7, 1000), 1007);
    assert_eq!(deadline(5, 7, 1000), 1007);
    for control in [0, 2, 3, 4, 6, 7] {
        assert_eq!(deadline(control, 7, 0), NO_DEADLINE);
    }
    assert_eq!(deadline(1, u64::MAX - 1, 2), NO_DEADLINE);
}

/// G1-TIM-007.
#[test]
fn nanoseconds_of_ticks() {
    assert_eq!(nanoseconds(62_500_000, 62_500_000), 1_000_000_000);
    assert_eq!(nanoseconds(1, 62_500_000), 16);
    assert_eq!(nanoseconds(2, 3), 666_666_666);
    assert_eq!(
        nanoseconds(u64::from(u32::MAX), u64::from(u32::MAX)),
        1_000_000_000
    );
    let century = 100 * 365 * 86_400_u64;
    assert_eq!(
        nanoseconds(century * 1_000_000_000, 1_000_000_000),
        century * 1_000_000_000
    );
    assert_eq!(nanoseconds(5, 0), 0);
}
