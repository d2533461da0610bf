//! Contents of list registers, case by case.

use std::vec::Vec;

use super::fake::Fake;
use super::{SGI, WORD, field_read, field_write, id, ready, v};
use crate::vgic::{GicVersion, Kicks, LrState, Maintenance, VmGic};

const SET_PENDING: u64 = 0x200;
const CLEAR_PENDING: u64 = 0x280;
const SET_ACTIVE: u64 = 0x300;
const CLEAR_ACTIVE: u64 = 0x380;
const SET_ENABLE: u64 = 0x100;
const CLEAR_ENABLE: u64 = 0x180;

/// SGI to oneself: ICC_SGI1R_EL1 with the own bit in the target list.
fn sgi1r(sgi: u64, targets: u64) -> u64 {
    sgi << 24 | targets
}

/// The virtual timer interrupt of vCPU 0, which is loaded.
fn inject_loaded(gic: &mut VmGic, cpu: &mut Fake) -> Kicks {
    let kicks = gic.inject_hw(v(0), id(27));
    kicks.union(gic.flush(v(0), cpu)).without(v(0))
}

/// An SGI of vCPU 0, which is loaded, to itself.
fn sgi1r_loaded(gic: &mut VmGic, sgi: u64, cpu: &mut Fake) -> Kicks {
    let kicks = gic.sgi1r(v(0), sgi1r(sgi, 1));
    kicks.union(gic.flush(v(0), cpu)).without(v(0))
}

#[test]
fn an_sgi_to_oneself_arrives_once() {
    let mut gic = ready(GicVersion::V3, 1, 32);
    let mut cpu = Fake::new(4);
    let kicks = gic.sgi1r(v(0), sgi1r(5, 1));
    assert!(kicks.contains(v(0)));
    assert!(gic.flush(v(0), &mut cpu).is_empty());
    assert_eq!(cpu.acknowledge(), Some((id(5), 0)));
    assert_eq!(cpu.end(), Some((id(5), true)));
    assert!(gic.flush(v(0), &mut cpu).is_empty());
    assert_eq!(cpu.listed().count(), 0);
    assert_eq!(cpu.write_count, 1);
}

#[test]
fn an_sgi_sent_while_the_last_one_is_active_makes_it_pending_and_active() {
    let mut gic = ready(GicVersion::V3, 1, 32);
    let mut cpu = Fake::new(4);
    for _ in 0..2 {
        let _ = gic.sgi1r(v(0), sgi1r(5, 1));
        let _ = gic.flush(v(0), &mut cpu);
        cpu.acknowledge();
    }
    assert_eq!(cpu.find(5).map(|lr| lr.state), Some(LrState::PendingActive));
    cpu.end();
    assert_eq!(cpu.acknowledge(), Some((id(5), 0)));
    cpu.end();
    let _ = gic.sync(v(0), &mut cpu);
    assert_eq!(field_read(&gic, v(0), SET_PENDING, 0), 0);
    assert_eq!(field_read(&gic, v(0), SET_ACTIVE, 0), 0);
}

/// G1-GIC-003.
#[test]
fn disabling_takes_a_pending_interrupt_out_and_enabling_brings_it_back() {
    let mut gic = ready(GicVersion::V3, 1, 32);
    let mut cpu = Fake::new(4);
    let _ = gic.sgi1r(v(0), sgi1r(5, 1));
    let _ = gic.flush(v(0), &mut cpu);
    assert!(field_write(&mut gic, v(0), CLEAR_ENABLE, 0, 1 << 5).contains(v(0)));
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.listed().count(), 0);
    assert_eq!(field_read(&gic, v(0), SET_PENDING, 0), 1 << 5);
    assert!(field_write(&mut gic, v(0), SET_ENABLE, 0, 1 << 5).contains(v(0)));
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.acknowledge(), Some((id(5), 0)));
    // The group enable does the same: GICD_CTLR.
    let _ = gic.sgi1r(v(0), sgi1r(6, 1));
    let _ = gic.flush(v(0), &mut cpu);
    assert!(gic.distributor_write(v(0), 0, WORD, 1).contains(v(0)));
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.find(6), None);
    assert!(gic.distributor_write(v(0), 0, WORD, 2).contains(v(0)));
    let _ = gic.flush(v(0), &mut cpu);
    assert!(cpu.find(6).is_some());
}

