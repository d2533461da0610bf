//! Doorbells between two VMs: one rings and one listens, and they agree in shared memory. The
//! command line says which this is: `role=0` and `role=1` are guests, `role=2` rings `role=3`, a
//! real-time VM that counts its exits, and `role=4` rings on two CPUs for ever.
//!
//! Requirements: G1-CHN-001, G1-CHN-004, G1-CHN-005, G1-CHN-006, G1-CHN-007, G1-RT-008.
//!
//! A test fails in two ways: a ring without an interrupt, and an interrupt without a ring. The
//! words in shared memory tell either: the sender stores a number before it rings, and the listener
//! stores what it found.
#![no_std]
#![no_main]

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gear1_abi::exit::ExitReason;
use test_guests::exception::{Caught, catch, esr};
use test_guests::mmio::{read32, read64, write32, write64};
use test_guests::realtime::exits;
use test_guests::{Machine, check, cpu, gic, guest, psci, report, say, stats, timer};

guest!(main, irq = on_interrupt, other_cpu = flood_for_ever);

/// Words of the shared memory: the step that the listener waits for, the number of the last ring,
/// the last number that the listener has seen, and the last number of a flood.
const READY: u64 = 0;
const SENT: u64 = 8;
const SEEN: u64 = 16;
const FLOODED: u64 = 24;

/// Rings of which each is answered. Each is two wake-ups, one on either CPU, which a lost one turns
/// into a hang.
const TURNS: u64 = 300;
/// Rings while the listener has interrupts masked: one interrupt stands for all of them. A doorbell
/// is an edge: rings while its interrupt is pending add nothing (G1-CHN-005).
const BURST: u64 = 100;
/// Twenty intervals of `paced`. Enough that the count tells an interval that is too short from a
/// late first interrupt.
const FLOOD_US: u64 = 20_000;
/// Intervals that the manifests give to `paced` and `last` (G1-CHN-006). The interval of `last` is
/// longer than its sender lives: the ring has to outlive the VM that rang.
const PACE_US: u64 = 1000;
const LAST_US: u64 = 20_000;
/// Longest wait of the listener for something that comes. Far above what a busy host takes.
const PATIENCE_US: u64 = 5_000_000;

/// Interrupts so far: of a `bell` or a `back`, of `paced`, and of `last`.
static BELLS: AtomicU64 = AtomicU64::new(0);
static PACED: AtomicU64 = AtomicU64::new(0);
static LASTS: AtomicU64 = AtomicU64::new(0);
/// Time of the first and of the latest `paced`. Twenty intervals between both allow twenty-one
/// interrupts.
static FIRST: AtomicU64 = AtomicU64::new(0);
static LATEST: AtomicU64 = AtomicU64::new(0);
/// INTIDs of `paced` and `last`, the shared memory, and the doorbell that answers a `bell`; 0:
/// none.
static PACED_INTID: AtomicU64 = AtomicU64::new(0);
static LAST_INTID: AtomicU64 = AtomicU64::new(0);
static MEMORY: AtomicU64 = AtomicU64::new(0);
static ANSWER: AtomicU64 = AtomicU64::new(0);

/// Rings between two report lines of one that rings for ever.
const REPORT: u64 = 5000;

/// Address of the doorbell that is rung for ever. CPU 1 has no device tree of its own to read.
static FLOOD: AtomicU64 = AtomicU64::new(0);

/// Both sides are one program: the command line gives the role.
fn main(machine: &Machine) {
    if machine.option("role") == Some(4) {
        let flood = machine.channel("flood").map_or(0, |bell| bell.doorbell);
        FLOOD.store(flood, Relaxed);
        psci::cpu_on(1);
        flood_for_ever(0);
    }
    let memory = machine.channel("bell").and_then(|bell| bell.memory.clone());
    let Some(memory) = memory else {
        check!("memory", false, "the channel has none");
        return;
    };
    MEMORY.store(memory.start, Relaxed);
    for (name, place) in [("paced", &PACED_INTID), ("last", &LAST_INTID)] {
        let channel = machine.channel(name);
        place.store(channel.map_or(0, |channel| channel.intid.into()), Relaxed);
    }
    for channel in machine.channels.iter().flatten() {
        if channel.intid != 0 {
            gic::set_edge(channel.intid, true);
            gic::enable(channel.intid);
        }
    }
    let doorbell = |name| machine.channel(name).map_or(0, |channel| channel.doorbell);
    let turns = machine.option("turns").unwrap_or(TURNS);
    match machine.option("role") {
        Some(0) => ring_all(["bell", "paced", "last"].map(doorbell)),
        Some(1) => {
            ANSWER.store(doorbell("back"), Relaxed);
            listen(doorbell("back"));
        }
        Some(2) => ring_real_time(["bell", "paced"].map(doorbell), turns),
        _ => listen_in_real_time(turns),
    }
}

