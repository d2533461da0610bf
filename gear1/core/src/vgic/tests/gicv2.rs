//! List registers of a GICv2: groups, and SGIs by sender.

use super::fake::Fake;
use super::{BYTE, WORD, field_write, id, ready, v};
use crate::vgic::{GicVersion, Kicks, LrState, VmGic, only_target_of_sgir, sgir_to_itself};

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

/// G1-GIC-007: the list register that held an SGI last is filled again only if one sender alone sent it since,
/// the same or another: what two have sent comes twice, and each time says from whom (IHI 0048,
/// 3.2.3).
#[test]
fn a_repeated_gicv2_sgi_comes_once_for_each_sender() {
    for senders in [[1, 2], [2, 1], [1, 0], [0, 2]] {
        let mut gic = ready(GicVersion::V2, 3, 32);
        let mut cpu = Fake::new(4);
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

/// G1-GIC-004: what a write of GICD_SGIR addresses alone (IHI 0048, 4.3.15). A list may name a vCPU
/// that the VM does not have.
#[test]
fn the_only_target_of_a_gicv2_sgi() {
    for (value, only) in [
        (1 << 16 | 7, Some((0, 7))),
        (1 << 23 | 0x8015, Some((7, 5))),
        (3 << 16, None),
        (0, None),
        // All but the writer, the writer, and reserved.
        (1 << 24 | 1 << 16 | 3, None),
        (2 << 24 | 2 << 16 | 3, Some((1, 3))),
        (3 << 24 | 1 << 16 | 3, None),
    ] {
        assert_eq!(only_target_of_sgir(v(1), value), only, "{value:#x}");
        let own = only.and_then(|(index, sgi)| (index == 1).then_some(sgi));
        assert_eq!(sgir_to_itself(v(1), value), own, "{value:#x}");
    }
}

/// SGIs that were posted without the VM's lock are those of GICD_SGIR; one that has no sender any
/// more is nothing.
#[test]
fn posted_gicv2_sgis_come_from_their_senders() {
    let mut gic = ready(GicVersion::V2, 3, 32);
    let mut cpu = Fake::new(4);
    let senders = |sgi| if sgi == 7 { 0b110 } else { 0 };
    assert!(
        gic.post_sgis_of(v(0), 1 << 7 | 1 << 9, senders)
            .contains(v(0))
    );
    assert_eq!(gic.post_sgis_of(v(0), 1 << 9, senders), Kicks::NONE);
    for sender in [1, 2] {
        let _ = gic.flush(v(0), &mut cpu);
        assert_eq!(cpu.acknowledge(), Some((id(7), sender)));
        cpu.end();
    }
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.acknowledge(), None);
}

/// GICD_SGIR: SGI 7 to vCPU 0.
fn send(gic: &mut VmGic, from: usize) {
    let _ = gic.distributor_write(v(from), 0xf00, WORD, 1 << 16 | 7);
}

/// Lets two SPIs of higher priority take both list registers, one after the other, while SGI 7 is
/// active: the guest serves both.
fn interrupt_the_sgi(gic: &mut VmGic, cpu: &mut Fake) {
    for (intid, priority) in [(32, 0x40), (33, 0x20)] {
        let _ = gic.distributor_write(v(0), 0x400 + u64::from(intid), BYTE, priority);
        let _ = gic.distributor_write(v(0), 0x800 + u64::from(intid), BYTE, 1);
        let _ = field_write(gic, v(0), SET_PENDING, 1, 1 << (intid - 32));
        let _ = gic.flush(v(0), cpu);
        assert_eq!(cpu.acknowledge(), Some((id(intid), 0)));
    }
    assert_eq!(cpu.find(7), None);
}

/// Returns state and sender of SGI 7 in its list register.
fn state_and_sender(cpu: &Fake) -> Option<(LrState, u8)> {
    cpu.find(7).map(|lr| (lr.state, lr.source))
}

/// G1-GIC-017: the guest's end of an SGI finds the list register by INTID and sender (IHI 0048,
/// 4.4.5 and 5.5), so an SGI that is active keeps the sender when others take its list register.
#[test]
fn an_active_gicv2_sgi_gets_its_list_register_back_with_its_sender() {
    for (sender, next) in [
        (2, None),
        (2, Some(1)),
        (1, Some(2)),
        (1, Some(0)),
        (0, Some(1)),
    ] {
        let mut gic = ready(GicVersion::V2, 3, 32);
        let mut cpu = Fake::new(2);
        send(&mut gic, usize::from(sender));
        let _ = gic.flush(v(0), &mut cpu);
        assert_eq!(cpu.acknowledge(), Some((id(7), sender)));
        interrupt_the_sgi(&mut gic, &mut cpu);
        if let Some(next) = next {
            send(&mut gic, usize::from(next));
        }
        assert_eq!(cpu.end(), Some((id(33), true)));
        let _ = gic.flush(v(0), &mut cpu);
        assert_eq!(
            state_and_sender(&cpu),
            Some((LrState::Active, sender)),
            "from {sender}, then {next:?}"
        );
        assert_eq!(cpu.end(), Some((id(32), true)));
        assert_eq!(cpu.end(), Some((id(7), true)));
        let _ = gic.flush(v(0), &mut cpu);
        assert_eq!(cpu.acknowledge(), next.map(|next| (id(7), next)));
    }
}

/// G1-GIC-017: likewise when its vCPU is unloaded, as often as that comes.
#[test]
fn an_active_gicv2_sgi_keeps_its_sender_while_its_vcpu_is_unloaded() {
    let mut gic = ready(GicVersion::V2, 3, 32);
    let mut cpu = Fake::new(2);
    send(&mut gic, 2);
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.acknowledge(), Some((id(7), 2)));
    for next in [0, 1] {
        let _ = gic.save(v(0), &mut cpu);
        assert_eq!(state_and_sender(&cpu), None);
        send(&mut gic, next);
        let _ = gic.flush(v(0), &mut cpu);
        assert_eq!(state_and_sender(&cpu), Some((LrState::Active, 2)));
    }
    assert_eq!(cpu.end(), Some((id(7), true)));
    for next in [0, 1] {
        let _ = gic.flush(v(0), &mut cpu);
        assert_eq!(cpu.acknowledge(), Some((id(7), next)));
        assert_eq!(cpu.end(), Some((id(7), true)));
    }
}

/// G1-GIC-012, G1-GIC-017: an SGI that the guest ended without list register comes from the next
/// sender, and keeps that one.
#[test]
fn a_gicv2_sgi_that_ended_without_list_register_comes_from_the_next_sender() {
    let mut gic = ready(GicVersion::V2, 3, 32);
    let mut cpu = Fake::new(2);
    send(&mut gic, 2);
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.acknowledge(), Some((id(7), 2)));
    interrupt_the_sgi(&mut gic, &mut cpu);
    send(&mut gic, 1);
    // All in a row: the maintenance interrupt comes too late for the SGI.
    for (intid, was_listed) in [(33, true), (32, true), (7, false)] {
        assert_eq!(cpu.end(), Some((id(intid), was_listed)));
    }
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(state_and_sender(&cpu), Some((LrState::Pending, 1)));
    assert_eq!(cpu.acknowledge(), Some((id(7), 1)));
    interrupt_the_sgi(&mut gic, &mut cpu);
    assert_eq!(cpu.end(), Some((id(33), true)));
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(state_and_sender(&cpu), Some((LrState::Active, 1)));
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
