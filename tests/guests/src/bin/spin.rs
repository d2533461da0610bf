//! Spins, and measures its share of the CPU: two instances run on one CPU, and each gets half.
//!
//! Another guest ran when more time passes between two adjacent reads of the counter than an
//! interrupt takes.
//!
//! Requirements: G1-RUN-006, G1-TIM-008.
#![no_std]
#![no_main]

use test_guests::{Machine, check, guest, timer};

guest!(main);

/// A gap from here on is a time slice of somebody else's.
const GAP_US: u64 = 500;
const MEASURED_US: u64 = 1_000_000;
/// Goes on for so long afterwards: the other one measures still.
const AFTERWARDS_US: u64 = 300_000;
/// Gives up waiting for the other one after so long.
const ALONE_US: u64 = 3_000_000;

fn main(_machine: &Machine) {
    let stolen = |us| stolen_within(timer::from_us(us), false);
    let wait = stolen_within(timer::from_us(ALONE_US), true);
    check!("shares-the-cpu", wait != 0, "alone");
    let share = 1000 - stolen(MEASURED_US) * 1000 / timer::from_us(MEASURED_US);
    check!(
        "half-the-cpu",
        (450..=550).contains(&share),
        "{share} per mille"
    );
    stolen(AFTERWARDS_US);
}

/// Spins for `ticks`, or until the first gap, and returns how many of them were somebody else's.
fn stolen_within(ticks: u64, until_first: bool) -> u64 {
    let gap = timer::from_us(GAP_US);
    let start = timer::now();
    let (mut last, mut stolen) = (start, 0);
    while last - start < ticks && !(until_first && stolen != 0) {
        let now = timer::now();
        if now - last >= gap {
            stolen += now - last;
        }
        last = now;
    }
    stolen
}
