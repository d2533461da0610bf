//! VMs that end by themselves: the device VM, which is the only way to Gear2, and crash loops.

use gear1_abi::event::Ended;
use gear2_protocol::vm_flag;

use super::*;
use crate::restarts::RestartPolicy;

/// A device VM, guests that it serves, and perhaps one that it does not.
fn way_back(restart: Restart, unserved: bool) -> Simulation {
    let device_vm = Plan {
        restart,
        ..plan(Guest::Works, &[0])
    };
    let mut plans = vec![device_vm, guest(2, Guest::Works, &[1])];
    plans.extend(unserved.then(|| plan(Guest::Works, &[1])));
    let mut simulation = Simulation::with_device_model(2, &plans, 61);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(3_000);
    simulation
}

/// Nobody could start the device VM again: it never stays stopped.
#[test]
fn the_device_vm_is_never_left_stopped() {
    use Restart::{Always, Never, OnFailure};
    let ends = [
        // Ends how, with which policy: is the machine powered off, if only served guests are left?
        (Ended::Off, Never, true),
        (Ended::Off, OnFailure, true),
        (Ended::Off, Always, false),
        (Ended::Fault, Never, true),
        (Ended::Fault, OnFailure, false),
        (Ended::Reset, Never, false),
    ];
    for (how, restart, powers_off) in ends {
        for unserved in [false, true] {
            let mut simulation = way_back(restart, unserved);
            simulation.end(0, how);
            simulation.steps(5_000);
            let off = simulation.world.borrow().powered_off;
            assert_eq!(
                off,
                powers_off && !unserved,
                "{how:?} {restart:?} {unserved}"
            );
            let starts = simulation.starts();
            assert_eq!(
                starts[0],
                if off { 1 } else { 2 },
                "{how:?} {restart:?} {unserved}"
            );
            assert!(starts[1..].iter().all(|starts| *starts == 1));
        }
    }
}

#[test]
fn a_forced_stop_of_the_device_vm_is_as_if_it_turned_itself_off() {
    for (unserved, starts) in [(false, 1), (true, 2)] {
        let mut simulation = way_back(Restart::Never, unserved);
        assert_eq!(simulation.control(op::VM_STOP, [0, 0]).0, outcome::NEEDED);
        simulation.steps(1_000);
        assert_eq!(simulation.starts()[0], 1);
        assert_eq!(simulation.vm_states()[0], VmState::Running);
        assert_eq!(simulation.control(op::VM_STOP, [0, 1]).0, outcome::STARTED);
        simulation.steps(5_000);
        assert_eq!(simulation.world.borrow().powered_off, !unserved);
        assert_eq!(simulation.starts()[0], starts);
    }
}

#[test]
fn a_device_vm_that_is_not_the_only_way_can_be_stopped() {
    let mut simulation = machine_with_terminal(&[guest(2, Guest::Works, &[1])], 67);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(3_000);
    simulation.end(0, Ended::Off);
    simulation.steps(3_000);
    assert_eq!(simulation.vm_states()[0], VmState::Stopped);
    assert!(!simulation.world.borrow().powered_off);
    simulation.type_keys(b"\x070\x07t");
    simulation.steps(3_000);
    assert_eq!(simulation.starts(), [2, 1]);
}

/// A machine whose guest 1 ends as soon as it can.
fn crash_loop(simulation: &mut Simulation) {
    for _ in 0..3 {
        let starts = simulation.starts()[1];
        simulation.end(1, Ended::Fault);
        while simulation.starts()[1] == starts {
            assert!(simulation.step());
        }
    }
    simulation.end(1, Ended::Reset);
    simulation.steps(3_000);
}

