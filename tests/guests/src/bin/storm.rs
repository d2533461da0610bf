//! Two CPUs that interrupt each other as fast as they can, for ever.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use test_guests::{Machine, cpu, gic, guest, psci, say};

guest!(main, irq = on_interrupt, other_cpu = storm);

const SGI: u32 = 5;
/// Interrupts between two report lines.
const REPORT: u64 = 5000;

static TAKEN: AtomicU64 = AtomicU64::new(0);

fn main(_machine: &Machine) {
    psci::cpu_on(1);
    say!("begins");
    storm(0);
}

fn storm(index: usize) {
    gic::enable(SGI);
    cpu::unmask_irqs();
    let mut next = REPORT;
    loop {
        gic::send_sgi_to(0b11, SGI);
        gic::send_sgi_to_others(SGI);
        if index == 0 && TAKEN.load(Relaxed) >= next {
            next += REPORT;
            say!("TAKEN {}", TAKEN.load(Relaxed));
        }
        cpu::relax();
    }
}

fn on_interrupt(_intid: u32) {
    TAKEN.fetch_add(1, Relaxed);
}
