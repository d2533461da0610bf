//! Guests that are killed again and again, and the one that sees to it. The command line says which
//! this is: `role=0` is a guest with a watchdog, `role=1` a real-time VM with a heartbeat; both
//! fail in each way, life by life. `role=2` is told of the guest's ends; when both have failed
//! often enough it makes Gear2 fail as often, and sees at last whether both are supervised still.
//! `role=3`, a real-time VM, is told of the real-time VM's ends. `kills=` says how often.
//!
//! Each life of the guest shares as much memory as it may, and ends without reclaiming it: a
//! transaction or a table that an end leaves behind is missing in the next life.
//!
//! Requirements: G1-MEM-018, G1-SUP-001, G1-SUP-002, G1-SUP-003, G1-SUP-004.
//!
//! Times are of the physical counter, which all VMs share. The listener notes when an end was told,
//! the next life reads that and knows how long the failure took to be found and until it was served
//! again.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use test_guests::failing::Fault;
use test_guests::ffa::{self, Descriptor, function, regs, status_of};
use test_guests::mmio::{read64, write32, write64};
use test_guests::timer::Kind;
use test_guests::{Machine, check, cpu, gic, guest, psci, report, say, timer};

guest!(main, irq = on_interrupt);

/// Words of a VM that fails, in memory that outlives it: its lives; ends that the other one was
/// told of; when that was last, and when the last failure began; transactions that its first life
/// could make; what was wrong, a bit each; and its stage.
const LIVES: u64 = 0;
const TOLD: u64 = 8;
const TOLD_AT: u64 = 16;
const FAILED_AT: u64 = 24;
const SHARES: u64 = 32;
const WRONG: u64 = 40;
const STAGE: u64 = 48;
/// Then a row of words for each way to fail, and these in it.
const ROWS: u64 = 0x100;
const ROW: u64 = 0x40;
const COUNT: u64 = 0;
const FOUND_LEAST: u64 = 8;
const FOUND_MOST: u64 = 16;
const SERVED_MOST: u64 = 24;
/// Bytes of a VM's words; the first ones are the listener's.
const BLOCK: u64 = 0x1000;
/// Stages: the VM waits; fails; lives on; is to fail once more; has come back.
const FAILS: u64 = 1;
const LIVES_ON: u64 = 2;
const FAILS_AGAIN: u64 = 3;
const IS_BACK: u64 = 4;
/// Bits of what is wrong: an end was told not once; too early; a life could share less.
const NOT_ONCE: u64 = 1;
const EARLY: u64 = 2;
const LEAKED: u64 = 4;

/// `watchdog-ms` of the manifest. Each end that is found by silence costs one period, so that a
/// thousand of them take seconds.
const PERIOD_US: u64 = 2_000;
/// Pause between two signs of life, and of two looks of the listener. A tenth of the period: a busy
/// host may delay some of them.
const BEAT_US: u64 = 200;
const LOOK_US: u64 = 1_000;
/// Time in which nothing fails, for who looks at the console.
const QUIET_US: u64 = 100_000;
/// Offset of the refresh register in the watchdog. The generic watchdog of Arm's base system
/// architecture (DEN 0094) has a control frame and a refresh frame, and a store of any value to the
/// latter refreshes.
const REFRESH: u64 = 0x1000;
const PAGE: u64 = 4096;
/// Offset of what is shared. Behind the guest's image and stack.
const ARENA: u64 = 1 << 20;
/// Bound of the loop, which a refusal is to end before.
const MOST_SHARES: u64 = 64;

/// Ways in which a VM fails. Crash ends at once and is told at once; the other four are found by
/// the watchdog or the heartbeat.
const FAULTS: [Fault; 5] = [
    Fault::Crash,
    Fault::Hang,
    Fault::Silence,
    Fault::Loop,
    Fault::Storm,
];

