//! The control mailbox's operations on scheduling.

use gear2_protocol::stays;

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
    ];
    for (reason, number) in numbers {
        assert_eq!(u64::from(reason.number()), number);
    }
}