/// G1-GIC-003: a disabled interrupt that is active and pending keeps its pending state.
#[test]
fn disabling_keeps_the_pending_half_of_pending_and_active() {
    let mut gic = ready(GicVersion::V3, 1, 32);
    let mut cpu = Fake::new(4);
    for _ in 0..2 {
        let _ = gic.sgi1r(v(0), sgi1r(5, 1));
        let _ = gic.flush(v(0), &mut cpu);
        cpu.acknowledge();
    }
    let _ = field_write(&mut gic, v(0), CLEAR_ENABLE, 0, 1 << 5);
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.find(5).map(|lr| lr.state), Some(LrState::Active));
    cpu.end();
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.acknowledge(), None);
    let _ = field_write(&mut gic, v(0), SET_ENABLE, 0, 1 << 5);
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.acknowledge(), Some((id(5), 0)));
}

/// G1-GIC-005.
#[test]
fn a_level_that_is_still_high_after_eoi_comes_again() {
    let mut gic = ready(GicVersion::V3, 1, 32);
    let mut cpu = Fake::new(4);
    let _ = gic.set_line(v(0), id(33), true);
    let _ = gic.flush(v(0), &mut cpu);
    for _ in 0..3 {
        assert_eq!(cpu.acknowledge(), Some((id(33), 0)));
        assert_eq!(cpu.acknowledge(), None);
        cpu.end();
        assert!(cpu.maintenance());
        let _ = gic.flush(v(0), &mut cpu);
    }
    // A line that falls before the acknowledge takes the interrupt away.
    assert!(gic.set_line(v(0), id(33), false).contains(v(0)));
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.acknowledge(), None);
    assert!(!cpu.maintenance());
}

/// G1-GIC-005: IHI 0069, 12.9.26: a level interrupt that ISPENDR latched stays without a line.
#[test]
fn an_edge_is_latched_and_a_level_is_not() {
    let mut gic = ready(GicVersion::V3, 1, 32);
    let mut cpu = Fake::new(4);
    // SPI 33 level, SPI 34 edge (GICD_ICFGR2).
    let _ = field_write(&mut gic, v(0), 0xc00, 2, 0b10 << 4);
    for intid in [33, 34] {
        let _ = gic.set_line(v(0), id(intid), true);
        let _ = gic.set_line(v(0), id(intid), false);
    }
    assert!(gic.pulse(v(0), id(33)).contains(v(0)), "it wakes");
    assert!(gic.pulse(v(0), id(64)).is_empty(), "no such interrupt");
    assert_eq!(field_read(&gic, v(0), SET_PENDING, 1), 1 << 2);
    assert!(gic.pulse(v(0), id(34)).contains(v(0)));
    let _ = field_write(&mut gic, v(0), SET_PENDING, 1, 1 << 3);
    assert_eq!(field_read(&gic, v(0), SET_PENDING, 1), 1 << 2 | 1 << 3);
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.acknowledge(), Some((id(34), 0)));
    cpu.end();
    assert_eq!(cpu.acknowledge(), Some((id(35), 0)));
    cpu.end();
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.acknowledge(), None);
}

/// G1-GIC-006.
#[test]
fn a_hardware_interrupt_is_linked_and_ended_by_the_guest() {
    let mut gic = ready(GicVersion::V3, 1, 32);
    let mut cpu = Fake::new(4);
    for _ in 0..3 {
        assert!(inject_loaded(&mut gic, &mut cpu).is_empty());
        assert!(gic.hw_active(v(0), id(27)));
        let lr = cpu.find(27).unwrap();
        assert!(
            lr.hw && !lr.eoi && lr.state == LrState::Pending && lr.priority == 0xa0 && lr.group1
        );
        assert_eq!(cpu.acknowledge(), Some((id(27), 0)));
        cpu.end();
        assert_eq!(cpu.deactivated.pop(), Some(id(27)));
    }
    let _ = gic.sync(v(0), &mut cpu);
    assert!(!gic.hw_active(v(0), id(27)));
    assert_eq!(cpu.write_count, 3);
    assert_eq!(gic.take_ended(v(0)), None);
}

