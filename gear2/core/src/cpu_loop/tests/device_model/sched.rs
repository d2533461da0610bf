//! The control mailbox's operations on scheduling.

use gear2_protocol::{share, stays};
use gearv_manifest::Balancer;

use super::*;

#[test]
fn control_moves_and_pins() {
    let mut simulation = machine(&[guest(1, Guest::Works, &[0, 1])], 9);
    simulation.steps(3_000);
    let (done, words) = simulation.control(op::SCHED_CPU, [1, 0]);
    assert_eq!(done, outcome::OK);
    let name: Vec<u8> = words[..2].iter().flat_map(|w| w.to_le_bytes()).collect();
    assert_eq!(&name, b"round-robin\0\0\0\0\0");
    assert_eq!(words[2].to_le_bytes(), *b"none\0\0\0\0");
    assert_eq!(words[3..], [0, 2, SLICE]);
    assert_eq!(
        simulation.control(op::SCHED_MOVE, [2, 1]).0,
        outcome::STARTED
    );
    let mut place = [0; 6];
    for _ in 0..50 {
        place = simulation.control(op::SCHED_VCPU, [2, 0]).1;
    }
    assert_eq!(place, [1, 0, 0, 0, 0b11, 1]);
    let elsewhere = (outcome::WRONG_STATE, [0; 6]);
    assert_eq!(simulation.control(op::SCHED_PIN, [2, 1]), elsewhere);
    assert_eq!(simulation.control(op::SCHED_PIN, [2, 2]).0, outcome::OK);
    let (refused, words) = simulation.control(op::SCHED_MOVE, [2, 0]);
    assert_eq!((refused, words[0]), (outcome::STAYS, stays::PINNED));
    let (refused, words) = simulation.control(op::SCHED_CLOSE, [1, 1]);
    assert_eq!((refused, words[0]), (outcome::STAYS, stays::PINNED));
    // The pin outlives a restart.
    simulation.restart(0);
    simulation.steps(500);
    let place = simulation.control(op::SCHED_VCPU, [2, 0]).1;
    assert_eq!(place[..4], [1, 0, 0, 2]);
    assert_eq!(simulation.control(op::SCHED_PIN, [2, 0]).0, outcome::OK);
    assert_eq!(
        simulation.control(op::SCHED_CLOSE, [1, 1]).0,
        outcome::STARTED
    );
    let mut cpu = [0; 6];
    for _ in 0..50 {
        cpu = simulation.control(op::SCHED_CPU, [1, 0]).1;
    }
    assert_eq!(cpu[3..5], [1, 0]);
}

#[test]
fn control_changes_the_pool_of_a_vm() {
    let options = Options {
        own_pool: 1,
        ..Options::default()
    };
    let plans = [plan(Guest::Works, &[0]), guest(1, Guest::Spins, &[1])];
    let mut simulation = Simulation::with_options(2, &plans, 9, options);
    simulation.steps(2_000);
    let started = (outcome::STARTED, [0; 6]);
    assert_eq!(simulation.control(op::SCHED_SET_POOL, [1, 0]), started);
    let mut share = [0; 6];
    for _ in 0..50 {
        share = simulation.control(op::SCHED_SHARE, [1, 0]).1;
    }
    assert_eq!(share[3..5], [0, 0]);
    let vms = |simulation: &mut Simulation| {
        [0, 1].map(|pool| simulation.control(op::SCHED_POOL, [pool, 1]).1[4])
    };
    assert_eq!(vms(&mut simulation), [0b11, 0]);
    let place = simulation.control(op::SCHED_VCPU, [1, 0]).1;
    assert_eq!(
        (place[0], place[4]),
        (0, 0b01),
        "on CPU 0, and allowed there"
    );
    // The pool outlives a restart.
    simulation.restart(0);
    simulation.steps(500);
    assert_eq!(vms(&mut simulation), [0b11, 0]);
    let unknown = (outcome::NOT_FOUND, [0; 6]);
    assert_eq!(simulation.control(op::SCHED_SET_POOL, [1, 2]), unknown);
    assert_eq!(simulation.control(op::SCHED_SET_POOL, [9, 0]), unknown);
}

