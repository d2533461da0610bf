//! Requirements: G1-TRC-001, G1-TRC-002.

use super::*;

const HEADER: Header = Header {
    position: 0,
    mask: 0xfff,
    first_vcpu: 0x4_0100,
    vcpu_stride: 0x1b0,
    reserved: [0; 4],
};

fn word(reference: u64, syndrome: u32) -> u64 {
    u64::from(syndrome) << 32 | reference
}

#[test]
fn a_record_names_its_vcpu() {
    let third = HEADER.first_vcpu + 2 * HEADER.vcpu_stride;
    let trap = HEADER.decode([7, word(third, 0x16 << CLASS_SHIFT)]);
    let expected = Trap {
        time: 7,
        vcpu: VcpuId::new(2),
        cause: Cause::Exception(0x16 << CLASS_SHIFT),
    };
    assert_eq!(trap, Some(expected));
    let gear2 = HEADER.decode([8, word(0, 0x15 << CLASS_SHIFT)]);
    assert_eq!(gear2.map(|trap| trap.vcpu), Some(None));
}

#[test]
fn a_reference_to_nothing_is_no_record() {
    let beyond = HEADER.first_vcpu + MAX_VCPUS as u64 * HEADER.vcpu_stride;
    for reference in [1, HEADER.first_vcpu - 1, HEADER.first_vcpu + 8, beyond] {
        assert_eq!(
            HEADER.decode([0, word(reference, 0)]),
            None,
            "{reference:#x}"
        );
    }
    // A ring that no CPU writes.
    assert_eq!(Header::default().decode([0, 1]), None);
}

#[test]
fn interrupts_are_told_from_exceptions() {
    let cause = |syndrome| HEADER.decode([0, word(0, syndrome)]).unwrap().cause;
    assert_eq!(cause(INTERRUPT | 27), Cause::Interrupt(Some(27)));
    assert_eq!(cause(u32::MAX), Cause::Interrupt(None));
    assert_eq!(cause(0x24 << 26 | 7), Cause::Exception(0x24 << 26 | 7));
}

#[test]
fn each_class_is_in_the_group_of_its_reasons() {
    let group = |class: u32, iss: u32| Cause::Exception(class << CLASS_SHIFT | iss).group();
    let groups = [
        (group(0x16, 0), ExitReason::Hvc),
        (group(0x17, 0), ExitReason::Smc),
        (group(0x16, 0), ExitReason::HypercallGear2),
        (group(0x18, 0), ExitReason::Sysreg),
        (group(0x18, 0), ExitReason::Sgi),
        (group(0x19, 0), ExitReason::Fp),
        (group(0x01, 2), ExitReason::Undefined),
        (group(0x20, 0), ExitReason::Abort),
        (group(0x24, 0), ExitReason::MmioGear2),
        (group(0x01, 0), ExitReason::Wfi),
        (group(0x01, 1), ExitReason::Wfe),
        (group(0x07, 0), ExitReason::Fp),
        (Cause::Interrupt(Some(27)).group(), ExitReason::Timer),
    ];
    for (group, reason) in groups {
        assert_eq!(group, Group::of(reason), "{}", reason.label());
    }
    assert!(Group::ALL.iter().map(|group| *group as usize).eq(0..6));
}

#[test]
fn a_reader_knows_what_it_lost() {
    let size = 0x1000;
    // All of a ring that is not full, from any cursor.
    assert_eq!(readable(0x800, size, 0), (0, 0));
    assert_eq!(readable(0x800, size, 0x700), (0x700, 0));
    // Records that the writer may be overwriting are lost.
    assert_eq!(readable(0x1000, size, 0), (0x400, 0x400));
    assert_eq!(readable(0x1010, size, 0x410), (0x410, 0));
    assert_eq!(readable(0x1010, size, 0x400), (0x410, 0x10));
    assert_eq!(readable(0x10, size, u64::MAX), (0x10, 0));
}
