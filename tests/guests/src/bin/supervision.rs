//! A guest that fails in each way in which a guest can, life by life, under a watchdog; one that is
//! told of each end; and two without a watchdog, of which one spins and one makes progress. The
//! command line says which this is: `role=0` fails, `role=1` is told, `role=2` spins, `role=3`
//! makes progress. `role=4` turns itself off at once, with the mark in X28.
//!
//! The last life fails once more, which the manifest's `restart-limit` does not allow: the machine
//! is powered off.
//!
//! Requirements: G1-CHN-008.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use test_guests::failing::{self, Fault};
use test_guests::mmio::{read64, write32, write64};
use test_guests::timer::Kind;
use test_guests::{Machine, check, cpu, gic, guest, psci, report, say, timer};

guest!(main, irq = on_interrupt, other_cpu = turn_off);

/// Words of the shared memory: the other guest listens; lives of this one; ends that the other one
/// was told of; when that was last, and when the last failure began.
const READY: u64 = 0;
const LIVES: u64 = 8;
const TOLD: u64 = 16;
const TOLD_AT: u64 = 24;
const FAILED_AT: u64 = 32;
/// `watchdog-ms` of the manifest.
const PERIOD_US: u64 = 100_000;
/// Time within which an end that Gear1 sees is told. Beside the way through both gears, a time
/// slice of another VM may come between.
const AT_ONCE_US: u64 = 20_000;
/// Offset of the refresh register in the watchdog.
const REFRESH: u64 = 0x1000;
/// X28 of each failure, with the life in the lowest bits.
const MARK: u64 = 0x5eed_0000;

/// Time between two exits of the guest that makes progress, of the 20 ms that it has.
const ROUND_US: u64 = 15_000;
/// Exits of that guest, over many times its `progress-ms`.
const ROUNDS: u64 = 25;

/// Faults by life, and the least and longest time until the end is told.
const FAULTS: [(Fault, u64, u64); 6] = [
    (Fault::Crash, 0, AT_ONCE_US),
    // The watchdog was refreshed just before.
    (Fault::Hang, PERIOD_US, PERIOD_US + AT_ONCE_US),
    (Fault::Silence, PERIOD_US, PERIOD_US + AT_ONCE_US),
    (Fault::Loop, PERIOD_US, PERIOD_US + AT_ONCE_US),
    (Fault::Storm, PERIOD_US, PERIOD_US + AT_ONCE_US),
    (Fault::Reset, 0, AT_ONCE_US),
];

/// The channel's memory is not loaded anew with the VM, and so tells one life of the other.
static MEMORY: AtomicU64 = AtomicU64::new(0);

fn main(machine: &Machine) {
    let memory = machine.channel("alarm").and_then(|it| it.memory.clone());
    MEMORY.store(memory.map_or(0, |memory| memory.start), Relaxed);
    match machine.option("role") {
        Some(1) => return listen(machine),
        Some(2) => failing::spin(0),
        Some(3) => return make_progress(),
        Some(4) => failing::turn_off(MARK),
        _ => {}
    }
    let life = get(LIVES) + 1;
    put(LIVES, life);
    if life == 1 {
        // In no later life.
        report::equal("cpu-on", psci::cpu_on(1), 0);
        cpu::wait_until(|| psci::affinity_info(1) == psci::affinity::OFF);
        cpu::wait_until(|| get(READY) == 1);
    } else {
        was_told(life - 1);
    }
    let watchdog = machine.watchdog.unwrap_or(0);
    check!("has-a-watchdog", watchdog != 0, "no node");
    write32(watchdog + REFRESH, 0);
    put(FAILED_AT, Kind::Physical.now());
    fail(life);
}

/// CPU 1 has been on and is off when the first life ends: an end has to deal with such a vCPU as
/// well.
fn turn_off(_cpu: usize) {
    psci::cpu_off();
}

/// Checks what the former life's end was like.
fn was_told(life: u64) {
    let Some((fault, least, most)) = FAULTS.get(life as usize - 1) else {
        return;
    };
    cpu::wait_until(|| get(TOLD) >= life);
    report::equal("told-once", get(TOLD), life);
    let failed = get(FAILED_AT);
    let told = us(get(TOLD_AT) - failed);
    let served = us(Kind::Physical.now() - failed);
    let in_time = (*least..=*most).contains(&told);
    let fault = fault.name();
    check!("told-in-time", in_time, "{fault}: after {told} us");
    say!("SUPERVISION guest {fault} {told} {served}");
}

fn fail(life: u64) -> ! {
    let fault = FAULTS
        .get(life as usize - 1)
        .map_or(Fault::Crash, |fault| fault.0);
    fault.commit(MARK + life)
}

/// Computes, with interrupts masked, and leaves the guest for something of its own seldom, but in
/// each `progress-ms`.
fn make_progress() {
    cpu::mask_irqs();
    for _ in 0..ROUNDS {
        timer::delay_us(ROUND_US);
        psci::gear2_nop();
    }
    check!("made-progress", true, "");
}

fn listen(machine: &Machine) {
    let intid = machine.channel("alarm").map_or(0, |channel| channel.intid);
    gic::set_edge(intid, true);
    gic::enable(intid);
    cpu::unmask_irqs();
    put(READY, 1);
    // Until the machine is off.
    loop {
        cpu::wfi();
    }
}

fn on_interrupt(_intid: u32) {
    put(TOLD_AT, Kind::Physical.now());
    put(TOLD, get(TOLD) + 1);
}

fn us(ticks: u64) -> u64 {
    timer::to_ns(ticks) / 1_000
}

/// The barrier completes the store before a failure that follows at once.
fn put(word: u64, value: u64) {
    write64(MEMORY.load(Relaxed) + word, value);
    cpu::dsb();
}

fn get(word: u64) -> u64 {
    read64(MEMORY.load(Relaxed) + word)
}
