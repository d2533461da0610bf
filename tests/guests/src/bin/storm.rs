//! Two CPUs that interrupt each other as fast as they can, for ever.
//!
//! The guest is a neighbour and judges nothing: each SGI is an exit, and most of them kick another
//! CPU. Beside a real-time VM, none of that work may reach the VM's CPUs (G1-RT-008).
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use test_guests::{Machine, cpu, gic, guest, psci, say};

guest!(main, irq = on_interrupt, other_cpu = storm);

/// One INTID for all, so that SGIs meet themselves pending and active.
const SGI: u32 = 5;
/// Interrupts between two report lines. The host sees by the lines that the storm goes on.
const REPORT: u64 = 5000;

/// Interrupts of both CPUs. Equal SGIs merge while pending, so that fewer come than are sent.
static TAKEN: AtomicU64 = AtomicU64::new(0);

fn main(_machine: &Machine) {
    psci::cpu_on(1);
    say!("begins");
    storm(0);
}

/// By both forms, a list of targets with the sender in it and the filter for all others, as Gear1
/// handles one target and several by different paths.
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