#[test]
fn control_tells_pools() {
    let options = Options {
        own_pool: 1,
        balancer: Some(Balancer::Load),
        ..Options::default()
    };
    let plans = [plan(Guest::Works, &[0]), guest(1, Guest::Spins, &[1])];
    let mut simulation = Simulation::with_options(2, &plans, 9, options);
    simulation.steps(2_000);
    let mut pool = |place, half| simulation.control(op::SCHED_POOL, [place, half]);
    let word = |name: &[u8; 8]| u64::from_le_bytes(*name);
    let policy = [
        word(b"round-ro"),
        word(b"bin\0\0\0\0\0"),
        word(b"load\0\0\0\0"),
    ];
    for (place, name, cpus) in [(0, b"default\0", 0b01), (1, b"own\0\0\0\0\0", 0b10)] {
        assert_eq!(pool(place, 0), (outcome::OK, [word(name), 0, 0, 0, 0, 0]));
        let [first, second, balancer] = policy;
        // The one VM of each pool has the number of its CPU.
        let words = [first, second, balancer, cpus, cpus, SLICE];
        assert_eq!(pool(place, 1), (outcome::OK, words));
    }
    for (place, half) in [(2, 0), (u64::MAX, 1)] {
        assert_eq!(pool(place, half), (outcome::NOT_FOUND, [0; 6]));
    }
}

#[test]
fn control_refuses_places_that_do_not_exist() {
    let mut simulation = machine(&[guest(1, Guest::Spins, &[1])], 9);
    simulation.steps(2_000);
    let refusals = [
        (op::SCHED_CPU, [2, 0]),
        (op::SCHED_CPU, [u64::MAX, 0]),
        (op::SCHED_VCPU, [3, 0]),
        (op::SCHED_MOVE, [0, 7]),
        (op::SCHED_MOVE, [32, 0]),
        (op::SCHED_PIN, [0, 9]),
        (op::SCHED_CLOSE, [8, 1]),
    ];
    for (op, arguments) in refusals {
        let answer = simulation.control(op, arguments);
        assert_eq!(answer, (outcome::NOT_FOUND, [0; 6]), "{op} {arguments:?}");
    }
}

/// Numbers of reasons are those of the protocol.
#[test]
fn reasons_have_the_numbers_of_the_protocol() {
    use crate::machine::Stays;
    use crate::scheduler::Refused;
    let numbers = [
        (Stays::CpuIsOff, stays::CPU_IS_OFF),
        (Stays::Elsewhere, stays::ELSEWHERE),
        (Stays::Pinned, stays::PINNED),
        (Stays::Policy(Refused::Overload), stays::OVERLOAD),
        (Stays::Policy(Refused::BadBudget), stays::BAD_BUDGET),
        (Stays::Policy(Refused::Full), stays::FULL),
        (Stays::NoGain, stays::NO_GAIN),
        (Stays::NoOther, stays::NO_OTHER),
        (Stays::Changes, stays::CHANGES),
        (Stays::OutOfRange, stays::OUT_OF_RANGE),
        (Stays::Policy(Refused::Starves), stays::STARVES),
    ];
    for (reason, number) in numbers {
        assert_eq!(u64::from(reason.number()), number);
    }
}

fn edf(plans: &[Plan]) -> Simulation {
    scheduled_by("edf", plans)
}

/// A machine with a device VM of a vCPU on each of two CPUs.
fn scheduled_by(policy: &str, plans: &[Plan]) -> Simulation {
    let options = Options {
        policy: PolicyKind::named(policy),
        ..Options::default()
    };
    let mut plans = plans.to_vec();
    plans.insert(0, plan(Guest::Works, &[0, 1]));
    let simulation = Simulation::with_options(2, &plans, 5, options);
    // A server whose budget is used up waits, however idle the CPU is.
    simulation.world.borrow_mut().conserves = false;
    simulation
}

