//! List registers of a GICv2: groups, and SGIs by sender.

use super::fake::Fake;
use super::{WORD, field_write, id, ready, v};
use crate::vgic::{GicVersion, VmGic};

const SET_PENDING: u64 = 0x200;

/// G1-GIC-013: a GICv2 guest's Group 1 is in the list register.
#[test]
fn both_groups_of_a_gicv2() {
    let mut gic = ready(GicVersion::V2, 1, 32);
    let mut cpu = Fake::new(4);
    let _ = field_write(&mut gic, v(0), 0x80, 1, 0b10);
    let _ = field_write(&mut gic, v(0), SET_PENDING, 1, 0b11);
    let _ = gic.flush(v(0), &mut cpu);
    let group1 = |number: u32| cpu.find(number).map(|lr| lr.group1);
    assert_eq!((group1(32), group1(33)), (Some(false), Some(true)));
}

#[test]
fn sgis_of_several_gicv2_senders_arrive_one_after_the_other() {
    let mut gic = ready(GicVersion::V2, 3, 32);
    let mut cpu = Fake::new(4);
    // GICD_SGIR: SGI 7 to vCPU 0 from all three (IHI 0048, 4.3.15).
    for from in 0..3 {
        assert!(
            gic.distributor_write(v(from), 0xf00, WORD, 1 << 16 | 7)
                .contains(v(0))
        );
    }
    assert_eq!(gic.distributor_read(v(0), 0xf24, WORD), 0b111 << 24);
    for expected in 0..3 {
        let _ = gic.flush(v(0), &mut cpu);
        assert_eq!(cpu.acknowledge(), Some((id(7), expected)));
        let _ = gic.sync(v(0), &mut cpu);
        assert_eq!(
            gic.distributor_read(v(0), 0xf14 + 3, 0),
            0b110 << expected & 0b111
        );
        cpu.end();
        assert_eq!(cpu.maintenance(), expected < 2);
    }
}

/// The list register that held an SGI last is filled again only if one sender alone sent it since,
/// the same or another: what two have sent comes twice, and each time says from whom (IHI 0048,
/// 3.2.3).
#[test]
fn a_repeated_gicv2_sgi_comes_once_for_each_sender() {
    for senders in [[1, 2], [2, 1], [1, 0], [0, 2]] {
        let mut gic = ready(GicVersion::V2, 3, 32);
        let mut cpu = Fake::new(4);
        let send = |gic: &mut VmGic, from: usize| {
            let _ = gic.distributor_write(v(from), 0xf00, WORD, 1 << 16 | 7);
        };
        let mut take = |gic: &mut VmGic| {
            let _ = gic.flush(v(0), &mut cpu);
            let taken = cpu.acknowledge();
            cpu.end();
            taken.map(|(intid, sender)| (intid.number(), usize::from(sender)))
        };
        // Nobody looks at the list register after the end, so that the next one may take the short
        // way.
        for _ in 0..3 {
            send(&mut gic, senders[0]);
            assert_eq!(take(&mut gic), Some((7, senders[0])));
        }
        for from in senders {
            send(&mut gic, from);
        }
        let [first, second] = senders;
        let expected = [first.min(second), first.max(second)];
        assert_eq!(
            [take(&mut gic), take(&mut gic), take(&mut gic)],
            [Some((7, expected[0])), Some((7, expected[1])), None],
            "{senders:?}"
        );
    }
}

#[test]
fn a_gicv2_interrupt_for_several_vcpus_goes_to_one() {
    let mut gic = ready(GicVersion::V2, 2, 32);
    let mut cpus = [Fake::new(4), Fake::new(4)];
    let _ = gic.distributor_write(v(0), 0x800 + 40, 0, 0b11);
    assert_eq!(gic.set_line(v(0), id(40), true).mask(), 0b11);
    let _ = gic.flush(v(1), &mut cpus[1]);
    let _ = gic.flush(v(0), &mut cpus[0]);
    assert_eq!(cpus[0].acknowledge(), None);
    // Group 0 is what a GICv2 guest uses.
    assert!(!cpus[1].find(40).unwrap().group1);
    // An unloaded interrupt goes to the other vCPU.
    assert_eq!(gic.save(v(1), &mut cpus[1]).mask(), 0b01);
    let _ = gic.flush(v(0), &mut cpus[0]);
    assert_eq!(cpus[0].acknowledge(), Some((id(40), 0)));
}