/// G1-GIC-006, G1-GIC-011: the pending state of a masked timer is visible.
#[test]
fn a_disabled_hardware_interrupt_is_pending_and_keeps_its_link() {
    let mut gic = ready(GicVersion::V3, 1, 32);
    let mut cpu = Fake::new(4);
    let _ = field_write(&mut gic, v(0), CLEAR_ENABLE, 0, 1 << 27);
    let _ = inject_loaded(&mut gic, &mut cpu);
    assert_eq!(cpu.listed().count(), 0);
    assert_eq!(field_read(&gic, v(0), SET_PENDING, 0), 1 << 27);
    let _ = gic.save(v(0), &mut cpu);
    assert!(gic.hw_active(v(0), id(27)));
    // The guest turned its timer off: nothing is pending, and the physical interrupt must be ended.
    let _ = gic.retract_hw(v(0), id(27));
    assert_eq!(field_read(&gic, v(0), SET_PENDING, 0), 0);
    assert_eq!(gic.take_ended(v(0)), Some(id(27)));
    assert_eq!(gic.take_ended(v(0)), None);
    assert!(!gic.hw_active(v(0), id(27)));
}

/// G1-GIC-012: with ends in two steps, more active than list registers end in any order.
#[test]
fn ends_in_two_steps() {
    for version in [GicVersion::V2, GicVersion::V3] {
        let mut gic = ready(version, 1, 32);
        let mut cpu = Fake::new(2);
        for bit in 0..6 {
            let _ = field_write(&mut gic, v(0), SET_PENDING, 1, 1 << bit);
        }
        let _ = gic.flush(v(0), &mut cpu);
        for bit in 0..6 {
            assert_eq!(cpu.acknowledge(), Some((id(32 + bit), 0)));
            // The priority drops, the interrupt stays active.
            cpu.running.pop();
            let _ = gic.flush(v(0), &mut cpu);
        }
        for bit in [3, 0, 5, 1, 4, 2] {
            let _ = gic.sync(v(0), &mut cpu);
            let _ = gic.deactivate(v(0), id(32 + bit));
            let _ = gic.flush(v(0), &mut cpu);
            assert_eq!(field_read(&gic, v(0), SET_ACTIVE, 1) >> bit & 1, 0);
        }
        assert_eq!(field_read(&gic, v(0), SET_ACTIVE, 1), 0);
        assert_eq!(cpu.listed().count(), 0);
    }
}

/// G1-GIC-006: writing ICACTIVER or ICPENDR ends the physical interrupt as well.
#[test]
fn register_writes_end_hardware_interrupts() {
    for (register, acknowledged) in [(CLEAR_ACTIVE, true), (CLEAR_PENDING, false)] {
        for intid in [27, 40] {
            let mut gic = ready(GicVersion::V3, 1, 32);
            let mut cpu = Fake::new(4);
            let _ = gic.inject_hw(v(0), id(intid));
            let _ = gic.flush(v(0), &mut cpu);
            if acknowledged {
                cpu.acknowledge();
            }
            let _ = gic.sync(v(0), &mut cpu);
            let bit = 1 << (intid & 31);
            assert!(field_write(&mut gic, v(0), register, intid as usize / 32, bit).contains(v(0)));
            let _ = gic.flush(v(0), &mut cpu);
            assert_eq!(cpu.listed().count(), 0);
            assert_eq!(gic.take_ended(v(0)), Some(id(intid)));
            assert_eq!(gic.take_ended(v(0)), None);
            assert!(!gic.hw_active(v(0), id(intid)));
        }
    }
}

/// G1-GIC-006: an SPI acknowledged on another CPU before this one has folded its list register.
#[test]
fn a_hardware_interrupt_that_comes_again_before_the_fold_keeps_its_link() {
    let mut gic = ready(GicVersion::V3, 2, 32);
    let mut cpu = Fake::new(4);
    let _ = gic.inject_hw(v(1), id(40));
    let _ = gic.flush(v(0), &mut cpu);
    cpu.acknowledge();
    cpu.end();
    assert!(gic.inject_hw(v(1), id(40)).contains(v(0)));
    let _ = gic.flush(v(0), &mut cpu);
    assert!(gic.hw_active(v(0), id(40)));
    assert!(cpu.find(40).unwrap().hw);
    cpu.acknowledge();
    cpu.end();
    let _ = gic.flush(v(0), &mut cpu);
    assert!(!gic.hw_active(v(0), id(40)));
    assert_eq!(gic.take_ended(v(0)), None);
}

