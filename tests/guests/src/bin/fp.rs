//! Keeps changing patterns in all FP/SIMD registers over 10,000 switches to another guest that
//! does the same on the same CPU: each finds its own.
//!
//! Requirements: G1-RUN-004.
#![no_std]
#![no_main]

use gear1_abi::exit::ExitReason;
use test_guests::fp::{self, Registers};
use test_guests::{Machine, check, guest, say, stats, timer};

guest!(main);

const SWITCHES: u64 = 10_000;
/// Further rounds at the end, because the other guest is still counting. A guest that ended first
/// would leave the other one without switches.
const AFTERWARDS: u64 = 500;
/// A lazy switch happens only when both use FP in turn; without it the loop would not end.
const MOST_ROUNDS: u64 = 20 * SWITCHES;
/// Long enough for the other one to get the CPU. WFI is the moment of the switch: no FP instruction
/// is between load and look.
const SLEEP_US: u64 = 10;

/// The first use of FP traps (CPTR_EL2.TFP): Gear1 must load zeros and not what another guest left
/// (G1-RUN-004).
fn main(machine: &Machine) {
    fp::enable();
    let first = Registers::current();
    let clear = Registers {
        q: [0; 32],
        fpcr: 0,
        fpsr: 0,
    };
    check!("clear-at-boot", first == clear, "{first:x?}");
    let seed = machine.ram.start;
    if machine.gearv {
        let (rounds, lost) = switch(seed);
        let switches = stats::exits(ExitReason::Fp);
        verdict(rounds, lost, switches);
        let enough = switches >= SWITCHES;
        check!("switches", enough, "{switches} in {rounds} rounds");
    } else {
        let (rounds, lost) = keep(seed, 0, SWITCHES);
        verdict(rounds, lost, 0);
    }
}

fn verdict(rounds: u64, lost: u64, switches: u64) {
    say!("{rounds} rounds, {switches} switches");
    check!("patterns-kept", lost == 0, "{lost} of {rounds} lost");
}

/// Goes on until Gear1 has switched FP state often enough; returns rounds and lost patterns.
/// `ExitReason::Fp` counts the traps at which Gear1 exchanged registers.
fn switch(seed: u64) -> (u64, u64) {
    let (mut rounds, mut lost) = (0, 0);
    while stats::exits(ExitReason::Fp) < SWITCHES && rounds < MOST_ROUNDS {
        lost += keep(seed, rounds, 100).1;
        rounds += 100;
    }
    lost += keep(seed, rounds, AFTERWARDS).1;
    (rounds + AFTERWARDS, lost)
}

/// Lets go of the CPU with a pattern in the registers, `count` times. The look reads FPCR and FPSR
/// as well as Q0 to Q31. The library and this crate are built without FP, so nothing else changes
/// them.
fn keep(seed: u64, from: u64, count: u64) -> (u64, u64) {
    let lost = (from..from + count).filter(|&round| {
        let pattern = Registers::pattern(seed ^ round);
        pattern.load();
        timer::sleep_us(SLEEP_US);
        Registers::current() != pattern
    });
    (count, lost.count() as u64)
}
