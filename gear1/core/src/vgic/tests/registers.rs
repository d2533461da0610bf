//! The guest's registers, one by one. Sections are those of IHI 0069 (GICv3) and IHI 0048 (GICv2).

use super::{BYTE, DOUBLEWORD, HALF, SGI, WORD, field_read, field_write, id, ready, v};
use crate::vgic::{FIRST_LPI, GicVersion, VmGic, is_interrupt, only_target, shows_list_registers};
use std::boxed::Box;

fn fresh(version: GicVersion, vcpus: usize, spis: usize) -> Box<VmGic> {
    let mut gic = Box::new(VmGic::new());
    gic.configure(version, vcpus, spis);
    gic
}

fn v3() -> Box<VmGic> {
    fresh(GicVersion::V3, 2, 256)
}

/// 12.9.4 GICD_CTLR: DS and ARE are RAO/WI, the group enables are kept, RWP is never set.
#[test]
fn gicd_ctlr() {
    let mut gic = v3();
    assert_eq!(gic.distributor_read(v(0), 0, WORD), 0x50);
    let _ = gic.distributor_write(v(0), 0, WORD, 0xffff_ffff);
    assert_eq!(gic.distributor_read(v(1), 0, WORD), 0x53);
    let _ = gic.distributor_write(v(0), 0, BYTE, 0);
    assert_eq!(gic.distributor_read(v(0), 0, WORD), 0x53);
    let mut gic = fresh(GicVersion::V2, 2, 256);
    let _ = gic.distributor_write(v(0), 0, WORD, 0xffff_ffff);
    assert_eq!(gic.distributor_read(v(0), 0, WORD), 3);
}

/// G1-GIC-001: 12.9.38 GICD_TYPER, 12.9.10 GICD_IIDR, 12.9.31 GICD_PIDR2; IHI 0048, 4.3.2.
#[test]
fn gicd_identification() {
    let gic = v3();
    let typer = gic.distributor_read(v(0), 4, WORD);
    assert_eq!(typer & 0x1f, 8, "ITLinesNumber for 256 SPIs");
    assert_eq!(typer >> 19 & 0x1f, 9, "IDbits");
    assert_eq!(
        typer & (1 << 10 | 1 << 16 | 1 << 17 | 1 << 24 | 1 << 26),
        0,
        "SecurityExtn, MBIS, LPIS, A3V, RSS"
    );
    assert_eq!(typer >> 25 & 1, 1, "No1N");
    assert_eq!(gic.distributor_read(v(0), 8, WORD) & 0xfff, 0x43b);
    assert_eq!(gic.distributor_read(v(0), 0xffe8, WORD) >> 4, 3);
    assert_eq!(gic.distributor_read(v(0), 0xfffc, WORD), 0xb1);
    assert_eq!(gic.distributor_read(v(0), 0xffe8, BYTE), 0);
    let gic = fresh(GicVersion::V2, 3, 256);
    assert_eq!(gic.distributor_read(v(0), 4, WORD), 2 << 5 | 8);
    assert_eq!(gic.distributor_read(v(0), 0xfe8, WORD) >> 4, 2);
    assert_eq!(gic.distributor_read(v(0), 0xffe8, WORD), 0);
    assert_eq!(
        fresh(GicVersion::V3, 1, 1000).distributor_read(v(0), 4, WORD) & 0x1f,
        15
    );
    assert_eq!(
        fresh(GicVersion::V3, 1, 0).distributor_read(v(0), 4, WORD) & 0x1f,
        0
    );
}

/// 12.9.7, 12.9.5, 12.9.26, 12.9.24, 12.9.25, 12.9.23: set and clear twins; 12.11 for the SGI
/// frame.
#[test]
fn set_and_clear_twins() {
    let mut gic = v3();
    for index in [0, 1, 8] {
        for (set, clear) in [(0x100, 0x180), (0x200, 0x280), (0x300, 0x380)] {
            assert_eq!(field_read(&gic, v(0), set, index), 0);
            let _ = field_write(&mut gic, v(0), set, index, 0x00f0_000f);
            let _ = field_write(&mut gic, v(0), set, index, 0x0100_0000);
            assert_eq!(field_read(&gic, v(0), clear, index), 0x01f0_000f);
            let _ = field_write(&mut gic, v(0), clear, index, 0x0000_0003);
            assert_eq!(field_read(&gic, v(0), set, index), 0x01f0_000c);
            let _ = field_write(&mut gic, v(0), clear, index, u32::MAX);
            assert_eq!(field_read(&gic, v(0), set, index), 0);
        }
    }
}