#[test]
fn a_guest_that_ends_again_and_again_is_given_up() {
    let limited = Plan {
        restarts: RestartPolicy {
            limit: 3,
            window: 60_000_000,
            backoff: 1_000_000,
        },
        ..guest(1, Guest::Works, &[1])
    };
    let mut simulation = machine(&[limited], 71);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(3_000);
    let begin = simulation.world.borrow().now;
    crash_loop(&mut simulation);
    let took = simulation.world.borrow().now - begin;
    assert!(took > 3_000_000, "pauses of 0, 1 and 2 s: {took}");
    let flags = |simulation: &mut Simulation| simulation.control(op::VM_INFO, [1, 0]).1[4];
    let given_up = |simulation: &mut Simulation| {
        assert_eq!(simulation.vm_states()[1], VmState::Stopped);
        assert_eq!(flags(simulation), vm_flag::GIVEN_UP);
    };
    given_up(&mut simulation);
    assert_eq!(simulation.starts(), [1, 4]);
    let said = shown(&simulation, 1).1;
    let last = [
        "guest1 resets itself",
        "guest1 is given up: it was restarted 3 times already",
    ];
    assert_eq!(said[said.len() - 2..], last, "{said:?}");
    assert!(
        said.contains(&"guest1 is started again in 2 s".into())
            || said.contains(&"guest1 is started again in 1 s".into())
    );
    // A Gear2 that is started anew knows it.
    simulation.restart(0);
    simulation.steps(3_000);
    given_up(&mut simulation);
    // A start by the user resets the count.
    assert_eq!(simulation.control(op::VM_START, [1, 0]).0, outcome::STARTED);
    simulation.steps(3_000);
    assert_eq!((simulation.starts()[1], flags(&mut simulation)), (5, 0));
    crash_loop(&mut simulation);
    given_up(&mut simulation);
    assert_eq!(simulation.starts(), [1, 8]);
}

#[test]
fn a_pause_before_a_restart_ends_when_somebody_asks() {
    let slow = Plan {
        restarts: RestartPolicy {
            limit: 0,
            window: 60_000_000,
            backoff: 50_000_000,
        },
        ..guest(1, Guest::Works, &[1])
    };
    let mut simulation = machine(&[slow], 73);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(3_000);
    for (op, state) in [
        (op::VM_START, VmState::Running),
        (op::VM_RESTART, VmState::Running),
        (op::VM_STOP, VmState::Stopped),
    ] {
        simulation.end(1, Ended::Reset);
        simulation.steps(3_000);
        simulation.end(1, Ended::Reset);
        simulation.steps(3_000);
        assert_eq!(simulation.vm_states()[1], VmState::Stopped);
        assert_eq!(simulation.control(op::VM_INFO, [1, 0]).1[4], vm_flag::WAITS);
        assert_eq!(simulation.control(op, [1, 0]).0, outcome::STARTED);
        simulation.steps(3_000);
        assert_eq!(simulation.vm_states()[1], state);
        assert_eq!(simulation.control(op::VM_INFO, [1, 0]).1[4], 0);
    }
}

/// A guest that ends again and again gains nothing by a Gear2 that fails: neither another restart
/// nor a shorter pause.
#[test]
fn restarts_and_pauses_outlive_gear2() {
    let limited = Plan {
        restarts: RestartPolicy {
            limit: 3,
            window: 60_000_000,
            backoff: 1_000_000,
        },
        ..guest(1, Guest::Works, &[1])
    };
    let mut simulation = machine(&[limited], 71);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(3_000);
    // Gear2 fails as soon as it has seen to the end, and again in the pause.
    for (restart, pause) in [0, 1_000_000, 2_000_000].into_iter().enumerate() {
        let begin = simulation.world.borrow().now;
        simulation.end(1, Ended::Fault);
        simulation.restart(0);
        simulation.steps(1_000);
        simulation.restart(1);
        while simulation.starts()[1] != restart as u64 + 2 {
            assert!(simulation.step());
        }
        let took = simulation.world.borrow().now - begin;
        assert!(
            (pause..pause + 500_000).contains(&took),
            "restart {restart} after {took}"
        );
    }
    simulation.end(1, Ended::Fault);
    simulation.restart(0);
    simulation.steps(3_000);
    assert_eq!(simulation.starts(), [1, 4]);
    assert_eq!(
        simulation.control(op::VM_INFO, [1, 0]).1[4],
        vm_flag::GIVEN_UP
    );
}