/// Ways in which Gear2 fails, as its build for that numbers them, and questions to it.
const WAYS: [(&str, u64); 7] = [
    ("hang", 0),
    ("access-to-nothing", 1),
    ("store-to-its-code", 2),
    ("undefined-instruction", 3),
    ("panic", 4),
    ("silence", 6),
    ("storm", 7),
];
/// Questions have numbers behind those of the ways.
const HEAP: u64 = 8;
const FOUND_AT: u64 = 9;
/// Number of restarts at which no failure comes.
const NEVER: u64 = u64::MAX;
/// Questions for the heap, of which the least answer counts: loops allocate for a moment.
const SAMPLES: usize = 40;

/// 0 where there is no channel, so that a missing one faults at once.
static MEMORY: AtomicU64 = AtomicU64::new(0);
/// INTIDs of the doorbells of the two that fail.
static BELLS: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

/// Acts in the role that the command line names. The memory is that of the first channel, by which
/// all VMs share one block.
fn main(machine: &Machine) {
    let channel = machine.channels.iter().flatten().next();
    let memory = channel.and_then(|it| it.memory.clone());
    MEMORY.store(memory.map_or(0, |memory| memory.start), Relaxed);
    let kills = machine.option("kills").unwrap_or(0);
    match machine.option("role") {
        Some(2) => conduct(machine, kills),
        Some(3) => {
            listen(machine, 1);
            cpu::sleep_until(|| false);
        }
        Some(role) => Victim::new(machine, role).live(kills),
        None => report::fail("role", format_args!("none")),
    }
}

/// Words of one of the VMs.
#[derive(Clone, Copy)]
/// Each word has one writer at a time, by the stages.
struct Words(u64);

impl Words {
    /// Returns the words of a VM that fails. The listeners' words come first, then a block for each
    /// VM that fails.
    fn of(role: u64) -> Self {
        Self(MEMORY.load(Relaxed) + BLOCK * (1 + role))
    }

    /// Returns the words for a way to fail.
    fn row(self, way: usize) -> Self {
        Self(self.0 + ROWS + ROW * way as u64)
    }

    fn get(self, word: u64) -> u64 {
        read64(self.0 + word)
    }

    /// Writes a word. The barrier orders the word before what follows, as a crash may follow at
    /// once.
    fn put(self, word: u64, value: u64) {
        write64(self.0 + word, value);
        cpu::dsb();
    }

    /// Adds an end to a row.
    fn add(self, found: u64, served: u64) {
        let count = self.get(COUNT);
        let least = if count == 0 {
            found
        } else {
            found.min(self.get(FOUND_LEAST))
        };
        self.put(COUNT, count + 1);
        self.put(FOUND_LEAST, least);
        self.put(FOUND_MOST, found.max(self.get(FOUND_MOST)));
        self.put(SERVED_MOST, served.max(self.get(SERVED_MOST)));
    }

    /// Prints a row for the host, which judges the times.
    fn say(self, layer: &str, fault: &str) {
        let [count, least, most, served] =
            [COUNT, FOUND_LEAST, FOUND_MOST, SERVED_MOST].map(|word| self.get(word));
        say!("KILLS {layer} {fault} {count} {least} {most} {served}");
    }
}

/// A VM that fails. A guest has a watchdog, a real-time VM a heartbeat; one of both is there.
struct Victim {
    words: Words,
    watchdog: Option<u64>,
    heartbeat: Option<u64>,
    arena: u64,
}

impl Victim {
    fn new(machine: &Machine, role: u64) -> Self {
        Self {
            words: Words::of(role),
            watchdog: machine.watchdog,
            heartbeat: machine.heartbeat,
            arena: machine.ram.start + ARENA,
        }
    }

