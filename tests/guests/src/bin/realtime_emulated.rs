//! A real-time VM with the virtual interrupt controller: see `test_guests::realtime`. A binary of
//! its own, since a mode is a fact of the manifest that the guest cannot see.
#![no_std]
#![no_main]

use test_guests::realtime::{self, Mode};
use test_guests::{Machine, guest};

guest!(
    main,
    irq = realtime::on_interrupt,
    other_cpu = realtime::other
);

/// The mode decides which exit counts are right.
fn main(machine: &Machine) {
    realtime::main(machine, Mode::Emulated);
}