/// Reads the word before anything else: a ring means that what was stored before is visible. The
/// answer is sent from the handler, so that 300 turns are a test of wake-ups of both sides. Gear1
/// orders the interrupt behind what the sender stored before its ring, so the number is that of the
/// ring or a later one.
fn on_interrupt(intid: u32) {
    let intid = u64::from(intid);
    let seen = get(SENT);
    if intid == PACED_INTID.load(Relaxed) {
        let now = timer::now();
        if PACED.fetch_add(1, Relaxed) == 0 {
            FIRST.store(now, Relaxed);
        }
        LATEST.store(now, Relaxed);
    } else if intid == LAST_INTID.load(Relaxed) {
        LASTS.fetch_add(1, Relaxed);
    } else {
        BELLS.fetch_add(1, Relaxed);
    }
    put(SEEN, seen);
    let answer = ANSWER.load(Relaxed);
    if answer != 0 {
        ring(answer);
    }
}

/// Rings for ever. Both CPUs ring, to load Gear1 from two sides at once. One of them reports, as
/// the suite has to see that the flood goes on. A VM that floods must not keep a real-time receiver
/// from its work (G1-RT-008).
fn flood_for_ever(index: usize) {
    for rung in 1_u64.. {
        ring(FLOOD.load(Relaxed));
        if index == 0 && rung.is_multiple_of(REPORT) {
            say!("RUNG {rung}");
        }
    }
}

/// Rings a doorbell. The value that is stored does not matter. `exits` are those of this VM: a ring
/// is one `channel` exit and never goes to Gear2 (G1-CHN-004). Loads and stores to other offsets
/// belong to no channel (G1-CHN-001).
fn ring_all([bell, paced, last]: [u64; 3]) {
    await_step(1);
    let exits = || [ExitReason::Channel, ExitReason::MmioGear2].map(stats::exits);
    let before = exits();
    for turn in 1..=TURNS {
        put(SENT, turn);
        ring(bell);
        cpu::sleep_until(|| BELLS.load(Relaxed) == turn);
    }
    let [channel, gear2] = exits();
    report::equal(
        "exits",
        [channel - before[0], gear2 - before[1]],
        [TURNS, 0],
    );
    report::equal("answers", BELLS.load(Relaxed), TURNS);
    let refused = [
        catch(|| _ = read32(bell)),
        catch(|| write32(bell + 4, 1)),
        catch(|| write64(bell + 0xff8, 1)),
    ];
    check!(
        "nothing-else",
        refused.iter().all(is_external),
        "{refused:x?}"
    );
    await_step(2);
    (0..BURST).for_each(|_| ring(bell));
    put(SENT, BURST + TURNS);
    await_step(3);
    flood(paced);
    await_step(4);
    // The second is held back, and this VM is gone when it is due.
    put(SENT, 1);
    ring(last);
    put(SENT, 2);
    ring(last);
}

/// Rings as often as it can for a time, each ring with a number of its own. The last number is
/// stored behind the last ring: the listener knows then that no ring will follow. Each ring stands
/// for a number, and the last interrupt must begin after the last ring.
fn flood(doorbell: u64) {
    let end = timer::now() + timer::from_us(FLOOD_US);
    let mut number = 1_000_000;
    while timer::now() < end {
        number += 1;
        put(SENT, number);
        ring(doorbell);
    }
    put(FLOODED, number);
}

/// The guest that is rung. Interrupts that came while masked are one: a doorbell is an edge. The
/// page before is not a doorbell of this guest's, so that a store there must abort. Sender and
/// listener go by steps: neither may count interrupts of the other's next test.
fn listen(back: u64) {
    let foreign = catch(|| write32(back - 0x1000, 1));
    check!("others-doorbell", is_external(&foreign), "{foreign:x?}");
    cpu::unmask_irqs();
    step(1);
    cpu::sleep_until(|| BELLS.load(Relaxed) == TURNS);
    ANSWER.store(0, Relaxed);
    cpu::mask_irqs();
    step(2);
    cpu::wait_until(|| get(SENT) == BURST + TURNS);
    cpu::unmask_irqs();
    timer::delay_us(PACE_US);
    report::equal("a-burst-is-one", BELLS.load(Relaxed), TURNS + 1);
    step(3);
    paced();
    step(4);
    let lasts = || LASTS.load(Relaxed) == 2;
    timer::delay_us(LAST_US / 2);
    report::equal("held-back", LASTS.load(Relaxed), 1);
    check!("outlives-the-sender", comes(lasts), "{LASTS:?}");
    report::equal("its-memory", get(SEEN), 2);
    timer::delay_us(2 * LAST_US);
    report::equal("not-again", LASTS.load(Relaxed), 2);
}

