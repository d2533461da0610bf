//! A kernel with Dhrystone's mix: assignments of records and integers, strings that are compared
//! and copied, arrays, branches and calls. Written anew after the description of that mix.

use std::hint::black_box;

/// Text of 30 bytes, as long as Dhrystone's, and one that differs from it late.
const FIRST: [u8; 30] = *b"a text of thirty bytes, first!";
const SECOND: [u8; 30] = *b"a text of thirty bytes, other!";
/// Rows and columns of the table.
const SIDE: usize = 50;

/// A record that is assigned as a whole.
#[derive(Clone)]
struct Record {
    kind: Kind,
    count: u64,
    text: [u8; 30],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    One,
    Two,
    Three,
}

/// State between rounds.
struct State {
    record: Record,
    row: [u64; SIDE],
    table: Box<[[u64; SIDE]; SIDE]>,
}

/// Runs so many rounds. The state is opaque to the compiler in each, which would else carry parts of
/// it in registers from round to round.
pub(super) fn run(rounds: u64) -> u64 {
    let mut state = State {
        record: Record {
            kind: Kind::One,
            count: 0,
            text: FIRST,
        },
        row: [0; SIDE],
        table: Box::new([[0; SIDE]; SIDE]),
    };
    for number in 0..rounds {
        round(black_box(&mut state), number);
    }
    state.record.count
}

/// One round: texts, numbers, arrays, and a record that is copied and changed.
fn round(state: &mut State, number: u64) {
    let is_even = number.is_multiple_of(2);
    let text = if is_even { FIRST } else { SECOND };
    let is_later = is_later(black_box(&text), &state.record.text);
    let mut value = 2_u64;
    while value < 6 {
        value = mix(value, number) % 5 + value + 1;
    }
    fill(state, value as usize, number);
    let next = change(&state.record, is_later, value);
    state.record = Record { text, ..next };
}

/// Compares byte by byte, as C's `strcmp` does.
#[inline(never)]
fn is_later(one: &[u8; 30], other: &[u8; 30]) -> bool {
    let mut pairs = one.iter().zip(other);
    let first = pairs.find(|(one, other)| one != other);
    first.is_some_and(|(one, other)| one > other)
}

/// Multiplies, divides and subtracts.
#[inline(never)]
fn mix(value: u64, number: u64) -> u64 {
    let product = value.wrapping_mul(number.wrapping_add(3));
    7 * (product - product / 3) - value
}

/// Stores to the arrays around a place.
#[inline(never)]
fn fill(state: &mut State, place: usize, number: u64) {
    let place = place % (SIDE / 2);
    state.row[place] = number;
    state.row[place + 1] = state.row[place];
    state.row[place + 20] = place as u64;
    for column in place..place + 2 {
        state.table[place][column] = state.row[place];
    }
    state.table[place + 20][place] += 1;
}

/// Copies the record, with another kind and count.
#[inline(never)]
fn change(record: &Record, is_later: bool, value: u64) -> Record {
    let kind = match (record.kind, is_later) {
        (Kind::One, _) => Kind::Two,
        (Kind::Two, true) => Kind::Three,
        (Kind::Two, false) | (Kind::Three, _) => Kind::One,
    };
    let more = if kind == Kind::Three { value } else { 1 };
    Record {
        kind,
        count: record.count + more,
        ..record.clone()
    }
}
