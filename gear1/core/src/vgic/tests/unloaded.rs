//! vCPUs that are unloaded with nothing in their list registers, case by case.

use std::boxed::Box;

use super::fake::Fake;
use super::{BYTE, DOUBLEWORD, field_read, field_write, id, ready, v};
use crate::vgic::{GicVersion, LrState, VmGic};

const SET_PENDING: u64 = 0x200;
const CLEAR_ENABLE: u64 = 0x180;

/// SPI 40 of vCPU 0, edge-triggered, which the guest has taken and ended, and which its CPU has
/// left.
fn left_with_an_ended_spi(cpu: &mut Fake) -> Box<VmGic> {
    let mut gic = ready(GicVersion::V3, 2, 32);
    let _ = field_write(&mut gic, v(0), 0xc00, 2, 2 << 16);
    let _ = gic.distributor_write(v(0), 0x6000 + 8 * 40, DOUBLEWORD, 0);
    assert!(gic.pulse(v(0), id(40)).contains(v(0)));
    let _ = gic.flush(v(0), cpu);
    cpu.acknowledge();
    cpu.end();
    assert!(VmGic::leaves_nothing(cpu));
    gic
}

/// G1-GIC-007, G1-GIC-008.
#[test]
fn an_spi_that_repeats_comes_again_at_the_next_load() {
    let mut cpu = Fake::new(4);
    let mut gic = left_with_an_ended_spi(&mut cpu);
    assert!(gic.pulse(v(1), id(40)).contains(v(0)));
    assert!(gic.resume(v(0), &mut cpu).is_empty());
    assert!(!gic.has_waiting(v(0)));
    assert_eq!(cpu.find(40).map(|lr| lr.state), Some(LrState::Pending));
    // It is in the list alone: nothing is left to come once more.
    cpu.acknowledge();
    cpu.end();
    assert!(gic.flush(v(0), &mut cpu).is_empty());
    assert_eq!((cpu.listed().count(), cpu.write_count), (0, 2));
}

/// The list register of before would bring a priority that the guest has changed since, or an
/// interrupt that the guest has disabled.
#[test]
fn an_spi_that_was_changed_meanwhile_is_not_repeated() {
    let mut cpu = Fake::new(4);
    let mut gic = left_with_an_ended_spi(&mut cpu);
    let _ = gic.distributor_write(v(1), 0x400 + 40, BYTE, 0x20);
    let _ = gic.pulse(v(1), id(40));
    let _ = gic.resume(v(0), &mut cpu);
    assert!(gic.has_waiting(v(0)));
    let _ = gic.flush(v(0), &mut cpu);
    assert_eq!(cpu.find(40).map(|lr| lr.priority), Some(0x20));

    let mut cpu = Fake::new(4);
    let mut gic = left_with_an_ended_spi(&mut cpu);
    let _ = gic.pulse(v(1), id(40));
    let _ = field_write(&mut gic, v(1), CLEAR_ENABLE, 1, 1 << 8);
    let _ = gic.resume(v(0), &mut cpu);
    assert!(!gic.has_waiting(v(0)));
    assert_eq!(cpu.listed().count(), 0);
    assert_eq!(field_read(&gic, v(1), SET_PENDING, 1), 1 << 8);
}

/// A sibling that reads what an unloaded vCPU has ended sees the end. The vCPU's timer, whose
/// physical interrupt ended with the virtual one, is no longer its own at the next load.
#[test]
fn the_ends_of_an_unloaded_vcpu_are_folded() {
    let mut cpu = Fake::new(4);
    let mut gic = left_with_an_ended_spi(&mut cpu);
    assert_eq!(field_read(&gic, v(1), SET_PENDING, 1), 1 << 8);
    assert!(gic.fold_unloaded(v(0)).is_empty());
    assert_eq!(field_read(&gic, v(1), SET_PENDING, 1), 0);

    let mut gic = ready(GicVersion::V3, 1, 32);
    let _ = gic.inject_hw(v(0), id(27));
    let _ = gic.flush(v(0), &mut cpu);
    cpu.acknowledge();
    cpu.end();
    assert!(VmGic::leaves_nothing(&mut cpu) && gic.hw_active(v(0), id(27)));
    let _ = gic.resume(v(0), &mut cpu);
    assert!(!gic.hw_active(v(0), id(27)) && !gic.has_waiting(v(0)));
}
