//! Access of a real-time VM to the physical GIC, and its limits.

use super::*;

fn physical(behind: Behind) -> Fields {
    match behind {
        Behind::Physical(fields) => fields,
        other => panic!("{other:?}"),
    }
}

/// G1-RT-003.
#[test]
fn only_own_interrupts_are_in_the_mask() {
    let enable = physical(distributor(GicVersion::V3, 0x104, WORD));
    assert_eq!((enable.first, enable.count), (32, 32));
    assert_eq!(
        enable.mask(|intid| intid == 33 || intid == 63),
        1 << 1 | 1 << 31
    );
    assert_eq!(enable.mask(|_| false), 0);
    let priority = physical(distributor(GicVersion::V3, 0x424, WORD));
    assert_eq!(priority.mask(|intid| intid == 37), 0xff00);
    let byte = physical(distributor(GicVersion::V3, 0x425, BYTE));
    assert_eq!(byte.mask(|intid| intid == 37), 0xff);
    let trigger = physical(distributor(GicVersion::V2, 0xc08, WORD));
    assert!(!trigger.writable);
    assert_eq!(trigger.mask(|intid| intid == 34), 0b11 << 4);
}

/// G1-RT-003: of the private interrupts, SGIs and the EL1 timers, and the PMU's if the VM has it.
#[test]
fn gear1s_private_interrupts_are_out_of_reach() {
    let expected = 0xffff | 1 << 27 | 1 << 30;
    let private = physical(redistributor(0x1_0100, WORD));
    assert_eq!(private.mask(|intid| intid >= 32), expected);
    assert_eq!(
        physical(distributor(GicVersion::V2, 0x100, WORD)).mask(|intid| intid == 23),
        expected | 1 << 23
    );
    assert_eq!(distributor(GicVersion::V3, 0x100, WORD), Behind::Nothing);
}

/// G1-RT-003: no LPI tables, no system-wide state.
#[test]
fn nothing_else_of_the_hardware_is_reached() {
    for offset in (0..0x1_0000).step_by(4) {
        // PROPBASER, PENDBASER and all other registers of the RD frame.
        assert_eq!(redistributor(offset, WORD), Behind::Virtual);
        assert_eq!(redistributor(offset, 3), Behind::Virtual);
    }
    for offset in (0x1_0000..0x2_0000).step_by(4) {
        let fields = matches!(offset & 0xffff, 0x100..=0x103 | 0x180..=0x183 | 0x200..=0x203
            | 0x280..=0x283 | 0x300..=0x303 | 0x380..=0x383 | 0x400..=0x41f | 0xc00..=0xc07);
        let is_physical = matches!(redistributor(offset, WORD), Behind::Physical(_));
        assert_eq!(is_physical, fields, "{offset:#x}");
    }
    assert_eq!(distributor(GicVersion::V3, 0, WORD), Behind::Virtual);
    assert_eq!(distributor(GicVersion::V2, 0xf00, WORD), Behind::SendSgi);
    assert_eq!(distributor(GicVersion::V2, 0xf10, WORD), Behind::Nothing);
    assert_eq!(distributor(GicVersion::V3, 0x102, WORD), Behind::Nothing);
    assert_eq!(distributor(GicVersion::V3, 0x104, 3), Behind::Nothing);
}

/// G1-RT-004.
#[test]
fn sgis_reach_the_vms_own_cpus_only() {
    let first = VcpuIndex::new(0).unwrap();
    let (targets, sgi) = addressed(2, first, 5 << 24 | 0xffff);
    assert_eq!((targets, sgi), (Kicks::from_mask(0b11), 5));
    let elsewhere = addressed(2, first, 1 << 16 | 0b11).0;
    assert_eq!(elsewhere, Kicks::NONE);
    assert_eq!(
        addressed_v2(2, first, 0xff << 16 | 3),
        (Kicks::from_mask(0b11), 3)
    );
    assert_eq!(addressed_v2(2, first, 1 << 24).0, Kicks::from_mask(0b10));
}

#[test]
fn routes_name_a_vcpu() {
    let mut gic = VmGic::new();
    gic.configure(GicVersion::V3, 2, 64);
    let first = VcpuIndex::new(0).unwrap();
    let _ = gic.distributor_write(first, 0x6100 + 8, 3, 1);
    assert_eq!(routed(GicVersion::V3, 0x6108, 3), Some((33, 1)));
    assert_eq!(gic.route(IntId::new(33).unwrap()), VcpuIndex::new(1));
    let _ = gic.distributor_write(first, 0x6100 + 8, 3, 7 << 8);
    assert_eq!(gic.route(IntId::new(33).unwrap()), None);
    assert_eq!(gic.route(IntId::new(27).unwrap()), None);
}
