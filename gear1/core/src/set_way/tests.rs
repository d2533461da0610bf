use std::vec::Vec;

use super::{SetWay, Step};

const PIECE: u64 = 0x1_0000;
const TOTAL: u64 = 10 * PIECE + 0x3000;

/// Runs one instruction until it is done; returns the pieces cleaned.
fn run(state: &mut SetWay, operand: u64) -> Vec<u64> {
    let mut pieces = Vec::new();
    while let Step::Piece(at) = state.step(operand, TOTAL, PIECE) {
        pieces.push(at);
        assert!(pieces.len() < 100, "it does not end");
    }
    pieces
}

/// All sets and ways of a level, upwards or downwards.
fn walk(level: u64, downwards: bool) -> Vec<u64> {
    let operands = (0..4_u64).flat_map(|way| (0..16_u64).map(move |set| way << 30 | set << 6));
    let mut operands: Vec<u64> = operands.map(|operand| operand | level << 1).collect();
    if downwards {
        operands.reverse();
    }
    operands
}

fn all() -> Vec<u64> {
    (0..11).map(|piece| piece * PIECE).collect()
}

/// G1-CPU-005: once for a walk over a level, all of the memory, piece by piece.
#[test]
fn a_walk_cleans_everything_once() {
    let mut state = SetWay::NONE;
    for _ in 0..3 {
        for level in 0..2 {
            let cleaned: Vec<_> = walk(level, false)
                .into_iter()
                .map(|operand| run(&mut state, operand))
                .filter(|pieces| !pieces.is_empty())
                .collect();
            assert_eq!(cleaned, [all()]);
        }
    }
}

/// G1-CPU-005: wherever a later walk begins.
#[test]
fn a_later_walk_may_go_the_other_way() {
    let mut state = SetWay::NONE;
    for downwards in [false, true, true, false] {
        let mut count = 0;
        for operand in walk(0, downwards) {
            count += run(&mut state, operand).len();
        }
        assert_eq!(count, 11);
    }
}

/// G1-CPU-005: an operation of an interrupt handler in the middle goes on with the same work.
#[test]
fn an_interrupted_walk_comes_to_its_end() {
    let mut state = SetWay::NONE;
    assert_eq!(state.step(0, TOTAL, PIECE), Step::Piece(0));
    assert_eq!(run(&mut state, 1 << 6).len(), 10);
    assert_eq!(run(&mut state, 0).len(), 11, "the first began anew");
    assert!(run(&mut state, 2 << 6).is_empty());
}

/// G1-CPU-005: whatever the operand says.
#[test]
fn every_operand_ends() {
    for level in 0..8 {
        let mut state = SetWay::NONE;
        assert_eq!(run(&mut state, level << 1 | 1 << 60), all());
    }
    let mut state = SetWay::NONE;
    assert_eq!(state.step(0, 0, PIECE), Step::Done, "no memory");
}