/// Looks at a flood: its interrupts are an interval apart, and the last ring has one behind it.
/// G1-CHN-006 limits interrupts and not rings: the rate that a flood may have is the receiver's
/// budget.
fn paced() {
    let is_over = || get(FLOODED) != 0 && get(SEEN) == get(FLOODED);
    check!(
        "last-ring",
        comes(is_over),
        "{} of {}",
        get(SEEN),
        get(FLOODED)
    );
    timer::delay_us(3 * PACE_US);
    let count = PACED.load(Relaxed);
    let took = LATEST.load(Relaxed) - FIRST.load(Relaxed);
    // Half an interval for how late the first may have been.
    let most = (took + timer::from_us(PACE_US / 2)) / timer::from_us(PACE_US) + 1;
    check!("at-most", count <= most, "{count} in {took} ticks");
    let least = FLOOD_US / PACE_US / 2;
    check!("at-least", count >= least, "{count} in {took} ticks");
}

/// The guest that rings a real-time VM. Each ring waits for the one before. A spin on the answer:
/// the sender must be on its CPU when the receiver looks.
fn ring_real_time([bell, paced]: [u64; 2], turns: u64) {
    await_step(1);
    for turn in 1..=turns {
        put(SENT, turn);
        ring(bell);
        cpu::wait_until(|| get(SEEN) == turn);
    }
    await_step(3);
    flood(paced);
}

/// The real-time VM. Exits of this VM's are counted by itself, as nobody else sees them. A
/// real-time VM with pass-through has its doorbells as interrupts of the hardware: a ring may cost
/// it no exit (G1-CHN-007). Gear1 makes the machine's own SPI pending (GICD_ISPENDR), and the GIC
/// interrupts the CPU at EL1.
fn listen_in_real_time(turns: u64) {
    cpu::unmask_irqs();
    let before = exits();
    step(1);
    cpu::sleep_until(|| BELLS.load(Relaxed) == turns);
    let left = exits() - before;
    cpu::unmask_irqs();
    report::equal("exits", left, 0);
    timer::delay_us(PACE_US);
    report::equal("rings", BELLS.load(Relaxed), turns);
    let before = exits();
    step(3);
    cpu::wait_until(|| get(FLOODED) != 0 && get(SEEN) == get(FLOODED));
    report::equal("exits-of-a-flood", exits() - before, 0);
    paced();
}

/// The value does not matter.
fn ring(doorbell: u64) {
    write32(doorbell, 1);
}

/// Says that the listener is ready for the next step. The store is ordered by `put`: what the step
/// means is visible before its number.
fn step(number: u64) {
    put(READY, number);
}

/// The sender does not begin before the listener looks.
fn await_step(number: u64) {
    cpu::wait_until(|| get(READY) == number);
}

/// Writes a word of the shared memory, before what follows.
fn put(word: u64, value: u64) {
    write64(MEMORY.load(Relaxed) + word, value);
    // SAFETY: a barrier.
    unsafe { asm!("dmb ish", options(nostack, preserves_flags)) };
}

/// Reads a word of the shared memory.
fn get(word: u64) -> u64 {
    let value = read64(MEMORY.load(Relaxed) + word);
    // SAFETY: a barrier: what follows sees what was stored before the word.
    unsafe { asm!("dmb ish", options(nostack, preserves_flags)) };
    value
}

/// Limited, so that a lost interrupt is a failure and not a hang. No WFI: a wait that nothing ends
/// is what the test looks for.
fn comes(condition: impl Fn() -> bool) -> bool {
    let end = timer::now() + timer::from_us(PATIENCE_US);
    while !condition() {
        if timer::now() > end {
            return false;
        }
    }
    true
}

/// Other places abort, as unowned memory does.
fn is_external(caught: &Option<Caught>) -> bool {
    caught.is_some_and(|caught| caught.esr & esr::STATUS == esr::EXTERNAL)
}