#[test]
fn a_reset_ends_the_physical_spis() {
    let mut gic = ready(GicVersion::V3, 2, 480);
    let _ = gic.inject_hw(v(0), id(40));
    let _ = gic.inject_hw(v(0), id(511));
    let _ = gic.inject_hw(v(1), id(27));
    gic.reset();
    assert_eq!(gic.take_ended(v(0)), Some(id(40)));
    assert_eq!(gic.take_ended(v(0)), Some(id(511)));
    assert_eq!(gic.take_ended(v(0)), None);
    assert_eq!(gic.take_ended(v(1)), None);
    assert!(!gic.hw_active(v(1), id(27)));
    assert_eq!(field_read(&gic, v(0), SET_PENDING, 1), 0);
}

/// G1-GIC-014: whatever was written and delivered, all registers read as those of a new one.
#[test]
fn a_reset_leaves_nothing_of_a_life() {
    for version in [GicVersion::V2, GicVersion::V3] {
        let mut gic = ready(version, 2, 64);
        let mut cpu = Fake::new(4);
        for (register, value) in [(0x400, 0x5050_5050), (0x800, 0x0202_0202), (0xc00, !0)] {
            for index in 0..24 {
                let _ = field_write(&mut gic, v(0), register, index, value);
            }
        }
        for intid in 32..96 {
            let _ = gic.distributor_write(v(0), 0x6000 + 8 * intid, 3, 1);
        }
        for (vcpu, register) in [(0, SET_PENDING), (1, SET_PENDING), (0, SET_ACTIVE)] {
            for index in 0..3 {
                let _ = field_write(&mut gic, v(vcpu), register, index, !0);
            }
        }
        let _ = gic.post_sgis(v(0), 0xff);
        let _ = gic.flush(v(0), &mut cpu);
        cpu.acknowledge();
        let _ = gic.save(v(0), &mut cpu);
        gic.reset();
        let mut new = VmGic::new();
        new.configure(version, 2, 64);
        for vcpu in [v(0), v(1)] {
            for offset in (0..0xf30).step_by(4) {
                let read = |gic: &VmGic| gic.distributor_read(vcpu, offset, WORD);
                assert_eq!(
                    read(&gic),
                    read(&new),
                    "{version:?}, distributor, {offset:#x}"
                );
                let read = |gic: &VmGic| gic.redistributor_read(vcpu, SGI + offset, WORD);
                assert_eq!(read(&gic), read(&new), "{version:?}, private, {offset:#x}");
            }
            let state = |gic: &VmGic| (gic.vcpu(vcpu).pending_words, gic.vcpu(vcpu).used);
            assert_eq!(state(&gic), state(&new));
        }
        for intid in 32..96 {
            assert_eq!(
                gic.route(id(intid)),
                new.route(id(intid)),
                "{version:?}, {intid}"
            );
        }
    }
}

/// G1-GIC-007. The interrupts are of two words: those of one are in order whatever is chosen among
/// words.
#[test]
fn more_pending_than_list_registers_arrive_by_priority() {
    let mut gic = ready(GicVersion::V3, 1, 64);
    let mut cpu = Fake::new(4);
    let intids = || (0_u64..16).map(|number| 32 + 4 * number);
    for (number, intid) in intids().enumerate() {
        let priority = (15 - number as u64) << 3;
        let _ = gic.distributor_write(v(0), 0x400 + intid, 0, priority);
    }
    let set_pending = |gic: &mut VmGic, bits| {
        for word in 1..=2 {
            let _ = field_write(gic, v(0), SET_PENDING, word, bits);
        }
    };
    set_pending(&mut gic, 0x0101_0101);
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(
        cpu.wanted,
        Maintenance {
            underflow: true,
            no_pending: true,
            deactivate: false
        }
    );
    // Better interrupts displace those that were there first.
    set_pending(&mut gic, 0x1010_1010);
    let _ = gic.flush(v(0), &mut cpu);
    for expected in intids().rev() {
        assert_eq!(cpu.acknowledge(), Some((id(expected as u32), 0)));
        cpu.end();
        if cpu.maintenance() {
            let _ = gic.flush(v(0), &mut cpu);
        }
    }
    assert_eq!(cpu.wanted, Maintenance::default());
    assert_eq!(cpu.acknowledge(), None);
}

