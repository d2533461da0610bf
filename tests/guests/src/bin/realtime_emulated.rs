//! A real-time VM with the virtual interrupt controller: see `test_guests::realtime`.
#![no_std]
#![no_main]

use test_guests::realtime::{self, Mode};
use test_guests::{Machine, guest};

guest!(
    main,
    irq = realtime::on_interrupt,
    other_cpu = realtime::other
);

fn main(machine: &Machine) {
    realtime::main(machine, Mode::Emulated);
}
