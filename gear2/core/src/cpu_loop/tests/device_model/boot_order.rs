//! Guests that wait at boot for the device model.

use gear2_protocol::vm_flag;

use super::*;

#[test]
fn a_later_vm_waits_for_the_device_model() {
    let later = Plan {
        boot_order: 1,
        ..guest(1, Guest::Works, &[1])
    };
    let mut simulation = machine(&[later], 5);
    simulation.steps(3000);
    assert_eq!(
        simulation.vm_states(),
        [VmState::Running, VmState::Stopped],
        "no sign of life yet"
    );
    let now = simulation.world.borrow().now;
    simulation.world.borrow_mut().gdm.as_mut().unwrap().beats = Some((1000, now + 1000));
    simulation.steps(3000);
    assert_eq!(simulation.vm_states(), [VmState::Running; 2]);
}

/// A machine whose guest waits for a device model that shows no sign of life.
fn waits_at_boot(boot_order_timeout: u64) -> Simulation {
    let later = Plan {
        boot_order: 1,
        ..guest(1, Guest::Spins, &[1])
    };
    let options = Options {
        boot_order_timeout,
        ..Options::default()
    };
    Simulation::with_options(2, &[plan(Guest::Spins, &[0]), later], 5, options)
}

/// Lives on until this many microseconds have passed, and returns how many events there were.
fn live_for(simulation: &mut Simulation, time: u64) -> u32 {
    let end = simulation.world.borrow().now + time;
    let mut events = 0;
    while simulation.world.borrow().now < end && simulation.step() {
        events += 1;
    }
    events
}

#[test]
fn a_wait_at_boot_is_said_and_takes_no_time() {
    let mut simulation = waits_at_boot(0);
    let events = live_for(&mut simulation, 60_000_000);
    assert_eq!(simulation.vm_states(), [VmState::Running, VmState::Stopped]);
    assert!(events < 2_000, "{events}");
    let waits = "guest1 waits for the device model in guest0";
    assert_eq!(shown(&simulation, 1).1, [waits]);
    assert_eq!(simulation.control(op::VM_INFO, [1, 0]).1[4], vm_flag::WAITS);
    // Somebody who cannot wait any longer stops it, or has it served.
    simulation.world.borrow_mut().gdm.as_mut().unwrap().beats = Some((1000, 0));
    simulation.control(op::NONE, [0; 2]);
    live_for(&mut simulation, 1_000_000);
    assert_eq!(simulation.vm_states(), [VmState::Running; 2]);
    assert_eq!(simulation.control(op::VM_INFO, [1, 0]).1[4], 0);
}

#[test]
fn a_wait_at_boot_ends_in_time() {
    let mut simulation = waits_at_boot(30_000_000);
    live_for(&mut simulation, 29_000_000);
    assert_eq!(simulation.vm_states()[1], VmState::Stopped);
    live_for(&mut simulation, 2_000_000);
    assert_eq!(simulation.vm_states()[1], VmState::Running);
    let lines = [
        "guest1 waits for the device model in guest0",
        "guest1 starts without the device model in guest0",
        "guest1 started",
    ];
    assert_eq!(shown(&simulation, 1).1, lines);
}
