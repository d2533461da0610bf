//! Aborted accesses of devices: who did what is told, and a flood costs little.
//!
//! Requirements: G1-DMA-003.

use gear2_protocol::op;
use gearv_manifest::Restart;

use super::*;

/// Time between two looks.
const PAUSE: u64 = 10_000;

fn now(simulation: &Simulation) -> u64 {
    simulation.world.borrow().now
}

/// Steps until so much time has passed.
fn pass(simulation: &mut Simulation, time: u64) {
    let end = now(simulation) + time;
    while now(simulation) < end {
        assert!(simulation.step(), "nothing happens");
    }
}

/// Two VMs that keep the machine busy, and have started.
fn two_vms() -> Simulation {
    let plans = [plan(Guest::Spins, &[0]), plan(Guest::Spins, &[0])];
    let mut simulation = Simulation::new(1, &plans, 7);
    pass(&mut simulation, 100_000);
    simulation.shown();
    simulation
}

#[test]
fn an_aborted_access_is_told_with_its_owner() {
    let mut simulation = two_vms();
    simulation.fault_dma(1, 0x4123_4000);
    simulation.fault_dma_of_nobody();
    pass(&mut simulation, 3 * PAUSE);
    let shown = simulation.shown();
    let told = |text: &str| shown.matches(text).count();
    let owned = "a device of guest1 (StreamID 0x8) may not write 0x41234000: event 0x10, 1 by now";
    assert_eq!(told(owned), 1, "{shown}");
    assert_eq!(
        told("a device of nobody (StreamID 0x9) reaches nothing: event 0x4, 1 by now"),
        1,
        "{shown}"
    );
    // The interrupt ended: the next one comes.
    simulation.fault_dma(0, 0x5000);
    pass(&mut simulation, 3 * PAUSE);
    assert!(simulation.shown().contains("may not write 0x5000"));
    assert_eq!(simulation.dma_interrupts(), 2);
}

/// `gearctl` gets the number of a VM's aborted accesses, of each VM its own.
#[test]
fn control_tells_how_many_accesses_were_aborted() {
    let plans = [plan(Guest::Works, &[0]), plan(Guest::Works, &[0, 1])];
    let mut simulation = Simulation::with_device_model(2, &plans, 7);
    for _ in 0..3 {
        simulation.fault_dma(1, 0x9000);
    }
    pass(&mut simulation, 3 * PAUSE);
    simulation.world.borrow_mut().disorder = false;
    let aborted = [0, 1].map(|vm| simulation.control(op::VM_HEALTH, [vm, 0]).1[5]);
    assert_eq!(aborted, [0, 3]);
}

#[test]
fn a_flood_is_counted_and_costs_an_interrupt_once_in_a_while() {
    let mut simulation = two_vms();
    for _ in 0..1_000 {
        simulation.fault_dma(0, 0x9000);
        pass(&mut simulation, 100);
    }
    pass(&mut simulation, 3 * PAUSE);
    let shown = simulation.shown();
    assert!(shown.contains("512 by now"), "{shown}");
    assert!(
        !shown.contains("513 by now") && shown.lines().count() < 40,
        "{shown}"
    );
    // 100 ms of faults: every look finds some, up to the last one. An edge that came meanwhile waits
    // for the end of the interrupt.
    assert_eq!(simulation.dma_interrupts(), 2);
}

/// Each interrupt costs a pause, also if nobody is told of what came.
#[test]
fn an_interrupt_without_events_comes_once_in_a_while() {
    let mut simulation = two_vms();
    simulation.fault_dma_silently();
    pass(&mut simulation, 10 * PAUSE);
    let interrupts = simulation.dma_interrupts();
    assert!((5..=11).contains(&interrupts), "{interrupts}");
    // The VMs go on, and others' events are told.
    simulation.fault_dma(1, 0x9000);
    pass(&mut simulation, 3 * PAUSE);
    assert!(simulation.shown().contains("may not write 0x9000"));
}

#[test]
fn events_that_found_no_room_are_told_as_lost() {
    let mut simulation = two_vms();
    for _ in 0..200 {
        simulation.fault_dma(0, 0x9000);
    }
    pass(&mut simulation, 3 * PAUSE);
    let shown = simulation.shown();
    assert!(shown.contains("1 by now; more were lost"), "{shown}");
    assert!(shown.contains("128 by now"), "{shown}");
    simulation.type_keys(b"\x07l");
    pass(&mut simulation, PAUSE);
}

#[test]
fn a_restarted_gear2_goes_on_with_what_was_left() {
    let mut simulation = two_vms();
    simulation.fault_dma(0, 0x9000);
    simulation.restart(0);
    simulation.shown();
    pass(&mut simulation, 3 * PAUSE);
    let first = simulation.shown();
    simulation.fault_dma(0, 0xa000);
    pass(&mut simulation, 3 * PAUSE);
    let second = simulation.shown();
    assert!(
        first.contains("0x9000") && second.contains("0xa000"),
        "{first}{second}"
    );
}

/// A VM with a limit ends each time so many accesses were aborted, as after a fault.
#[test]
fn a_vm_whose_devices_attack_is_ended_at_its_limit() {
    let attacker = Plan {
        dma_fault_limit: 3,
        restart: Restart::OnFailure,
        ..plan(Guest::Spins, &[0])
    };
    let mut simulation = Simulation::new(1, &[attacker, plan(Guest::Spins, &[0])], 7);
    pass(&mut simulation, 100_000);
    simulation.shown();
    let mut attack = |vm: u64, times: usize| {
        for _ in 0..times {
            simulation.fault_dma(vm, 0x9000);
        }
        pass(&mut simulation, 300_000);
        simulation.shown()
    };
    let shown = attack(0, 2) + &attack(1, 5);
    assert!(
        !shown.contains("ends") && !shown.contains("restarted"),
        "{shown}"
    );
    let shown = attack(0, 1);
    let said = "guest0 ends: 3 accesses of its devices were aborted";
    assert!(
        shown.contains(said) && shown.contains("guest0 restarted"),
        "{shown}"
    );
    assert!(!attack(0, 2).contains("ends"), "its next life has as many");
    assert!(attack(0, 1).contains(said));
}
