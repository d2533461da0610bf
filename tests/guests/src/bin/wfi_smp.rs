//! Two CPUs wake each other out of WFI, 10,000 times each way: no wake-up may be lost. Shown with
//! the vCPUs on two CPUs and on one.
//!
//! Requirements: G1-VCPU-001.
//!
//! A wake-up gets lost if Gear1 finds nothing pending, the other CPU posts its SGI, and the vCPU
//! sleeps then. Gear1 therefore stores the state of a sleeper before it reads the sleeper's
//! requests, and a sender raises its request before it reads the state: one of the two sees the
//! other (`gear1/core/src/vcpu.rs`).
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};

use test_guests::{Machine, check, cpu, gic, guest, psci, report, timer};

guest!(main, irq = on_interrupt, other_cpu = other);

/// The window is some instructions long, and each round meets it at another place.
const ROUNDS: u64 = 10_000;
const CROSSINGS: u64 = 2_000;
/// The sum of all sleeps stays below a second.
const SLEEPS: u64 = 1_000;
/// The step behind all rounds. Steps only grow, so that one comparison by `>=` serves all phases.
const LAST: u64 = ROUNDS + CROSSINGS + 1;
/// Step of a CPU that waits for nothing any more.
const THROUGH: u64 = LAST + 1;
const SGI: u32 = 7;
/// A wake-up that is not there after so long is lost. A busy host delays one by seconds.
const LOST_US: u64 = 20_000_000;

/// Progress of each CPU. Each word has one writer, the CPU of that number.
static STEP: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Waits that lasted to the deadline, by CPU, and the round of the first one.
static LOST: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static LOST_IN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// CPU 0 reports alone, and only after CPU 1's last phase.
fn main(machine: &Machine) {
    if machine.cpus < 2 {
        report::fail("wfi-smp", format_args!("needs two CPUs"));
        return;
    }
    prepare();
    let result = psci::cpu_on(1);
    check!("cpu-on", result == psci::result::SUCCESS, "{result}");
    ping_pong(0);
    verdict("ping-pong");
    crossing(0);
    verdict("crossing");
    sleeps(0);
    // The other CPU's last wake-up counts too.
    cpu::wait_until(|| STEP[1].load(Ordering::Acquire) == THROUGH);
    verdict("sleeps");
}

/// The last step is stored without an SGI, as CPU 0 polls for it.
fn other(_index: usize) {
    prepare();
    ping_pong(1);
    crossing(1);
    sleeps(1);
    STEP[1].store(THROUGH, Ordering::Release);
}

/// SGIs and PPIs are private: each CPU enables its own.
fn prepare() {
    gic::enable(SGI);
    gic::enable(timer::INTID);
}

/// The level of an expired timer would come again behind the handler.
fn on_interrupt(intid: u32) {
    if intid == timer::INTID {
        timer::disarm();
    }
}

/// The first round tells whether a loss is rare or the beginning of all.
fn verdict(name: &str) {
    let value = |counter: &AtomicU64| counter.load(Ordering::Acquire);
    let (lost, rounds) = (LOST.each_ref().map(value), LOST_IN.each_ref().map(value));
    check!(
        name,
        lost == [0; 2],
        "wake-ups lost by CPU: {lost:?}, the first in rounds {rounds:?}"
    );
}

/// Each waits for the other's step before its own. One CPU sleeps, or is about to, whenever the
/// other one sends.
fn ping_pong(me: usize) {
    for round in 1..=ROUNDS {
        if me == 1 {
            sleep_until_other(me, round);
        }
        step(me, round);
        if me == 0 {
            sleep_until_other(me, round);
        }
    }
}

/// Both step, then wait for the other: SGI and WFI cross. Here both send and both go to sleep at
/// the same time, which ping-pong never does.
fn crossing(me: usize) {
    for round in ROUNDS + 1..=ROUNDS + CROSSINGS {
        step(me, round);
        sleep_until_other(me, round);
    }
}

/// Both sleep for times that drift against each other, then meet. The timer of one expires while
/// the other one is loaded, if both share a CPU.
fn sleeps(me: usize) {
    for round in 0..SLEEPS {
        timer::sleep_us(1 + round * (7 + 4 * me as u64) % 50);
    }
    step(me, LAST);
    sleep_until_other(me, LAST);
}

/// The release comes before the SGI: who is woken must see the step, as the driver's DSB orders
/// the SGI behind the store.
fn step(me: usize, to: u64) {
    STEP[me].store(to, Ordering::Release);
    gic::send_sgi(1 - me, SGI);
}

/// WFI with interrupts masked between the check and it, as operating systems do; the timer is there
/// only to find out that a wake-up was lost. A wait that lasts to the deadline has lost one: either
/// this CPU's own, with the other's step made long ago, or the other CPU's, which has not stepped.
fn sleep_until_other(me: usize, round: u64) {
    let there = || STEP[1 - me].load(Ordering::Acquire) >= round;
    let mut deadline = timer::now() + timer::from_us(LOST_US);
    timer::arm(deadline);
    while !there() {
        cpu::wfi();
        cpu::unmask_irqs();
        cpu::isb();
        cpu::mask_irqs();
        // Behind the handler, which disarms the timer.
        if timer::now() >= deadline {
            count_lost(me, round);
            deadline = timer::now() + timer::from_us(LOST_US);
            timer::arm(deadline);
        }
    }
    timer::disarm();
}

/// The number alone would not tell when it began.
fn count_lost(me: usize, round: u64) {
    if LOST[me].fetch_add(1, Ordering::AcqRel) == 0 {
        LOST_IN[me].store(round, Ordering::Release);
    }
}
