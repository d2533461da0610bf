//! Prints the time of its first instruction: `FIRST <ns> <address>`, of the physical counter, which
//! starts with the machine.
//!
//! `cargo xtask bench --footprint` replaces VMs' kernels by this guest.
#![no_std]
#![no_main]

use test_guests::{Machine, boot, guest, say, timer};

guest!(main);

fn main(_machine: &Machine) {
    let first = timer::to_ns(boot::first_count());
    say!("FIRST {first} {:#x}", boot::first_address());
}
