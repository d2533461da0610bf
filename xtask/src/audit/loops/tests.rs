//! Loops of functions given as words, and names.

use super::super::code::Function;
use super::{body, is_retry, returns};

const NOP: u32 = 0xd503_201f;
const RET: u32 = 0xd65f_03c0;
const LDAXR: u32 = 0xc85f_fc28;
const ADD: u32 = 0x9100_0508;
const CMP: u32 = 0xf100_011f;
const STLXR: u32 = 0xc809_fc28;
const BL: u32 = 0x9400_0100;

/// Returns `CBNZ X0` with an offset of `by` instructions.
fn back(by: i32) -> u32 {
    0xb500_0000 | (by as u32 & 0x7_ffff) << 5
}

fn function(words: &[u32]) -> Function {
    let words = (0..).step_by(4).zip(words.iter().copied());
    Function::new("f".to_owned(), true, words)
}

#[test]
fn nested_loops_are_two_and_a_way_forward_is_none() {
    let nested = function(&[NOP, NOP, back(-1), back(-3), RET]);
    let found = returns(0, &nested);
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [0, 4]);
    assert_eq!(
        body(&nested, 4, &found[&4]).into_iter().collect::<Vec<_>>(),
        [4, 8]
    );
    assert!(returns(0, &function(&[back(2), NOP, RET])).is_empty());
}

/// An atomic addition, as the compiler lays it out: `LDAXR`, `ADD`, `STLXR W9`, `CBNZ W9`.
const ATOMIC: [u32; 4] = [LDAXR, ADD, STLXR, 0x35ff_ffa9];

fn retries(words: &[u32]) -> Vec<bool> {
    let function = function(words);
    let found = returns(0, &function);
    let of = |(head, tails): (&u64, &Vec<u64>)| {
        let body = body(&function, *head, tails);
        is_retry(&function, *head, tails, &body)
    };
    found.iter().map(of).collect()
}

#[test]
fn an_atomic_change_of_a_word_is_a_retry() {
    assert_eq!(retries(&ATOMIC), [true]);
    // A comparison leaves: `CMP`, `B.NE` behind the loop.
    let exchange = [LDAXR, CMP, 0x5400_0061, STLXR, 0x35ff_ff89, RET];
    assert_eq!(retries(&exchange), [true]);
    // `CBZ W9` passes over `B` back.
    let [load, add, store, _] = ATOMIC;
    assert_eq!(
        retries(&[load, add, store, 0x3400_0049, 0x17ff_fffc, RET]),
        [true]
    );
}

#[test]
fn a_loop_with_an_atomic_change_inside_is_no_retry() {
    let [load, add, store, again] = ATOMIC;
    // Around the change, what counts; the change itself is one still.
    assert_eq!(
        retries(&[NOP, load, add, store, again, back(-5), RET]),
        [false, true]
    );
    // A change that begins at once.
    assert_eq!(retries(&[load, add, store, again, back(-4), RET]), [false]);
    // Waits until the word has another value: `CMP`, `B.NE` to the load.
    let waits = [LDAXR, CMP, 0x54ff_ffc1, STLXR, 0x35ff_ff89, RET];
    assert_eq!(retries(&waits), [false]);
    // Another register than the store's, a store too far off, a call.
    assert_eq!(retries(&[load, add, store, 0x35ff_ffa8, RET]), [false]);
    assert_eq!(retries(&[load, add, store, NOP, 0x35ff_ff89, RET]), [false]);
    assert_eq!(retries(&[load, BL, store, again, RET]), [false]);
}