/// 12.9.9 GICD_IGROUPR, 12.11.7 GICR_IGROUPR0; 12.9.8 GICD_IGRPMODR and 12.9.29 GICD_NSACR are
/// RAZ/WI with DS = 1.
#[test]
fn groups() {
    let mut gic = v3();
    for index in [0, 3] {
        let _ = field_write(&mut gic, v(0), 0x80, index, 0x8000_0001);
        assert_eq!(field_read(&gic, v(0), 0x80, index), 0x8000_0001);
        for base in [0xd00, 0xe00] {
            let _ = field_write(&mut gic, v(0), base, index, u32::MAX);
            assert_eq!(field_read(&gic, v(0), base, index), 0);
        }
    }
    assert_eq!(field_read(&gic, v(1), 0x80, 0), 0, "banked by vCPU");
    assert_eq!(field_read(&gic, v(1), 0x80, 3), 0x8000_0001, "shared");
}

/// 12.9.20 GICD_IPRIORITYR: bytes and words, five bits implemented.
#[test]
fn priorities() {
    let mut gic = v3();
    let _ = gic.distributor_write(v(0), 0x400 + 33, BYTE, 0xff);
    let _ = gic.distributor_write(v(0), 0x400 + 36, WORD, 0x0123_4567_89ab_cdef);
    assert_eq!(gic.distributor_read(v(0), 0x400 + 33, BYTE), 0xf8);
    assert_eq!(gic.distributor_read(v(0), 0x420, WORD), 0xf800);
    assert_eq!(gic.distributor_read(v(0), 0x424, WORD), 0x88a8_c8e8);
    assert_eq!(gic.distributor_read(v(0), 0x426, BYTE), 0xa8);
    for (offset, size) in [(0x424, HALF), (0x420, DOUBLEWORD), (0x425, WORD)] {
        assert_eq!(gic.distributor_read(v(0), offset, size), 0);
        let _ = gic.distributor_write(v(0), offset, size, u64::MAX);
    }
    assert_eq!(gic.distributor_read(v(0), 0x424, WORD), 0x88a8_c8e8);
    let _ = gic.redistributor_write(v(1), SGI + 0x400 + 27, BYTE, 0x80);
    assert_eq!(gic.redistributor_read(v(1), SGI + 0x418, WORD), 0x80 << 24);
    assert_eq!(gic.redistributor_read(v(0), SGI + 0x418, WORD), 0);
}

/// 12.9.7 GICD_ICFGR: two bits an interrupt, the upper one counts; SGIs are always edge-triggered.
#[test]
fn configuration() {
    let mut gic = v3();
    assert_eq!(gic.redistributor_read(v(0), SGI + 0xc00, WORD), 0xaaaa_aaaa);
    let _ = gic.redistributor_write(v(0), SGI + 0xc00, WORD, 0);
    assert_eq!(gic.redistributor_read(v(0), SGI + 0xc00, WORD), 0xaaaa_aaaa);
    let _ = gic.redistributor_write(v(0), SGI + 0xc04, WORD, 0x8000_0003);
    assert_eq!(gic.redistributor_read(v(0), SGI + 0xc04, WORD), 0x8000_0002);
    for (index, value) in [(2, 0xffff_ffff_u32), (3, 0x5555_5555), (17, 0x1234_5678)] {
        let _ = gic.distributor_write(v(0), 0xc00 + 4 * index, WORD, value.into());
        assert_eq!(
            gic.distributor_read(v(0), 0xc00 + 4 * index, WORD),
            u64::from(value & 0xaaaa_aaaa)
        );
    }
}

