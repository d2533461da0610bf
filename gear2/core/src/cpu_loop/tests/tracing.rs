//! Traces: all loops begin and end one together, and note their vCPUs.
//!
//! Requirements: G1-TRC-001.

use core::sync::atomic::Ordering::Relaxed;

use gear1_abi::exit::ExitReason;
use gear2_protocol::{op, outcome, traced};

use super::*;
use crate::simulator::Options;

const BEGIN: u64 = 1;
const END: u64 = 0;
const TELL: u64 = 2;

/// A device VM and a guest of two vCPUs, on two CPUs.
fn machine(rings: bool) -> Simulation {
    let plans = [plan(Guest::Works, &[0]), plan(Guest::Works, &[0, 1])];
    let options = Options {
        rings,
        ..Options::default()
    };
    let mut simulation = Simulation::with_options(2, &plans, 7, options);
    simulation.steps(2_000);
    simulation
}

/// Has all loops begin a trace, or end it.
fn order(simulation: &mut Simulation, mode: u64) -> [u64; 6] {
    for _ in 0..100 {
        match simulation.control(op::TRACE, [mode, 0]) {
            (outcome::BUSY, _) => simulation.steps(100),
            (outcome::OK, words) => return words,
            other => panic!("{other:?}"),
        }
    }
    panic!("a loop does not carry out the order");
}

/// Returns the records of a ring, as the device model gets them, and the cursor behind them.
fn read(simulation: &mut Simulation, ring: u64, cursor: u64) -> (Vec<[u64; 2]>, u64) {
    let (done, [next, count, ..]) = simulation.control(op::TRACE_READ, [ring, cursor]);
    assert_eq!(done, outcome::OK);
    let world = simulation.world.borrow();
    let words = &world.gdm.as_ref().unwrap().region.trace;
    let words: Vec<u64> = words.iter().map(|word| word.load(Relaxed)).collect();
    let records = words.as_chunks().0[..count as usize].to_vec();
    (records, next)
}

#[test]
fn without_rings_nothing_is_traced() {
    let mut simulation = machine(false);
    for mode in [BEGIN, END, TELL] {
        assert_eq!(
            simulation.control(op::TRACE, [mode, 0]).0,
            outcome::NOT_FOUND
        );
    }
    assert_eq!(
        simulation.control(op::TRACE_READ, [0, 0]).0,
        outcome::NOT_FOUND
    );
    assert_eq!(
        simulation.control(op::TRACE_NOTE, [0, 0]).0,
        outcome::NOT_FOUND
    );
}

#[test]
fn a_gear1_without_tracing_says_so() {
    let mut simulation = machine(true);
    simulation.world.borrow_mut().has_rings = false;
    assert_eq!(
        simulation.control(op::TRACE, [BEGIN, 0]).0,
        outcome::UNKNOWN
    );
    assert_eq!(simulation.control(op::TRACE, [TELL, 0]).0, outcome::OK);
}

#[test]
fn all_loops_begin_and_end_together() {
    let mut simulation = machine(true);
    assert_eq!(simulation.traces(), [false; 2]);
    let words = order(&mut simulation, BEGIN);
    assert_eq!(simulation.traces(), [true; 2]);
    assert_eq!(words[..4], [0x1000, 0x8000, 0, 0b11]);
    simulation.steps(500);
    // One note is none of a whole trace.
    assert_eq!(
        simulation.control(op::TRACE_NOTE, [1, 0]).0,
        outcome::NOT_FOUND
    );
    order(&mut simulation, END);
    assert_eq!(simulation.traces(), [false; 2]);
    for vcpu in 0..3 {
        let (done, [count, ..]) = simulation.control(op::TRACE_NOTE, [vcpu, 0]);
        assert_eq!((done, count), (outcome::OK, ExitReason::COUNT as u64));
        let world = simulation.world.borrow();
        let words = &world.gdm.as_ref().unwrap().region.trace;
        let [begin, end] = [0, 1 + ExitReason::COUNT].map(|at| words[at].load(Relaxed));
        assert!(begin < end && words[1].load(Relaxed) == 7);
    }
    assert_eq!(
        simulation.control(op::TRACE_NOTE, [3, 0]).0,
        outcome::NOT_FOUND
    );
}

#[test]
fn decisions_are_recorded_while_a_trace_lasts() {
    let mut simulation = machine(true);
    order(&mut simulation, BEGIN);
    simulation.steps(1_000);
    order(&mut simulation, END);
    let mut ends = vec![];
    // Ring 8 is that of CPU 0, with the device VM's vCPU and one of the guest's.
    for (ring, own) in [(8, [0, 1, 2]), (9, [0, 3, 3])] {
        let (records, _) = read(&mut simulation, ring, 0);
        let all = |what: u32| {
            records
                .iter()
                .filter(move |[_, word]| word >> 32 == u64::from(what))
        };
        assert!(all(traced::CHOSEN).count() > 10, "{records:x?}");
        assert!(all(traced::WOKEN).count() > 1 && all(traced::BLOCKED).count() > 1);
        assert!(records.is_sorted_by_key(|[time, _]| *time));
        let vcpus = records.iter().map(|[_, word]| word & 0xffff_ffff);
        assert!(vcpus.into_iter().all(|vcpu| own.contains(&vcpu)));
        ends.push(read(&mut simulation, ring, u64::MAX).1);
    }
    simulation.steps(1_000);
    for (ring, end) in [8, 9].into_iter().zip(ends) {
        assert_eq!(read(&mut simulation, ring, u64::MAX).1, end);
    }
    // Another trace goes on behind the first one.
    order(&mut simulation, BEGIN);
    assert_eq!(simulation.traces(), [true; 2]);
}

#[test]
fn a_restarted_gear2_traces_no_longer() {
    let mut simulation = machine(true);
    order(&mut simulation, BEGIN);
    simulation.restart(0);
    assert_eq!(simulation.traces(), [false; 2]);
}