impl Simulation {
    /// Sets a parameter, and returns why it stays what it is, or 0.
    fn set(&mut self, vm: u64, what: [u64; 3]) -> u64 {
        let (outcome, words) = self.control_with(op::SCHED_SET, [vm, what[0], what[1], what[2]]);
        if outcome == outcome::STAYS {
            return words[0];
        }
        assert_eq!(outcome, outcome::STARTED);
        for _ in 0..1_000 {
            let words = self.control(op::SCHED_SHARE, [vm, 0]).1;
            if words[3] == 0 {
                return words[4];
            }
        }
        panic!("the change does not end");
    }

    fn budgets(&mut self, vm: u64) -> [u64; 4] {
        let words = self.control(op::SCHED_SHARE, [vm, 1]).1;
        [words[0], words[1], words[2], words[3]]
    }
}

#[test]
fn parameters_change_on_all_cpus_or_on_none() {
    let plans = [
        guest(1, Guest::Works, &[0, 1]),
        guest(1, Guest::Spins, &[1]),
    ];
    let mut simulation = edf(&plans);
    simulation.steps(3_000);
    let whole = [share::BUDGET, 6_000, 10_000];
    assert_eq!(simulation.set(1, whole), 0);
    assert_eq!(simulation.budgets(1), [0, 0, 6_000, 10_000]);
    // CPU 1 has no room for another one, so CPU 0 and CPU 1 keep what they have.
    assert_eq!(
        simulation.set(2, [share::BUDGET, 5_000, 10_000]),
        stays::OVERLOAD
    );
    assert_eq!(simulation.budgets(2), [0; 4]);
    // VM 0 has a vCPU on each CPU: both refuse.
    assert_eq!(
        simulation.set(0, [share::BUDGET, 5_000, 10_000]),
        stays::OVERLOAD
    );
    assert_eq!(simulation.set(2, [share::BUDGET, 3_500, 10_000]), 0);
    // CPU 0 has room for this, CPU 1 has not: neither takes it, whichever comes first.
    for _ in 0..12 {
        let nine = [share::BUDGET, 9_000, 10_000];
        assert_eq!(simulation.set(1, nine), stays::OVERLOAD);
        // Until what CPU 0 took back does not count any longer.
        simulation.steps(500);
    }
    assert_eq!(simulation.budgets(1), [0, 0, 6_000, 10_000]);
    assert_eq!(
        simulation.set(0, [share::BUDGET, 4_000, 10_000]),
        stays::OVERLOAD
    );
    // A budget that is given up counts until its deadline.
    assert_eq!(simulation.set(2, [share::BUDGET, 0, 0]), 0);
    simulation.steps(3_000);
    // All of the rest: nothing was lost to the changes that were taken back.
    assert_eq!(simulation.set(0, [share::BUDGET, 4_000, 10_000]), 0);
    assert_eq!(
        simulation.set(2, [share::BUDGET, 1_000, 10_000]),
        stays::OVERLOAD
    );
}

/// The least that a device VM needs is a twentieth of its CPU (M-SCH-023).
#[test]
fn budgets_leave_the_device_vm_time() {
    let mut simulation = edf(&[guest(1, Guest::Spins, &[0])]);
    simulation.steps(3_000);
    let budget = |us| [share::BUDGET, us, 10_000];
    assert_eq!(simulation.set(1, budget(9_600)), stays::STARVES);
    assert_eq!(simulation.set(1, budget(9_500)), 0);
    // With a budget of its own it needs no more, and cannot give that up.
    assert_eq!(simulation.set(0, budget(500)), 0);
    assert_eq!(simulation.set(1, budget(9_400)), 0);
    simulation.steps(3_000);
    assert_eq!(simulation.set(0, budget(600)), 0);
    assert_eq!(simulation.set(0, [share::BUDGET, 0, 0]), 0);
    simulation.steps(3_000);
    assert_eq!(simulation.set(0, budget(100)), 0);
    simulation.steps(3_000);
    assert_eq!(simulation.set(1, budget(9_900)), 0);
    assert_eq!(simulation.set(0, [share::BUDGET, 0, 0]), stays::STARVES);
    assert_eq!(simulation.budgets(0), [0, 0, 100, 10_000]);
}