/// 12.9.22 GICD_IROUTER. G1-GIC-010.
#[test]
fn routes() {
    let mut gic = ready(GicVersion::V3, 2, 256);
    let at = |intid: u64| 0x6000 + 8 * intid;
    assert_eq!(gic.distributor_read(v(0), at(32), DOUBLEWORD), 0);
    let _ = gic.distributor_write(v(0), at(40), DOUBLEWORD, 1);
    let _ = gic.distributor_write(v(0), at(41), WORD, 1);
    let _ = gic.distributor_write(v(0), at(41) + 4, WORD, 0xff);
    let _ = gic.distributor_write(v(0), at(287), DOUBLEWORD, 1 << 31 | 1);
    for intid in [40, 41, 287] {
        assert_eq!(gic.distributor_read(v(0), at(intid), DOUBLEWORD), 1);
        assert_eq!(gic.distributor_read(v(0), at(intid), WORD), 1);
        assert_eq!(
            gic.distributor_read(v(0), at(intid) + 4, WORD),
            0,
            "A3V = 0"
        );
    }
    assert_eq!(gic.set_line(v(0), id(40), true).mask(), 0b10);
    // To a PE that the VM lacks, and to one that cannot be.
    for (affinity, seen) in [(5, 5), (0x0001_0000, 0xff), (0xffff, 0xff)] {
        let _ = gic.distributor_write(v(0), at(42), DOUBLEWORD, affinity);
        assert_eq!(gic.distributor_read(v(0), at(42), DOUBLEWORD), seen);
        assert_eq!(gic.set_line(v(0), id(42), true).mask(), 0);
        assert_eq!(field_read(&gic, v(0), 0x200, 1), 1 << 8 | 1 << 10);
        assert_eq!(gic.set_line(v(0), id(42), false).mask(), 0);
    }
    let _ = gic.set_line(v(0), id(42), true);
    assert_eq!(
        gic.distributor_write(v(0), at(42), DOUBLEWORD, 0).mask(),
        0b01
    );
    // SGIs and PPIs have none, nor have SPIs that are not there.
    for intid in [0, 31, 288, 1019] {
        let _ = gic.distributor_write(v(0), at(intid), DOUBLEWORD, 1);
        assert_eq!(gic.distributor_read(v(0), at(intid), DOUBLEWORD), 0);
    }
    assert_eq!(gic.distributor_read(v(0), at(40), BYTE), 0);
    assert_eq!(gic.distributor_read(v(0), at(40) + 4, DOUBLEWORD), 0);
}

/// G1-GIC-002: reserved and absent bits read as zero, whatever is written anywhere.
#[test]
fn reserved_is_raz_wi() {
    let mut gic = fresh(GicVersion::V3, 2, 64);
    for offset in (0x10..0x1_0000).step_by(4) {
        for size in [BYTE, HALF, WORD, DOUBLEWORD] {
            let _ = gic.distributor_write(v(0), offset, size, u64::MAX);
            let _ = gic.redistributor_write(v(0), offset, size, u64::MAX);
        }
    }
    let is_there = |offset: u64| match offset {
        0x080..=0x3ff => matches!(offset & 0x7f, 4..=8),
        0x400..=0x7ff => matches!(offset, 0x420..=0x45f),
        0xc00..=0xcff => matches!(offset, 0xc08..=0xc17),
        0x6000..=0x7fff => matches!(offset, 0x6100..=0x62ff),
        0xffd0..=0xffff => true,
        _ => false,
    };
    for offset in (0x10..0x1_0000)
        .step_by(4)
        .filter(|offset| !is_there(*offset))
    {
        for size in [BYTE, HALF, WORD, DOUBLEWORD] {
            assert_eq!(gic.distributor_read(v(0), offset, size), 0, "{offset:#x}");
        }
    }
    for offset in (0x18..0xffd0).step_by(4) {
        assert_eq!(gic.redistributor_read(v(0), offset, WORD), 0, "{offset:#x}");
    }
    // Beyond the SPIs of this VM nothing can become pending.
    assert!(gic.set_line(v(0), id(96), true).is_empty());
    assert!(gic.inject_hw(v(0), id(96)).is_empty());
    assert!(!gic.hw_active(v(0), id(96)));
}

