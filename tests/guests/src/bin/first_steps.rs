//! The shortest guest worth reading: one check of a register, one of an interrupt.
//!
//! CONTRIBUTING.md ("A test guest") names the places that make a guest part of the tests.
//!
//! Requirements: G1-TIM-003.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU32, Ordering};

use test_guests::{Machine, check, cpu, gic, guest, report, timer};

guest!(main, irq = on_interrupt);

/// Delay of the timer.
const DELAY_US: u64 = 100;

static TICKS: AtomicU32 = AtomicU32::new(0);

fn main(machine: &Machine) {
    check!("has-cpus", machine.cpus > 0, "{}", machine.cpus);
    gic::enable(timer::INTID);
    timer::arm(timer::now() + timer::from_us(DELAY_US));
    // Interrupts are masked until here: unmasked, one that came just before WFI would be missed.
    cpu::sleep_until(|| TICKS.load(Ordering::Relaxed) != 0);
    timer::delay_us(DELAY_US);
    report::equal("one-tick", TICKS.load(Ordering::Relaxed), 1);
}

fn on_interrupt(intid: u32) {
    if intid == timer::INTID {
        timer::disarm();
        TICKS.fetch_add(1, Ordering::Relaxed);
    }
}
