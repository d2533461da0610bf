//! Who takes over when another VM fails. The command line says which this is: `role=1` is the
//! standby of a VM that cannot go on.
#![no_std]
#![no_main]

use test_guests::{Machine, guest, report};

guest!(main);

fn main(machine: &Machine) {
    match machine.option("role") {
        Some(1) => report::pass("the-standby-runs"),
        role => report::fail("role", format_args!("{role:?}")),
    }
}
