//! Resets its VM as soon as it runs, for ever.
#![no_std]
#![no_main]

use test_guests::{Machine, guest, psci, timer};

guest!(main);

fn main(_machine: &Machine) {
    timer::delay_us(100);
    psci::system_reset();
}