/// 12.10: GICR_CTLR, IIDR, TYPER, WAKER, PROPBASER, PENDBASER, PIDR2.
#[test]
fn redistributor_frame() {
    let mut gic = v3();
    for number in 0..2 {
        let last = u64::from(number == 1) << 4;
        let typer = (number as u64) << 32 | (number as u64) << 8 | last;
        assert_eq!(gic.redistributor_read(v(number), 8, DOUBLEWORD), typer);
        assert_eq!(
            gic.redistributor_read(v(number), 8, WORD),
            typer & 0xffff_ffff
        );
        assert_eq!(gic.redistributor_read(v(number), 12, WORD), typer >> 32);
    }
    assert_eq!(gic.redistributor_read(v(0), 0, WORD), 0);
    assert_eq!(gic.redistributor_read(v(0), 4, WORD) & 0xfff, 0x43b);
    assert_eq!(gic.redistributor_read(v(0), 0xffe8, WORD) >> 4, 3);
    assert_eq!(gic.redistributor_read(v(0), 0x14, WORD), 0b110);
    let _ = gic.redistributor_write(v(0), 0x14, WORD, 0);
    assert_eq!(gic.redistributor_read(v(0), 0x14, WORD), 0);
    let _ = gic.redistributor_write(v(0), 0x14, WORD, 0b10);
    assert_eq!(gic.redistributor_read(v(0), 0x14, WORD), 0b110);
    for offset in [0x70, 0x78] {
        let _ = gic.redistributor_write(v(0), offset, DOUBLEWORD, u64::MAX);
        assert_eq!(gic.redistributor_read(v(0), offset, DOUBLEWORD), 0);
    }
}

/// 12.2.20 ICC_SGI1R_EL1: writes that name one vCPU.
#[test]
fn sgis_for_one_alone() {
    assert_eq!(only_target(5 << 24 | 0b100), Some((2, 5)));
    assert_eq!(only_target(15 << 24 | 0x8000), Some((15, 15)));
    for others in [0, 0b11, 1 << 40 | 1, 1 << 16 | 1, 1 << 32 | 1, 1 << 48 | 1] {
        assert_eq!(only_target(others), None, "{others:#x}");
    }
}

/// 12.2.20 ICC_SGI1R_EL1. G1-GIC-004.
#[test]
fn sgi1r_targets() {
    let mut gic = ready(GicVersion::V3, 4, 32);
    let sgi3 = 3 << 24;
    for (value, targets) in [
        (0b0001, 0b0001),
        (0b1010, 0b1010),
        (0xffff, 0b1111),
        (1 << 40, 0b1101),
        (1 << 40 | 0xffff, 0b1101),
        (1 << 16 | 0b1111, 0),
        (1 << 32 | 0b1111, 0),
        (1 << 48 | 0b1111, 0),
        (0, 0),
    ] {
        assert_eq!(gic.sgi1r(v(1), sgi3 | value).mask(), targets, "{value:#x}");
        for vcpu in 0..4 {
            let pending = u32::from(targets >> vcpu & 1 != 0) << 3;
            assert_eq!(field_read(&gic, v(vcpu), 0x200, 0), pending);
            let _ = field_write(&mut gic, v(vcpu), 0x280, 0, u32::MAX);
        }
    }
    // ICC_SGI0R_EL1 reaches SGIs in Group 0 only, and those are not delivered.
    assert!(gic.sgi0r(v(1), sgi3 | 1).is_empty());
    assert_eq!(field_read(&gic, v(0), 0x200, 0), 0);
    let _ = field_write(&mut gic, v(0), 0x80, 0, !(1 << 3));
    assert!(gic.sgi0r(v(1), sgi3 | 1).is_empty());
    assert_eq!(field_read(&gic, v(0), 0x200, 0), 1 << 3);
}

/// IHI 0048, 4.3.12 GICD_ITARGETSR.
#[test]
fn gicv2_targets() {
    let mut gic = fresh(GicVersion::V2, 3, 64);
    assert_eq!(gic.distributor_read(v(2), 0x800, WORD), 0x0404_0404);
    assert_eq!(gic.distributor_read(v(1), 0x81f, BYTE), 2);
    let _ = gic.distributor_write(v(0), 0x820, WORD, 0xff01_0200);
    assert_eq!(gic.distributor_read(v(0), 0x820, WORD), 0x0701_0200);
    let _ = gic.distributor_write(v(0), 0x821, BYTE, 4);
    assert_eq!(gic.distributor_read(v(0), 0x820, WORD), 0x0701_0400);
    let mut gic = ready(GicVersion::V2, 1, 64);
    let _ = gic.distributor_write(v(0), 0x820, WORD, 0);
    assert_eq!(
        gic.distributor_read(v(0), 0x820, WORD),
        0,
        "RAZ/WI with one CPU"
    );
    assert_eq!(gic.set_line(v(0), id(32), true).mask(), 1);
}

