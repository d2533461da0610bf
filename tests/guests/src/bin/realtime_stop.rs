//! A real-time VM that is stopped and started in every state: its start's number, which its UART
//! keeps, says what it does this time.
//!
//! Requirements: G1-RT-005, G1-RT-006, G1-RT-007.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use test_guests::exception::ignore;
use test_guests::mmio::{read32, read64, write32, write64};
use test_guests::{Machine, check, cpu, gic, guest, psci, say, uart, write_sysreg};

guest!(main, irq = ignore, other_cpu = other);

/// PL011: fractional divisor, which a restart of the VM does not touch.
const FBRD: u64 = 0x28;
/// Nobody's, in every machine of the tests.
const NOWHERE: u64 = 0xf000_0000;
/// Into the memory that nothing of the image lies in.
const BEHIND_IMAGE: u64 = 8 << 20;

/// What both CPUs do: 0 spin, else wait.
static WAIT: AtomicU32 = AtomicU32::new(0);

fn main(machine: &Machine) {
    let start = read32(uart::base() + FBRD);
    write32(uart::base() + FBRD, start + 1);
    say!("start {start}");
    let old = read64(machine.ram.start + BEHIND_IMAGE);
    check!("wiped", old == 0, "{old:#x}");
    write64(machine.ram.start + BEHIND_IMAGE, u64::MAX);
    match start {
        // Nothing that they do traps, and no interrupt gets to them.
        0 | 6 => both(0, start),
        1 => both(1, start),
        2 => stay(0, start),
        3 => {
            say!("faults");
            write_sysreg!("vbar_el1", NOWHERE);
            read32(NOWHERE);
        }
        4 => psci::system_reset(),
        5 => psci::system_off(),
        _ => {
            gic::set_delivery(false);
            stay(1, start);
        }
    }
}

fn both(wait: u32, start: u32) {
    WAIT.store(wait, Relaxed);
    psci::cpu_on(1);
    stay(wait, start);
}

fn other(_cpu: usize) {
    forever(WAIT.load(Relaxed));
}

fn stay(wait: u32, start: u32) {
    say!("ready {start}");
    forever(wait);
}

fn forever(wait: u32) {
    cpu::mask_irqs();
    loop {
        if wait == 0 {
            cpu::relax();
        } else {
            cpu::wfi();
        }
    }
}
