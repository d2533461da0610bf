//! Cannot go on and is not started again: its vectors are where nothing is. Its second CPU, which
//! does nothing wrong, ends with it.
#![no_std]
#![no_main]

use test_guests::exception::ignore;
use test_guests::{Machine, cpu, guest, mmio, psci, report, write_sysreg};

guest!(main, irq = ignore, other_cpu = other);

/// Nobody's, in every machine of the tests.
const NOWHERE: u64 = 0xf000_0000;

fn main(_machine: &Machine) {
    psci::cpu_on(1);
    write_sysreg!("vbar_el1", NOWHERE);
    mmio::read32(NOWHERE);
    report::fail("stuck", format_args!("it goes on"));
}

/// A vCPU that runs has to be asked to leave when its VM ends by another vCPU's fault.
fn other(_cpu: usize) {
    cpu::wait_until(|| false);
}