/// IHI 0048, 4.3.15 to 4.3.17: GICD_SGIR, GICD_CPENDSGIR, GICD_SPENDSGIR; SGIs in GICD_ISPENDR0 are
/// read-only.
#[test]
fn gicv2_sgis() {
    let mut gic = ready(GicVersion::V2, 3, 32);
    for (filter, targets) in [(0_u64, 0b110), (1, 0b101), (2, 0b010), (3, 0)] {
        let value = filter << 24 | 0b1110 << 16 | 9;
        assert_eq!(
            gic.distributor_write(v(1), 0xf00, WORD, value).mask(),
            targets
        );
        for vcpu in 0..3 {
            let expected = if targets >> vcpu & 1 != 0 { 1 << 1 } else { 0 };
            assert_eq!(gic.distributor_read(v(vcpu), 0xf20 + 9, BYTE), expected);
            assert_eq!(gic.distributor_read(v(vcpu), 0xf10 + 9, BYTE), expected);
            let _ = gic.distributor_write(v(vcpu), 0x280, WORD, u64::MAX);
            assert_eq!(gic.distributor_read(v(vcpu), 0x200, WORD), expected << 8);
            let _ = gic.distributor_write(v(vcpu), 0xf18, WORD, u64::MAX);
            assert_eq!(gic.distributor_read(v(vcpu), 0x200, WORD), 0);
        }
    }
    let _ = gic.distributor_write(v(0), 0x200, WORD, u64::MAX);
    assert_eq!(gic.distributor_read(v(0), 0x200, WORD), 0xffff_0000);
    assert_eq!(gic.distributor_write(v(0), 0xf20, WORD, 0xff05).mask(), 1);
    assert_eq!(gic.distributor_read(v(0), 0xf20, WORD), 0x0705);
    assert_eq!(gic.distributor_read(v(0), 0xf00, WORD), 0);
    assert_eq!(gic.distributor_read(v(0), 0xf20, HALF), 0);
    assert_eq!(
        gic.distributor_read(v(0), 0x6100, DOUBLEWORD),
        0,
        "no GICD_IROUTER"
    );
}

#[test]
fn registers_that_show_list_registers() {
    for offset in [0x200, 0x280, 0x3fc, SGI + 0x200, SGI + 0x380, 0xf10, 0xf2c] {
        assert!(shows_list_registers(offset));
    }
    for offset in [0, 4, 0x180, 0x400, SGI + 0x100, 0x6100, 0xf00] {
        assert!(!shows_list_registers(offset));
    }
}

/// A VM that is restarted finds everything as at first.
#[test]
fn reset_forgets_everything() {
    let mut gic = ready(GicVersion::V3, 2, 64);
    let _ = gic.set_line(v(0), id(40), true);
    let _ = gic.sgi1r(v(0), 0b11);
    gic.reset();
    assert!(!gic.deliverable(v(0), 0xff) && !gic.deliverable(v(1), 0xff));
    for base in [0x80, 0x100, 0x200, 0x300] {
        assert_eq!(
            field_read(&gic, v(0), base, 0) | field_read(&gic, v(0), base, 1),
            0
        );
    }
    assert_eq!(gic.distributor_read(v(0), 0, WORD), 0x50);
    assert_eq!(gic.distributor_read(v(0), 4, WORD) & 0x1f, 2);
}

/// G1-GIC-016: priorities stay up for good if an LPI that firmware left on, or an interrupt of an
/// extended range, is taken for none.
#[test]
fn only_four_intids_are_no_interrupt() {
    let none: std::vec::Vec<u32> = (0..=0xff_ffff)
        .filter(|intid| !is_interrupt(*intid))
        .collect();
    assert_eq!(none, [1020, 1021, 1022, 1023]);
    assert!(is_interrupt(FIRST_LPI));
}
