//! A VM that fails, who hears of it and who takes over. The command line says which this is:
//! `role=0` cannot go on, again and again; `role=1` is its standby; `role=2` is a guest that is
//! told of each end by a doorbell, and `role=3` a real-time VM that is, which counts its exits.
//!
//! Requirements: G1-CHN-008.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use test_guests::mmio::{read32, read64, write64};
use test_guests::realtime::exits;
use test_guests::{Machine, check, cpu, gic, guest, report, timer, write_sysreg};

guest!(main, irq = on_interrupt);

/// Words of the shared memory: the receiver listens; lives of the VM that fails; ends of which the
/// receiver was told.
const READY: u64 = 0;
const LIVES: u64 = 8;
const TOLD: u64 = 16;
/// Lives that the manifest allows, with the first one. A fourth life would be a restart too many.
const MOST: u64 = 3;
/// Nobody's, in every machine of the tests. VBAR_EL1 points there, so that the abort's own handler
/// cannot be fetched.
const NOWHERE: u64 = 0xf000_0000;
/// Longest wait for the next end.
const PATIENCE_US: u64 = 20_000_000;
/// Time in which another ring would come. A doorbell that rings twice for one end would do so at
/// once.
const REST_US: u64 = 50_000;

/// The channel's memory outlives a VM that is loaded anew, as it is no VM's own.
static MEMORY: AtomicU64 = AtomicU64::new(0);

fn main(machine: &Machine) {
    let memory = machine.channel("alarm").and_then(|it| it.memory.clone());
    MEMORY.store(memory.map_or(0, |memory| memory.start), Relaxed);
    match machine.option("role") {
        Some(0) => fail(),
        Some(1) => report::pass("the-standby-runs"),
        Some(2) => listen(machine),
        _ => listen_in_real_time(machine),
    }
}

/// Fails when the receiver has heard of all ends before. Faults in the handler of a fault make a
/// loop of exceptions that Gear1 takes for a guest that cannot go on (G1-FLT-004).
fn fail() {
    put(LIVES, get(LIVES) + 1);
    cpu::wait_until(|| get(READY) == 1 && get(TOLD) + 1 == get(LIVES));
    write_sysreg!("vbar_el1", NOWHERE);
    read32(NOWHERE);
    report::fail("fail", format_args!("it goes on"));
}

/// The pause finds a ring too many (G1-CHN-008).
fn listen(machine: &Machine) {
    hear(machine);
    check!("told", comes(|| get(TOLD) == MOST), "{} ends", get(TOLD));
    timer::delay_us(REST_US);
    report::equal("told-once-of-each-end", get(TOLD), MOST);
    report::equal("lives", get(LIVES), MOST);
}

/// The exits are those from before the first ring to behind the last one.
fn listen_in_real_time(machine: &Machine) {
    hear(machine);
    let before = exits();
    let is_told = comes(|| get(TOLD) == MOST);
    timer::delay_us(REST_US);
    let left = exits() - before;
    check!("told", is_told, "{} ends", get(TOLD));
    report::equal("exits", left, 0);
    report::equal("told-once-of-each-end", get(TOLD), MOST);
}

/// Begins to hear the doorbell. A doorbell is a pulse, so that its interrupt is edge-triggered: as
/// a level it would be low again before it is looked at.
fn hear(machine: &Machine) {
    let intid = machine.channel("alarm").map_or(0, |channel| channel.intid);
    gic::set_edge(intid, true);
    gic::enable(intid);
    cpu::unmask_irqs();
    put(READY, 1);
}

fn on_interrupt(_intid: u32) {
    put(TOLD, get(TOLD) + 1);
}

/// The barrier makes the word visible to the other VM before what follows.
fn put(word: u64, value: u64) {
    write64(MEMORY.load(Relaxed) + word, value);
    cpu::dsb();
}

fn get(word: u64) -> u64 {
    read64(MEMORY.load(Relaxed) + word)
}

fn comes(condition: impl Fn() -> bool) -> bool {
    let end = timer::now() + timer::from_us(PATIENCE_US);
    while !condition() {
        if timer::now() > end {
            return false;
        }
    }
    true
}
