//! Attacks everything at random, as another VM does: `seed=` and `operations=` in the command line.
//! Then checks that its own machine still works.
//!
//! Requirements: G1-RUN-002, G1-FLT-001, G1-GIC-004, G1-MEM-012, G1-CPU-002.
#![no_std]
#![no_main]

use test_guests::attack::{Attacker, KINDS};
use test_guests::mmio::{read64, write64};
use test_guests::{Machine, check, cpu, guest, say, timer, uart};

guest!(main);

const OPERATIONS: u64 = 20_000;
/// Behind the image, and what its stacks need.
const SCRATCH: u64 = 8 << 20;
/// A word behind what the attacks may spoil.
const CANARY: u64 = 10 << 20;
/// 32 KiB, of which one word that differs is enough.
const WORDS: u64 = 4096;
/// `uart::enable` comes before each, as a step may have turned the UART off.
const REPORTS: u64 = 10;

fn main(machine: &Machine) {
    let seed = machine.option("seed").unwrap_or(1);
    let operations = machine.option("operations").unwrap_or(OPERATIONS);
    say!("seed {seed}, {operations} operations");
    let canary = machine.ram.start + CANARY;
    for word in 0..WORDS {
        write64(canary + word * 8, pattern(seed, word));
    }
    let mut attacker = Attacker::new(seed, machine.ram.start + SCRATCH);
    for count in 1..=operations {
        attacker.step(machine);
        if count % (operations / REPORTS).max(1) == 0 {
            uart::enable();
            say!("OPERATIONS {count}");
        }
    }
    uart::enable();
    for (kind, count) in KINDS.iter().zip(attacker.counts) {
        say!("{count} of {kind}");
    }
    check_memory(canary, seed);
    // The delay needs no interrupt: the interrupt controller is as the attacks left it.
    let start = timer::now();
    cpu::wait_until(|| timer::now() - start >= timer::from_us(1000));
}

/// Returns a word of the memory behind the scratch memory that the attacks may spoil. The seed is
/// part of it, so that two VMs with this guest have different memory.
fn pattern(seed: u64, word: u64) -> u64 {
    (word + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Pages that the attacks lend by FF-A may be written by others; the canary is behind them.
fn check_memory(canary: u64, seed: u64) {
    let wrong = (0..WORDS)
        .filter(|word| read64(canary + word * 8) != pattern(seed, *word))
        .count();
    check!("own-memory-unchanged", wrong == 0, "{wrong} words");
}
