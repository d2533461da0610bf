//! Safe states of VMs that fail and are not started again.

use gear1_abi::event::Ended;
use gear1_abi::id::VmId;

use super::*;
use crate::lifecycle::Goal;
use crate::restarts::RestartPolicy;

/// Events after which all that follows from an end has been done.
const LONG: usize = 4_000;

fn vm(index: usize) -> VmId {
    VmId::new(index).unwrap()
}

/// Returns a VM that fails over to VM 1, which waits for that, and a bystander.
fn plans(guest: Guest, restart: Restart, limit: u32, standby: Guest) -> [Plan; 3] {
    let main = Plan {
        restart,
        restarts: RestartPolicy {
            limit,
            window: 1_000_000_000,
            backoff: 0,
        },
        safe_state: SafeState::FailOver(vm(1)),
        ..plan(guest, &[0])
    };
    let standby = Plan {
        restart: Restart::Never,
        waits: true,
        ..plan(standby, &[1])
    };
    [main, standby, plan(Guest::Works, &[0, 1])]
}

/// Counts what the terminal says of a VM.
fn said(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

#[test]
fn a_standby_starts_when_a_vm_is_given_up() {
    for seed in 0..20 {
        let plans = plans(Guest::Works, Restart::OnFailure, 2, Guest::Works);
        let mut simulation = Simulation::new(2, &plans, seed);
        simulation.steps(LONG);
        for life in 1..=3 {
            assert_eq!(simulation.starts(), [life, 0, 1], "{seed}");
            simulation.end(0, Ended::Fault);
            simulation.steps(LONG);
        }
        assert_eq!(simulation.starts(), [3, 1, 1], "{seed}");
        let states = [VmState::Stopped, VmState::Running, VmState::Running];
        assert_eq!(simulation.vm_states(), states);
        let text = simulation.shown();
        let told = "guest0 is given up: it was restarted 2 times already\r\n\
            gear2: guest0 fails over: guest1 is started in its place";
        assert_eq!(said(&text, told), 1, "{text}");
    }
}

#[test]
fn a_vm_that_is_never_restarted_fails_over_at_once() {
    let plans = plans(Guest::Works, Restart::Never, 10, Guest::Works);
    let mut simulation = Simulation::new(2, &plans, 3);
    simulation.steps(LONG);
    simulation.end(0, Ended::Fault);
    simulation.steps(LONG);
    assert_eq!(simulation.starts(), [1, 1, 1]);
    let text = simulation.shown();
    let told = "guest0 is given up: it is not restarted after a failure";
    assert_eq!(said(&text, told), 1, "{text}");
    assert_eq!(said(&text, "guest0 fails over"), 1, "{text}");
}

/// A VM that turns itself off has not failed.
#[test]
fn a_vm_that_turns_itself_off_has_no_successor() {
    let plans = plans(Guest::Works, Restart::OnFailure, 2, Guest::Works);
    let mut simulation = Simulation::new(2, &plans, 3);
    simulation.steps(LONG);
    simulation.end(0, Ended::Off);
    simulation.steps(LONG);
    assert_eq!(simulation.starts(), [1, 0, 1]);
}

/// The standby has its own policy, and the VM that failed is not tried again.
#[test]
fn a_standby_that_fails_too_stays_stopped() {
    let plans = plans(Guest::Works, Restart::Never, 0, Guest::Works);
    let mut simulation = Simulation::new(2, &plans, 5);
    simulation.steps(LONG);
    for failing in [0, 1] {
        simulation.end(failing, Ended::Fault);
        simulation.steps(LONG);
    }
    assert_eq!(simulation.starts(), [1, 1, 1]);
    let states = [VmState::Stopped, VmState::Stopped, VmState::Running];
    assert_eq!(simulation.vm_states(), states);
}

/// A standby that somebody has started goes on, and nobody is told of a start.
#[test]
fn a_standby_that_runs_goes_on() {
    let plans = plans(Guest::Works, Restart::Never, 0, Guest::Works);
    let mut simulation = Simulation::new(2, &plans, 11);
    simulation.steps(LONG);
    simulation.type_keys(b"\x071\x07t");
    simulation.steps(LONG);
    assert_eq!(simulation.starts(), [1, 1, 1]);
    simulation.end(0, Ended::Fault);
    simulation.steps(LONG);
    assert_eq!(simulation.starts(), [1, 1, 1]);
    let text = simulation.shown();
    assert_eq!(said(&text, "guest0 fails over: guest1 runs already"), 1);
    assert_eq!(said(&text, "in its place"), 0, "{text}");
}

/// Whoever starts the VM again ends that state; the next failure fails over anew.
#[test]
fn a_person_starts_a_vm_that_has_failed_over() {
    let plans = plans(Guest::Works, Restart::Never, 0, Guest::Works);
    let mut simulation = Simulation::new(2, &plans, 9);
    for round in 1..4 {
        simulation.steps(LONG);
        simulation.end(0, Ended::Fault);
        simulation.steps(LONG);
        assert_eq!(simulation.starts(), [round, round, 1]);
        simulation.type_keys(b"\x071\x07s\x070\x07t");
    }
}

#[test]
fn the_machine_goes_off_with_a_vm_that_is_given_up() {
    for keeps_power_on in [false, true] {
        let main = Plan {
            restart: Restart::Never,
            safe_state: SafeState::PowerOff,
            ..plan(Guest::Works, &[0])
        };
        let mut simulation = Simulation::new(1, &[main, plan(Guest::Works, &[0])], 3);
        simulation.world.borrow_mut().keeps_power_on = keeps_power_on;
        simulation.steps(LONG);
        simulation.end(0, Ended::Fault);
        // Nothing happens after a power-off.
        for _ in 0..LONG {
            if simulation.world.borrow().powered_off {
                break;
            }
            simulation.step();
        }
        assert_eq!(simulation.world.borrow().powered_off, !keeps_power_on);
        let text = simulation.shown();
        let refused = usize::from(keeps_power_on);
        assert_eq!(said(&text, "no power off: a real-time VM runs"), refused);
        if keeps_power_on {
            let states = [VmState::Stopped, VmState::Running];
            assert_eq!(simulation.vm_states(), states);
        }
    }
}

/// Each point at which a Gear2 can fail between the first note of a fail-over and the last: the goal
/// of the VM, the note, the goal of the standby, and whether it has been started and has ended.
#[test]
fn a_fail_over_that_was_under_way_is_ended_once() {
    let points = [
        (0, None, false, 1),
        (1, None, false, 1),
        (1, Some(Goal::Run), false, 1),
        (1, None, true, 0),
    ];
    for (note, goal, has_run, expected) in points {
        let plans = plans(Guest::Works, Restart::Never, 0, Guest::Works);
        let mut simulation = Simulation::new(2, &plans, 3);
        simulation.steps(LONG);
        if has_run {
            simulation.type_keys(b"\x071\x07t");
            simulation.steps(LONG);
            simulation.end(1, Ended::Fault);
            simulation.steps(LONG);
        }
        simulation.type_keys(b"\x070\x07s");
        simulation.steps(LONG);
        let before = simulation.starts()[1];
        let kept = simulation.kept();
        kept.set_goal(vm(0), Some(Goal::GiveUp));
        kept.set_given_up(vm(0), true);
        kept.set_fail_over(vm(0), note);
        kept.set_goal(vm(1), goal);
        simulation.restart(0);
        simulation.steps(LONG);
        let starts = simulation.starts()[1] - before;
        assert_eq!(starts, expected, "{note} {goal:?} {has_run}");
        assert_eq!(simulation.vm_states()[0], VmState::Stopped);
    }
}

/// Returns how often each doorbell was rung.
fn rings(simulation: &Simulation) -> [u32; 2] {
    simulation.world.borrow().rings
}

/// Each end by itself rings, and nothing that a person asks for.
#[test]
fn another_vm_is_told_of_each_end() {
    let told = Plan {
        tells: Some(1),
        ..plan(Guest::Works, &[0])
    };
    let mut simulation = Simulation::new(1, &[told, plan(Guest::Works, &[0])], 3);
    simulation.steps(LONG);
    for (number, how) in (1..).zip([Ended::Fault, Ended::Reset, Ended::Fault]) {
        simulation.end(0, how);
        simulation.steps(LONG);
        assert_eq!(rings(&simulation), [0, number]);
    }
    simulation.type_keys(b"\x070\x07r");
    simulation.steps(LONG);
    simulation.end(1, Ended::Fault);
    simulation.steps(LONG);
    assert_eq!(rings(&simulation), [0, 3]);
    simulation.end(0, Ended::Off);
    simulation.steps(LONG);
    assert_eq!(rings(&simulation), [0, 4]);
}

#[test]
fn another_vm_is_told_of_a_vm_that_hangs() {
    let watched = Plan {
        tells: Some(0),
        watchdog: 20_000,
        ..plan(Guest::Feeds(4_000), &[0])
    };
    let mut simulation = Simulation::new(1, &[watched], 3);
    simulation.steps(LONG);
    assert_eq!(rings(&simulation), [0, 0]);
    simulation.hang(0);
    while simulation.starts()[0] < 2 {
        assert!(simulation.step());
    }
    assert_eq!(rings(&simulation), [1, 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Gear2 fails at any call around an end: the other VM is told once, or once more.
    #[test]
    fn a_ring_is_never_lost(seed in any::<u64>(), calls in 0..30_u64) {
        let told = Plan { tells: Some(0), ..plan(Guest::Works, &[0]) };
        let mut simulation = Simulation::new(1, &[told, plan(Guest::Works, &[0])], seed);
        simulation.steps(LONG);
        simulation.fail_in(calls);
        simulation.end(0, Ended::Fault);
        simulation.steps(LONG);
        let [told, _] = rings(&simulation);
        prop_assert!((1..=2).contains(&told), "{}", told);
    }

    /// Gear2 fails again and again while a VM fails until it is given up: the standby is started
    /// once, and the VM as often as its limit allows.
    #[test]
    fn a_fail_over_happens_once_whatever_fails(
        seed in any::<u64>(),
        limit in 1..4_u32,
        failures in proptest::collection::vec((1..60_usize, 0..25_u64), 0..12),
    ) {
        let plans = plans(Guest::WorksAndEnds, Restart::Always, limit, Guest::Works);
        let mut simulation = Simulation::new(2, &plans, seed);
        for (steps, calls) in failures {
            simulation.steps(steps);
            simulation.fail_in(calls);
        }
        for _ in 0..200 {
            simulation.steps(LONG / 4);
            if simulation.starts()[1] != 0 {
                break;
            }
        }
        simulation.steps(LONG);
        prop_assert_eq!(simulation.starts(), [u64::from(limit) + 1, 1, 1]);
        let states = [VmState::Stopped, VmState::Running, VmState::Running];
        prop_assert_eq!(simulation.vm_states(), states);
    }

    /// Gear2 fails at each call in turn while it fails over.
    #[test]
    fn a_gear2_that_fails_during_a_fail_over_ends_it(seed in any::<u64>(), calls in 0..60_u64) {
        let plans = plans(Guest::Works, Restart::Never, 0, Guest::Works);
        let mut simulation = Simulation::new(2, &plans, seed);
        simulation.steps(LONG);
        simulation.fail_in(calls);
        simulation.end(0, Ended::Fault);
        simulation.steps(2 * LONG);
        prop_assert_eq!(simulation.starts(), [1, 1, 1]);
    }
}