#[test]
fn a_higher_priority_does_not_starve_the_device_vm() {
    let mut simulation = scheduled_by("priority", &[guest(1, Guest::Spins, &[0])]);
    simulation.steps(3_000);
    let priority = |number| [share::PRIORITY, number, 0];
    assert_eq!(simulation.set(1, priority(17)), stays::STARVES);
    assert_eq!(simulation.set(1, priority(16)), 0);
    assert_eq!(simulation.set(0, priority(15)), stays::STARVES);
    assert_eq!(simulation.set(0, priority(20)), 0);
    assert_eq!(simulation.set(1, priority(20)), 0);
    assert_eq!(simulation.set(0, priority(19)), stays::STARVES);
    // With another policy priorities mean nothing.
    let mut simulation = scheduled_by("fair", &[guest(1, Guest::Spins, &[0])]);
    simulation.steps(3_000);
    assert_eq!(simulation.set(1, priority(31)), 0);
}

#[test]
fn parameters_outlive_a_restart() {
    let mut simulation = edf(&[guest(1, Guest::Works, &[0, 1])]);
    simulation.steps(3_000);
    let settings = [
        [share::WEIGHT, 300, 0],
        [share::PRIORITY, 31, 0],
        [share::LATENCY, 250, 0],
        [share::CAP, 2_500, 10_000],
        [share::BUDGET, 1_000, 5_000],
    ];
    for setting in settings {
        assert_eq!(simulation.set(1, setting), 0, "{setting:?}");
    }
    for round in 0..2 {
        let words = simulation.control(op::SCHED_SHARE, [1, 0]).1;
        assert_eq!(words, [300, 31, 250, 0, 0, 0], "{round}");
        assert_eq!(simulation.budgets(1), [2_500, 10_000, 1_000, 5_000]);
        let others = simulation.control(op::SCHED_SHARE, [0, 0]).1;
        assert_eq!(others, [100, 16, 0, 0, 0, 0]);
        simulation.restart(0);
        simulation.steps(500);
    }
}

#[test]
fn parameters_out_of_range_are_refused() {
    let mut simulation = edf(&[guest(1, Guest::Works, &[0, 1])]);
    simulation.steps(3_000);
    let bad = [
        [share::WEIGHT, 0, 0],
        [share::WEIGHT, 1_001, 0],
        [share::PRIORITY, 32, 0],
        [share::LATENCY, 1_000_001, 0],
        [share::CAP, 20, 10],
        [share::CAP, 101, 100],
        [share::BUDGET, u64::MAX, u64::MAX],
    ];
    for setting in bad {
        assert_eq!(
            simulation.set(1, setting),
            stays::OUT_OF_RANGE,
            "{setting:?}"
        );
    }
    let unknown = simulation.control_with(op::SCHED_SET, [1, 9, 1, 1]);
    assert_eq!(unknown.0, outcome::NOT_FOUND);
}

/// Moves and changes at the same time: nothing is half done.
#[test]
fn parameters_change_while_vcpus_move() {
    let mut simulation = edf(&[guest(1, Guest::Works, &[0, 1, 0])]);
    simulation.steps(3_000);
    for round in 0..200 {
        let (vcpu, to) = (2 + round % 3, round / 2 % 2);
        let _ = simulation.control(op::SCHED_MOVE, [vcpu, to]);
        let budget = 1_000 + round % 7 * 400;
        let before = simulation.budgets(1);
        let why = simulation.set(1, [share::BUDGET, budget, 10_000]);
        let after = simulation.budgets(1);
        match why {
            0 => assert_eq!(after, [0, 0, budget, 10_000]),
            stays::OVERLOAD | stays::STARVES => assert_eq!(after, before),
            _ => panic!("reason {why}"),
        }
    }
}
