use std::vec::Vec;

use super::{SetWay, Step, Time};

const PIECE: u64 = 0x8000;
const TOTAL: u64 = 10 * PIECE + 0x3000;
/// Longest pause between two instructions of one walk.
const PAUSE: u64 = 1_000;

/// A vCPU and the time.
struct Vcpu {
    state: SetWay,
    now: u64,
}

impl Vcpu {
    fn new() -> Vcpu {
        Vcpu {
            state: SetWay::NONE,
            now: 1 << 40,
        }
    }

    /// Executes one trap.
    fn step(&mut self, operand: u64) -> Step {
        self.now += 10;
        let time = Time {
            now: self.now,
            pause: PAUSE,
        };
        self.state.step(operand, time, TOTAL, PIECE)
    }

    /// Runs one instruction until it is done; returns the pieces cleaned.
    fn run(&mut self, operand: u64) -> Vec<u64> {
        let mut pieces = Vec::new();
        while let Step::Piece(at) = self.step(operand) {
            pieces.push(at);
            assert!(pieces.len() < 100, "it does not end");
        }
        pieces
    }

    /// Runs a walk and returns what each instruction cleaned that cleaned anything.
    fn walk(&mut self, operands: impl IntoIterator<Item = u64>) -> Vec<Vec<u64>> {
        let each = operands.into_iter().map(|operand| self.run(operand));
        each.filter(|pieces| !pieces.is_empty()).collect()
    }
}

/// All sets and ways of a level, upwards or downwards.
fn level(level: u64, downwards: bool) -> Vec<u64> {
    let operands = (0..4_u64).flat_map(|way| (0..16_u64).map(move |set| way << 30 | set << 6));
    let mut operands: Vec<u64> = operands.map(|operand| operand | level << 1).collect();
    if downwards {
        operands.reverse();
    }
    operands
}

/// All levels.
fn levels(downwards: bool) -> impl Iterator<Item = u64> {
    (0..3).flat_map(move |number| level(number, downwards))
}

fn all() -> Vec<u64> {
    (0..11).map(|piece| piece * PIECE).collect()
}

/// G1-CPU-005: once for a walk over all levels, all of the memory, piece by piece.
#[test]
fn a_walk_cleans_everything_once() {
    let mut vcpu = Vcpu::new();
    for _ in 0..3 {
        assert_eq!(vcpu.walk(levels(false)), [all()]);
    }
}

/// G1-CPU-005: caches that are shown with one set and one way.
#[test]
fn each_walk_over_one_set_cleans_everything() {
    let mut vcpu = Vcpu::new();
    for _ in 0..3 {
        assert_eq!(vcpu.walk([0, 1 << 1, 2 << 1]), [all()]);
    }
}

/// G1-CPU-005: wherever a later walk begins, everything is cleaned before it ends.
#[test]
fn a_later_walk_may_go_the_other_way() {
    let mut vcpu = Vcpu::new();
    for downwards in [false, true, true, false] {
        vcpu.now += 10 * PAUSE;
        assert_eq!(vcpu.walk(level(0, downwards)), [all()]);
    }
    for downwards in [true, false, true] {
        assert_eq!(vcpu.walk(level(0, downwards)), [all()], "without a pause");
    }
}

/// G1-CPU-005: a walk over another level is another walk if time has passed, in which the guest's
/// data may have come there.
#[test]
fn a_pause_makes_another_walk() {
    let mut vcpu = Vcpu::new();
    assert_eq!(vcpu.walk(level(0, false)), [all()]);
    vcpu.now += PAUSE + 1;
    assert_eq!(vcpu.walk(level(1, false)), [all()]);
    vcpu.now += PAUSE - 10;
    assert!(vcpu.walk(level(2, false)).is_empty());
}

/// G1-CPU-005: an operation of an interrupt handler in the middle continues the same work.
#[test]
fn an_interrupted_walk_comes_to_its_end() {
    let mut vcpu = Vcpu::new();
    assert_eq!(vcpu.step(0), Step::Piece(0));
    assert_eq!(vcpu.run(1 << 6).len(), 10);
    assert_eq!(vcpu.run(0).len(), 11, "the first began anew");
    assert!(vcpu.run(2 << 6).is_empty());
}

/// G1-CPU-005: whatever the operand says.
#[test]
fn every_operand_ends() {
    for level in 0..8 {
        assert_eq!(Vcpu::new().run(level << 1 | 1 << 60), all());
    }
    let mut state = SetWay::NONE;
    let time = Time {
        now: 0,
        pause: PAUSE,
    };
    assert_eq!(state.step(0, time, 0, PIECE), Step::Done, "no memory");
}
