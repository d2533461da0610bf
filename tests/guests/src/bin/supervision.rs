//! A guest that fails in each way in which a guest can, life by life, under a watchdog; one that is
//! told of each end; and one that spins without a watchdog. The command line says which this is:
//! `role=0` fails, `role=1` is told, `role=2` spins.
//!
//! The last life fails once more, which the manifest's `restart-limit` does not allow: the machine
//! is powered off.
//!
//! Requirements: G1-CHN-008.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use test_guests::mmio::{read32, read64, write32, write64};
use test_guests::timer::Kind;
use test_guests::{Machine, check, cpu, gic, guest, psci, report, say, timer, write_sysreg};

guest!(main, irq = on_interrupt);

/// Words of the shared memory: the other guest listens; lives of this one; ends that the other one
/// was told of; when that was last, and when the last failure began.
const READY: u64 = 0;
const LIVES: u64 = 8;
const TOLD: u64 = 16;
const TOLD_AT: u64 = 24;
const FAILED_AT: u64 = 32;
/// `watchdog-ms` of the manifest.
const PERIOD_US: u64 = 100_000;
/// Time within which an end that Gear1 sees is told.
const AT_ONCE_US: u64 = 20_000;
/// Offset of the refresh register in the watchdog.
const REFRESH: u64 = 0x1000;
/// Nobody's, in every machine of the tests.
const NOWHERE: u64 = 0xf000_0000;
/// X28 of each failure, with the life in the lowest bits.
const MARK: u64 = 0x5eed_0000;

/// Faults by life, and the least and longest time until the end is told.
const FAULTS: [(&str, u64, u64); 6] = [
    ("crash", 0, AT_ONCE_US),
    // The watchdog was refreshed just before.
    ("hang", PERIOD_US, PERIOD_US + AT_ONCE_US),
    ("silence", PERIOD_US, PERIOD_US + AT_ONCE_US),
    ("loop", PERIOD_US, PERIOD_US + AT_ONCE_US),
    ("storm", PERIOD_US, PERIOD_US + AT_ONCE_US),
    ("reset", 0, AT_ONCE_US),
];

// Vectors whose handlers take an exception each, which is no exit.
global_asm!(
    ".section .text.loop_vectors, \"ax\"",
    ".balign 2048",
    ".global loop_vectors",
    "loop_vectors:",
    ".rept 16",
    ".balign 128",
    "svc #0",
    ".endr",
    ".balign 128",
);

unsafe extern "C" {
    static loop_vectors: u8;
}

static MEMORY: AtomicU64 = AtomicU64::new(0);

fn main(machine: &Machine) {
    let memory = machine.channel("alarm").and_then(|it| it.memory.clone());
    MEMORY.store(memory.map_or(0, |memory| memory.start), Relaxed);
    match machine.option("role") {
        Some(1) => return listen(machine),
        Some(2) => spin(0),
        _ => {}
    }
    let life = get(LIVES) + 1;
    put(LIVES, life);
    if life == 1 {
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
    check!("told-in-time", in_time, "{fault}: after {told} us");
    say!("SUPERVISION guest {fault} {told} {served}");
}

fn fail(life: u64) -> ! {
    // SAFETY: X28 is anybody's; the mark is found in the last registers of this life, as nothing
    // below calls a function that keeps a value there.
    unsafe { asm!("mov x28, {}", in(reg) MARK + life, out("x28") _, options(nomem, nostack)) };
    let fault = FAULTS
        .get(life as usize - 1)
        .map_or("crash", |fault| fault.0);
    match fault {
        "hang" => spin(MARK + life),
        "silence" => loop {
            cpu::mask_irqs();
            cpu::wfi();
        },
        "loop" => {
            write_sysreg!("vbar_el1", &raw const loop_vectors as u64);
            read32(NOWHERE);
        }
        "storm" => loop {
            psci::gear2_nop();
        },
        "reset" => psci::system_reset(),
        _ => {
            write_sysreg!("vbar_el1", NOWHERE);
            read32(NOWHERE);
        }
    }
    cpu::halt();
}

/// Spins, with interrupts masked and a mark in X28.
fn spin(mark: u64) -> ! {
    cpu::mask_irqs();
    loop {
        // SAFETY: it changes nothing.
        unsafe { asm!("yield", in("x28") mark, options(nomem, nostack)) };
    }
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

fn put(word: u64, value: u64) {
    write64(MEMORY.load(Relaxed) + word, value);
    cpu::dsb();
}

fn get(word: u64) -> u64 {
    read64(MEMORY.load(Relaxed) + word)
}