/// G1-GIC-007: nesting deeper than there are list registers.
#[test]
fn more_active_than_list_registers_end_in_order() {
    let mut gic = ready(GicVersion::V3, 1, 64);
    let mut cpu = Fake::new(2);
    for intid in 32_u64..40 {
        let priority = (40 - intid) << 4;
        let _ = gic.distributor_write(v(0), 0x400 + intid, 0, priority);
        let _ = field_write(&mut gic, v(0), SET_PENDING, 1, 1 << (intid - 32));
        let _ = gic.flush(v(0), &mut cpu);
        assert_eq!(
            cpu.acknowledge()
                .map(|(intid, _)| u64::from(intid.number())),
            Some(intid)
        );
    }
    let _ = gic.sync(v(0), &mut cpu);
    assert_eq!(field_read(&gic, v(0), SET_ACTIVE, 1), 0xff);
    for expected in (32..40).rev() {
        assert_eq!(cpu.end(), Some((id(expected), true)));
        if cpu.maintenance() {
            let _ = gic.flush(v(0), &mut cpu);
        }
    }
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(field_read(&gic, v(0), SET_ACTIVE, 1), 0);
}

/// G1-GIC-012: the maintenance interrupt may come later than the guest's next exit.
#[test]
fn ends_without_list_register_that_an_exit_finds_are_flushed() {
    let mut gic = ready(GicVersion::V3, 1, 64);
    let mut cpu = Fake::new(2);
    for intid in 32_u64..36 {
        let _ = gic.distributor_write(v(0), 0x400 + intid, 0, (40 - intid) << 4);
        let _ = gic.set_line(v(0), id(intid as u32), true);
        let _ = gic.flush(v(0), &mut cpu);
        assert!(cpu.acknowledge().is_some());
    }
    let ended: Vec<bool> = (0..4).filter_map(|_| cpu.end()).map(|end| end.1).collect();
    assert_eq!(ended, [true, true, false, false]);
    assert!(gic.sync(v(0), &mut cpu).contains(v(0)));
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.acknowledge(), Some((id(35), 0)));
    assert!(
        !gic.sync(v(0), &mut cpu).contains(v(0)),
        "nothing new ended"
    );
}

/// G1-GIC-008.
#[test]
fn unloading_keeps_pending_and_active() {
    let mut gic = ready(GicVersion::V3, 1, 32);
    let mut cpu = Fake::new(4);
    let _ = gic.sgi1r(v(0), sgi1r(5, 1));
    let _ = inject_loaded(&mut gic, &mut cpu);
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.acknowledge(), Some((id(5), 0)));
    let _ = gic.save(v(0), &mut cpu);
    assert_eq!(cpu.listed().count(), 0);
    assert_eq!(field_read(&gic, v(0), SET_PENDING, 0), 1 << 27);
    assert_eq!(field_read(&gic, v(0), SET_ACTIVE, 0), 1 << 5);
    let mut other = Fake::new(4);
    other.running = cpu.running;
    let _ = gic.flush(v(0), &mut other);
    assert_eq!(other.find(5).map(|lr| lr.state), Some(LrState::Active));
    assert_eq!(
        other.find(27).map(|lr| (lr.state, lr.hw)),
        Some((LrState::Pending, true))
    );
    assert_eq!(other.end(), Some((id(5), true)));
    assert_eq!(other.acknowledge(), Some((id(27), 0)));
}

/// G1-GIC-009.
#[test]
fn wfi_wakes_for_what_could_be_delivered() {
    let mut gic = ready(GicVersion::V3, 2, 32);
    let mut cpu = Fake::new(4);
    assert!(!gic.deliverable(v(0), 0xff));
    let _ = gic.sgi1r(v(0), sgi1r(5, 1));
    assert!(gic.deliverable(v(0), 0xff) && gic.deliverable(v(0), 0xa8));
    assert!(!gic.deliverable(v(0), 0xa0) && !gic.deliverable(v(1), 0xff));
    let _ = gic.flush(v(0), &mut cpu);
    assert!(gic.deliverable(v(0), 0xff));
    cpu.acknowledge();
    let _ = gic.sync(v(0), &mut cpu);
    assert!(!gic.deliverable(v(0), 0xff));
    cpu.end();
    let _ = gic.set_line(v(0), id(40), true);
    assert!(gic.deliverable(v(0), 0xff) && !gic.deliverable(v(1), 0xff));
    let _ = field_write(&mut gic, v(0), CLEAR_ENABLE, 1, 1 << 8);
    assert!(!gic.deliverable(v(0), 0xff));
}

