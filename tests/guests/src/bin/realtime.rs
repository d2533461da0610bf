//! A real-time VM with the machine's own interrupt controller: see `test_guests::realtime`.
#![no_std]
#![no_main]

use test_guests::realtime::{self, Mode};
use test_guests::{Machine, guest};

guest!(
    main,
    irq = realtime::on_interrupt,
    other_cpu = realtime::other
);

/// `realtime_emulated` runs the same checks with the virtual interrupt controller: in both modes a
/// real-time VM may have the exits that its own actions cause, and no other.
fn main(machine: &Machine) {
    realtime::main(machine, Mode::PassThrough);
}