    /// Lives one life, and ends it as its number says. A life knows that number by a word in shared
    /// memory: own memory is loaded anew.
    fn live(&self, kills: u64) {
        let words = self.words;
        let life = words.get(LIVES) + 1;
        words.put(LIVES, life);
        if life == 1 {
            self.feed_until(|| words.get(STAGE) == FAILS);
        } else {
            self.was_told(life - 1);
        }
        if self.watchdog.is_some() {
            self.shares();
        }
        if life == kills + 1 {
            words.put(STAGE, LIVES_ON);
            self.feed_until(|| words.get(STAGE) == FAILS_AGAIN);
        } else if life > kills {
            words.put(STAGE, IS_BACK);
            self.feed_until(|| false);
        }
        // Before the last sign of life, so that no end comes earlier than a period after it.
        words.put(FAILED_AT, Kind::Physical.now());
        self.feed();
        FAULTS[way_of(life)].commit(life);
    }

    /// Shows a sign of life. The watchdog is a store that traps, and the heartbeat a word in memory
    /// that Gear1 looks at (G1-SUP-004).
    fn feed(&self) {
        if let Some(watchdog) = self.watchdog {
            write32(watchdog + REFRESH, 0);
        }
        if let Some(word) = self.heartbeat {
            write64(word, read64(word) + 1);
        }
    }

    fn feed_until(&self, condition: impl Fn() -> bool) {
        while !condition() {
            self.feed();
            timer::delay_us(BEAT_US);
        }
    }

    /// Notes how the end of the former life was found. The end must have been told once: a word
    /// that is ahead has been told twice. Only a crash may be found before the period is over.
    fn was_told(&self, life: u64) {
        let words = self.words;
        self.feed_until(|| words.get(TOLD) >= life);
        let failed = words.get(FAILED_AT);
        let (told, now) = (words.get(TOLD_AT), Kind::Physical.now());
        let [found, served] = [told, now].map(|at| timer::to_ns(at - failed) / 1_000);
        let fault = FAULTS[way_of(life)];
        self.wrong(NOT_ONCE, words.get(TOLD) != life);
        self.wrong(EARLY, fault != Fault::Crash && found < PERIOD_US);
        words.row(way_of(life)).add(found, served);
    }

    /// Shares page after page, until that is refused: as often as in the first life. Nothing is
    /// reclaimed, so each life depends on Gear1's release of the former one's transactions
    /// (G1-MEM-018).
    fn shares(&self) {
        let (own, tx) = (ffa::own_endpoint(), self.arena);
        let mapped = ffa::hvc(regs([function::RXTX_MAP, tx, tx + PAGE, 1]));
        let mut count = 0;
        while status_of(&mapped) == 0 && count < MOST_SHARES {
            Descriptor {
                pages: 1,
                ranges: 1,
                ..Descriptor::of_call(function::SHARE, own, own - 1)
            }
            .write(tx);
            ffa::write_range(tx + ffa::HEADER, tx + PAGE * (2 + count), 1);
            let size = ffa::HEADER + 16;
            if status_of(&ffa::hvc(regs([function::SHARE, size, size]))) != 0 {
                break;
            }
            count += 1;
        }
        if self.words.get(SHARES) == 0 {
            self.words.put(SHARES, count);
        }
        self.wrong(LEAKED, count == 0 || count != self.words.get(SHARES));
    }

    /// Bits are kept over lives, and the conductor reads them at the end.
    fn wrong(&self, bit: u64, is_wrong: bool) {
        if is_wrong {
            self.words.put(WRONG, self.words.get(WRONG) | bit);
        }
    }
}

/// Returns the way in which a life ends.
const fn way_of(life: u64) -> usize {
    (life - 1) as usize % FAULTS.len()
}