#[test]
fn a_rerouted_spi_leaves_the_list_register_for_the_other_vcpu() {
    let mut gic = ready(GicVersion::V3, 2, 32);
    let mut cpus = [Fake::new(4), Fake::new(4)];
    let _ = gic.set_line(v(0), id(40), true);
    let _ = gic.flush(v(0), &mut cpus[0]);
    let kicks = gic.distributor_write(v(0), 0x6000 + 8 * 40, 3, 1);
    assert!(kicks.contains(v(0)) && !kicks.contains(v(1)));
    assert!(gic.flush(v(0), &mut cpus[0]).contains(v(1)));
    let _ = gic.flush(v(1), &mut cpus[1]);
    assert_eq!(cpus[0].acknowledge(), None);
    assert_eq!(cpus[1].acknowledge(), Some((id(40), 0)));
}

#[test]
fn the_other_cpus_changes_win_over_its_list_register() {
    let mut gic = ready(GicVersion::V3, 2, 32);
    let mut cpu = Fake::new(4);
    let _ = gic.sgi1r(v(0), sgi1r(5, 1));
    let _ = gic.flush(v(0), &mut cpu);
    // Acknowledged and sent again before anything was folded: not lost.
    cpu.acknowledge();
    assert!(gic.sgi1r(v(1), sgi1r(5, 1)).contains(v(0)));
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.find(5).map(|lr| lr.state), Some(LrState::PendingActive));
    // Cleared through vCPU 0's redistributor by vCPU 1, both halves.
    let _ = gic.redistributor_write(v(0), SGI + CLEAR_PENDING, WORD, 1 << 5);
    assert!(
        gic.redistributor_write(v(0), SGI + CLEAR_ACTIVE, WORD, 1 << 5)
            .contains(v(0))
    );
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.listed().count(), 0);
    assert_eq!(field_read(&gic, v(0), SET_PENDING, 0), 0);
    // And made active by a write.
    let _ = gic.redistributor_write(v(0), SGI + SET_ACTIVE, WORD, 1 << 5);
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.find(5).map(|lr| lr.state), Some(LrState::Active));
}

/// G1-GIC-003: the short way of an SGI does not hide what else has changed.
#[test]
fn a_repeated_sgi_does_not_keep_a_disabled_one_in_its_list_register() {
    let mut gic = ready(GicVersion::V3, 2, 32);
    let mut cpu = Fake::new(4);
    let _ = sgi1r_loaded(&mut gic, 5, &mut cpu);
    cpu.acknowledge();
    cpu.end();
    let _ = sgi1r_loaded(&mut gic, 6, &mut cpu);
    let _ = gic.redistributor_write(v(0), SGI + CLEAR_ENABLE, WORD, 1 << 6);
    assert!(gic.sgi1r(v(1), sgi1r(5, 1)).contains(v(0)));
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.acknowledge(), Some((id(5), 0)));
    cpu.end();
    assert_eq!(cpu.acknowledge(), None);
    // And the short way itself is not taken for a disabled one.
    let _ = gic.redistributor_write(v(0), SGI + CLEAR_ENABLE, WORD, 1 << 5);
    let _ = sgi1r_loaded(&mut gic, 5, &mut cpu);
    assert_eq!(cpu.acknowledge(), None);
}

/// G1-GIC-002: what a trapped ICC_DIR_EL1 names may be no interrupt that there is.
#[test]
fn deactivating_what_does_not_exist_ends_nothing() {
    let mut gic = ready(GicVersion::V3, 1, 480);
    // INTIDs 480 to 511 are the last 32 that exist; 512 to 1019 do not.
    let _ = field_write(&mut gic, v(0), SET_ACTIVE, 15, u32::MAX);
    for number in 512..1020 {
        assert!(gic.deactivate(v(0), id(number)).is_empty());
    }
    assert_eq!(field_read(&gic, v(0), SET_ACTIVE, 15), u32::MAX);
}

/// G1-GIC-007: a list register that was written counts as empty, in ELRSR, until the next context
/// synchronization event (Arm IHI 0069, 12.1.7).
#[test]
fn what_was_just_listed_is_not_taken_for_ended() {
    let mut gic = ready(GicVersion::V3, 1, 32);
    let mut cpu = Fake::new(4);
    let _ = gic.sgi1r(v(0), sgi1r(5, 1));
    let _ = gic.flush(v(0), &mut cpu);
    let _ = gic.sgi1r(v(0), sgi1r(6, 1));
    // Before the guest is entered.
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.acknowledge(), Some((id(5), 0)));
    cpu.end();
    assert_eq!(cpu.acknowledge(), Some((id(6), 0)));
}
