//! Guests that hang, and guests that do not, under the watch of loops.

use gear2_protocol::{op, outcome};

use super::*;
use crate::restarts::RestartPolicy;

/// Longest time without a refresh, in microseconds.
const PERIOD: u64 = 20_000;
/// Events and answers take so long at most, and a load of a VM its pieces.
const SLACK: u64 = 5_000;

fn watched(guest: Guest, cpus: &[usize]) -> Plan {
    Plan {
        watchdog: PERIOD,
        ..plan(guest, cpus)
    }
}

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

/// Steps until a VM was started so often, and returns how long that took.
fn until_started(simulation: &mut Simulation, vm: usize, starts: u64) -> u64 {
    let begin = now(simulation);
    while simulation.starts()[vm] < starts {
        assert!(simulation.step(), "nothing happens");
        assert!(now(simulation) < begin + 100 * PERIOD, "no start");
    }
    now(simulation) - begin
}

#[test]
fn guests_that_refresh_in_time_are_left_alone() {
    let plans = [
        watched(Guest::Feeds(PERIOD / 4), &[0]),
        watched(Guest::Feeds(PERIOD / 5), &[1]),
        plan(Guest::Spins, &[0]),
    ];
    let mut simulation = Simulation::new(2, &plans, 7);
    pass(&mut simulation, 50 * PERIOD);
    assert_eq!(simulation.starts(), [1, 1, 1]);
    assert!(simulation.fed().iter().take(2).all(|fed| *fed > 100));
    assert_eq!(simulation.signalled(), [false; 3]);
}

#[test]
fn a_guest_that_hangs_is_back_within_its_period() {
    for spins in [false, true] {
        let mut plans = vec![watched(Guest::Feeds(PERIOD / 5), &[0])];
        plans.extend(spins.then(|| plan(Guest::Spins, &[0])));
        let mut simulation = Simulation::new(1, &plans, 9);
        for life in 2..6 {
            pass(&mut simulation, 5 * PERIOD);
            simulation.shown();
            simulation.hang(0);
            let took = until_started(&mut simulation, 0, life);
            // The guest may sleep, and refresh the watchdog once more.
            let longest = PERIOD + PERIOD / 5 + SLACK;
            assert!((PERIOD / 2..longest).contains(&took), "{took}");
            let text = simulation.shown();
            let said = "guest0 hangs: it does not refresh its watchdog";
            assert!(text.contains(said), "{text}");
        }
        if spins {
            assert_eq!(simulation.starts()[1], 1);
        }
    }
}

/// A kernel without a driver, or one that hangs before its driver is there.
#[test]
fn a_guest_that_never_touches_its_watchdog_ends_later() {
    let mut simulation = Simulation::new(1, &[watched(Guest::Spins, &[0])], 3);
    until_started(&mut simulation, 0, 1);
    let took = until_started(&mut simulation, 0, 2);
    assert!((4 * PERIOD..4 * PERIOD + SLACK).contains(&took), "{took}");
    let text = simulation.shown();
    assert!(
        text.contains("guest0 hangs: it has not touched its watchdog since its start"),
        "{text}"
    );
}

/// The sixth crash within the window: the VM stays stopped, and the terminal says so.
#[test]
fn a_guest_that_hangs_too_often_is_given_up() {
    let limited = Plan {
        restarts: RestartPolicy {
            limit: 5,
            window: 1_000 * PERIOD,
            backoff: 0,
        },
        ..watched(Guest::Spins, &[0])
    };
    let mut simulation = Simulation::new(1, &[limited, plan(Guest::Spins, &[0])], 5);
    // Until nothing happens any more.
    while simulation.step() {}
    assert_eq!(simulation.starts(), [6, 1]);
    let states = [VmState::Stopped, VmState::Running];
    assert_eq!(simulation.vm_states(), states);
    let text = simulation.shown();
    let said = "guest0 is given up: it was restarted 5 times already";
    assert!(text.contains(said), "{text}");
}

#[test]
fn a_paused_guest_is_not_one_that_hangs() {
    let device_vm = plan(Guest::Works, &[0]);
    let plans = [device_vm, watched(Guest::Feeds(PERIOD / 5), &[1])];
    let mut simulation = Simulation::with_device_model(2, &plans, 7);
    simulation.world.borrow_mut().disorder = false;
    pass(&mut simulation, 5 * PERIOD);
    for pause in [PERIOD / 3, PERIOD, 10 * PERIOD + PERIOD / 2] {
        simulation.world.borrow_mut().paused = 1 << 1;
        assert_eq!(simulation.control(op::VM_PAUSE, [1, 0]).0, outcome::OK);
        pass(&mut simulation, pause);
        assert_eq!(simulation.control(op::VM_RESUME, [1, 0]).0, outcome::OK);
        simulation.world.borrow_mut().paused = 0;
        pass(&mut simulation, 3 * PERIOD);
        assert_eq!(simulation.starts(), [1, 1]);
    }
}