/// Leads the test from one stage to the next. The heap of Gear2 is compared before and after: what
/// a served end leaves allocated would add up over a thousand ends.
fn conduct(machine: &Machine, kills: u64) {
    let victims = [Words::of(0), Words::of(1)];
    listen(machine, 0);
    gic::enable(timer::INTID);
    timer::arm(timer::now());
    say!("KILLS quiet");
    sleep_us(QUIET_US);
    let before = heap();
    say!("KILLS begin");
    go_on(FAILS);
    wait_for(LIVES_ON);
    report::equal("heap-after-kills-of-vms", heap(), before);
    kill_gear2(kills);
    report::equal("heap-after-kills-of-gear2", heap(), before);
    report::equal(
        "lives-meanwhile",
        victims.map(|words| words.get(LIVES)),
        [kills + 1; 2],
    );
    go_on(FAILS_AGAIN);
    wait_for(IS_BACK);
    for (words, layer) in victims.iter().zip(["guest", "real-time-VM"]) {
        for (way, fault) in FAULTS.iter().enumerate() {
            words.row(way).say(layer, fault.name());
        }
        report::equal("nothing-is-wrong", words.get(WRONG), 0);
        report::equal("told-of-each-end", words.get(TOLD), kills + 1);
    }
    check!("shares", victims[0].get(SHARES) > 0, "none");
    say!("KILLS end");
    sleep_us(QUIET_US);
}

/// Hears the doorbell that tells of the ends of a VM.
fn listen(machine: &Machine, role: usize) {
    if let (Some(channel), Some(bell)) = (machine.channels.iter().flatten().next(), BELLS.get(role))
    {
        bell.store(channel.intid, Relaxed);
        gic::set_edge(channel.intid, true);
        gic::enable(channel.intid);
    }
}

/// Brings both VMs to a stage. The stages are words in shared memory, which the victims poll: no
/// interrupt of theirs is needed.
fn go_on(stage: u64) {
    for role in [0, 1] {
        Words::of(role).put(STAGE, stage);
    }
}

/// Sleeps until both VMs are in a stage.
fn wait_for(stage: u64) {
    let are_there = || {
        [0, 1]
            .iter()
            .all(|role| Words::of(*role).get(STAGE) == stage)
    };
    cpu::sleep_until(are_there);
}

/// Sleeps, and takes the interrupts of doorbells meanwhile.
fn sleep_us(us: u64) {
    let end = timer::now() + timer::from_us(us);
    cpu::sleep_until(|| timer::now() >= end);
}

/// Returns the bytes that Gear2 has allocated. The least of many answers counts, since a loop of
/// Gear2 may have something allocated at the time of one.
fn heap() -> u64 {
    let samples = (0..SAMPLES).map(|_| {
        sleep_us(LOOK_US);
        psci::fail_gear2(HEAP, NEVER)
    });
    samples.min().unwrap_or(0)
}

/// Has Gear2 fail so often, in one way after the other. The time of a failure is noted before the
/// call that asks for it, so the measured time includes the call.
fn kill_gear2(kills: u64) {
    let words = Words(MEMORY.load(Relaxed));
    let mut restarts = psci::fail_gear2(WAYS[0].1, NEVER);
    let first = restarts;
    for (_, (way, (_, number))) in (0..kills).zip(WAYS.iter().enumerate().cycle()) {
        sleep_us(BEAT_US);
        let failed = Kind::Physical.now();
        restarts = psci::fail_gear2(*number, restarts);
        let served = Kind::Physical.now();
        let found = psci::fail_gear2(FOUND_AT, NEVER);
        let [found, served] =
            [found, served].map(|at| timer::to_ns(at.saturating_sub(failed)) / 1_000);
        words.row(way).add(found, served);
    }
    report::equal("restarts-of-gear2", restarts - first, kills);
    for (way, (fault, _)) in WAYS.iter().enumerate() {
        words.row(way).say("Gear2", fault);
    }
}

/// Takes an interrupt. The timer only wakes the listener; a doorbell of a VM's end is counted for
/// that VM.
fn on_interrupt(intid: u32) {
    if intid == timer::INTID {
        timer::arm(timer::now() + timer::from_us(LOOK_US));
    }
    for (role, bell) in (0_u64..).zip(&BELLS) {
        if bell.load(Relaxed) == intid {
            let words = Words::of(role);
            words.put(TOLD_AT, Kind::Physical.now());
            words.put(TOLD, words.get(TOLD) + 1);
        }
    }
}
