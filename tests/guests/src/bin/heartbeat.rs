//! A real-time VM whose heartbeat stops, in each way in which a VM hangs. The command line says
//! which this is: `role=0` is the real-time VM, which lives again and again; `role=1` is another
//! one, which is told of each end by a doorbell.
//!
//! Requirements: G1-SUP-004.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use test_guests::mmio::{read64, write64};
use test_guests::realtime::exits;
use test_guests::timer::Kind;
use test_guests::{Machine, check, cpu, gic, guest, psci, report, say, timer};

guest!(main, irq = on_interrupt, other_cpu = other);

/// Words of the shared memory: the receiver listens; lives of the real-time VM; ends of which the
/// receiver was told; when it was told last, and when the VM's last sign of life was. The page
/// outlives each life: it is no memory of the VM's, and nobody wipes it.
const READY: u64 = 0;
const LIVES: u64 = 8;
const TOLD: u64 = 16;
const TOLD_AT: u64 = 24;
const LAST_BEAT: u64 = 32;
/// `watchdog-ms` of the manifest. Gear1 looks four times in it, from another CPU.
const PERIOD_US: u64 = 2_000;
/// Signs of life, of which the last ones are almost a period apart. Each distance up to the period
/// is tried, as a look may fall anywhere between two beats.
const BEATS: u64 = 40;
/// The part of a period that is left for the counter's and the loop's inaccuracy.
const SLACK_US: u64 = 50;
/// Lives that end by a silence. The manifest's `restart` has Gear1 start the VM again each time,
/// without Gear2.
const HANGS: u64 = 4;
/// In this one there is no sign of life at all. Gear1 gives a VM four periods for its boot, and
/// counts them from its own first look.
const DUMB: u64 = 3;

static MEMORY: AtomicU64 = AtomicU64::new(0);
/// A page of its own, which the VM stores to without an exit.
static WORD: AtomicU64 = AtomicU64::new(0);

/// The first life waits for the receiver: an earlier end would be told to nobody, and the count of
/// ends would be too small.
fn main(machine: &Machine) {
    let memory = machine.channel("alarm").and_then(|it| it.memory.clone());
    MEMORY.store(memory.map_or(0, |memory| memory.start), Relaxed);
    if machine.option("role") == Some(1) {
        return listen(machine);
    }
    WORD.store(machine.heartbeat.unwrap_or(0), Relaxed);
    check!("has-a-heartbeat", machine.heartbeat.is_some(), "no node");
    let life = get(LIVES) + 1;
    put(LIVES, life);
    if life == 1 {
        cpu::wait_until(|| get(READY) == 1);
    } else {
        was_silent(life - 1);
    }
    if life == DUMB {
        put(LAST_BEAT, Kind::Physical.now());
        hang(life);
    }
    live();
    if life <= HANGS {
        hang(life);
    }
}

/// Shows signs of life, in time and at no exit. A real-time VM that had to leave its guest for a
/// sign of life would have that exit in its worst case (G1-SUP-004).
fn live() {
    let before = exits();
    for beat in 1..=BEATS {
        // At all distances up to the longest that is allowed.
        let pause = (PERIOD_US - SLACK_US) * beat / BEATS;
        timer::delay_us(pause);
        let word = WORD.load(Relaxed);
        write64(word, read64(word) + 1);
    }
    put(LAST_BEAT, Kind::Physical.now());
    report::equal("exits", exits() - before, 0);
}

/// Checks what the former life's end was like: not before its time, and not long after. Times are
/// of the physical count, which both VMs have in common; the virtual count begins anew with each
/// life. An end before the period would be a VM killed that was in time.
fn was_silent(life: u64) {
    cpu::wait_until(|| get(TOLD) >= life);
    report::equal("told-once", get(TOLD), life);
    let found = us(get(TOLD_AT) - get(LAST_BEAT));
    let served = us(Kind::Physical.now() - get(LAST_BEAT));
    // Without a sign of life a VM has four periods from the first look at it, which may be earlier
    // than its note here.
    let (least, most) = if life == DUMB { (3, 5) } else { (1, 2) };
    let in_time = (PERIOD_US * least..=PERIOD_US * most).contains(&found);
    check!("found-in-time", in_time, "after {found} us");
    say!("HEARTBEAT life {life}: told after {found} us, runs again after {served} us");
}

/// Hangs as a VM may: spins, waits, or has its vCPU off while another one spins. Interrupts are
/// masked, so nothing but Gear1 ends it. In the last way vCPU 0 is off and vCPU 1 spins: a VM with
/// a vCPU on has not ended by itself.
fn hang(life: u64) -> ! {
    cpu::mask_irqs();
    match life {
        2 => loop {
            cpu::wfi();
        },
        HANGS => {
            psci::cpu_on(1);
            psci::cpu_off();
        }
        _ => {}
    }
    loop {
        core::hint::spin_loop();
    }
}

fn other(_cpu: usize) {
    loop {
        core::hint::spin_loop();
    }
}

/// Hears the doorbell until the real-time VM lives for good.
fn listen(machine: &Machine) {
    let intid = machine.channel("alarm").map_or(0, |channel| channel.intid);
    gic::set_edge(intid, true);
    gic::enable(intid);
    cpu::unmask_irqs();
    put(READY, 1);
    cpu::sleep_until(|| get(TOLD) > HANGS);
}

/// The time is stored before the count, which the next life waits for.
fn on_interrupt(_intid: u32) {
    put(TOLD_AT, Kind::Physical.now());
    put(TOLD, get(TOLD) + 1);
}

fn us(ticks: u64) -> u64 {
    timer::to_ns(ticks) / 1_000
}

/// DSB: the other VM sees the words in their order.
fn put(word: u64, value: u64) {
    write64(MEMORY.load(Relaxed) + word, value);
    cpu::dsb();
}

fn get(word: u64) -> u64 {
    read64(MEMORY.load(Relaxed) + word)
}