/// Gear2 fails anywhere: a guest that refreshes its watchdog is never ended, one that hangs always.
#[test]
fn watchdogs_go_on_over_restarts_of_gear2() {
    let plans = [
        watched(Guest::Feeds(PERIOD / 5), &[0]),
        watched(Guest::Feeds(PERIOD / 5), &[1]),
    ];
    for seed in 0..40 {
        let mut simulation = Simulation::new(2, &plans, seed);
        pass(&mut simulation, 3 * PERIOD);
        simulation.hang(0);
        for failure in 0..6 {
            let (before, _) = simulation.restarts();
            simulation.fail_in((seed * 7 + failure * 3) % 23);
            let begin = now(&simulation);
            while simulation.restarts().0 == before {
                assert!(simulation.step(), "nothing happens");
                let is_late = now(&simulation) > begin + 100 * PERIOD;
                assert!(!is_late, "{seed}: Gear2 calls nobody");
            }
            pass(&mut simulation, PERIOD / 4);
        }
        pass(&mut simulation, 2 * PERIOD);
        assert_eq!(simulation.starts()[1], 1, "{seed}");
        assert!(simulation.starts()[0] >= 2, "{seed}");
        let fed = simulation.fed();
        pass(&mut simulation, 3 * PERIOD);
        assert!(
            simulation.fed()[0] > fed[0],
            "{seed}: it runs and refreshes"
        );
    }
}

/// A VM that cannot refresh its watchdog for want of a CPU gets its time once more, and no more.
#[test]
fn a_guest_that_gets_no_cpu_has_more_time_once() {
    let plans = [watched(Guest::Feeds(PERIOD / 5), &[0])];
    let mut simulation = Simulation::new(1, &plans, 9);
    simulation.world.borrow_mut().starves = true;
    pass(&mut simulation, 5 * PERIOD);
    assert_eq!(counts(&simulation), [0, 0, 0], "it refreshes in time");
    simulation.hang(0);
    simulation.shown();
    let took = until_started(&mut simulation, 0, 2);
    assert!(
        (3 * PERIOD / 2..2 * PERIOD + PERIOD / 5 + SLACK).contains(&took),
        "{took}"
    );
    let text = simulation.shown();
    let slow = text.find("guest0 is slow: it waited 20 ms for a CPU and ran 10 ms");
    let hangs = text.find("guest0 hangs: it does not refresh its watchdog");
    assert!(slow.is_some() && slow < hangs, "{text}");
    assert_eq!(counts(&simulation), [1, 0, 1]);
}

/// One that refreshes its watchdog in the last quarter of the time is late, and goes on. One that
/// does so in the third, as Linux does for want of a daemon, is not.
#[test]
fn a_guest_that_is_late_is_slow() {
    let plans = [watched(Guest::Feeds(PERIOD * 6 / 10), &[0])];
    let mut simulation = Simulation::new(1, &plans, 9);
    pass(&mut simulation, 20 * PERIOD);
    assert_eq!(counts(&simulation), [0, 0, 0]);
    let plans = [watched(Guest::Feeds(PERIOD * 8 / 10), &[0])];
    let mut simulation = Simulation::new(1, &plans, 9);
    pass(&mut simulation, 20 * PERIOD);
    assert_eq!(simulation.starts(), [1]);
    let [hangs, late, starved] = counts(&simulation);
    assert!(late > 10 && (hangs, starved) == (0, 0), "{late}");
    let text = simulation.shown();
    let said = text
        .matches("guest0 is slow: it refreshed its watchdog late")
        .count();
    // At the first, and at each doubling.
    assert_eq!(said, usize::try_from(late.ilog2()).unwrap() + 1, "{text}");
}

/// Returns how often VM 0 hung, was late, and got more time.
fn counts(simulation: &Simulation) -> [u32; 3] {
    let vm = gear1_abi::id::VmId::new(0).unwrap();
    let (_, shared) = simulation.machine.vm(vm).unwrap();
    shared.watchdog.lock().counts()
}

/// A guest without a watchdog that spins for ever ends; one that works goes on.
#[test]
fn a_guest_without_progress_ends() {
    let progress = |guest, cpu| Plan {
        progress: PERIOD,
        ..plan(guest, &[cpu])
    };
    let plans = [progress(Guest::Spins, 0), progress(Guest::Works, 1)];
    let mut simulation = Simulation::new(2, &plans, 4);
    simulation.world.borrow_mut().disorder = false;
    for life in 2..5 {
        let took = until_started(&mut simulation, 0, life);
        assert!((PERIOD / 2..2 * PERIOD).contains(&took), "{took}");
    }
    assert_eq!(simulation.starts()[1], 1);
    let text = simulation.shown();
    let said = "guest0 hangs: its vCPUs run, and do nothing that shows";
    assert!(text.contains(said), "{text}");
}
