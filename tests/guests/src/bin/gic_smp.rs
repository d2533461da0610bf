//! Interrupts among all CPUs of a machine with one to eight: SGIs in every form from each to each,
//! rounds in which all send to all, a token that goes round, shared interrupts routed to each.
//!
//! CPU 0 gives the orders and checks. Interrupts stay masked: each CPU acknowledges by hand and
//! sleeps in WFI, so a lost one is seen as such.
//!
//! A lost interrupt is the failure that matters: Gear1 passes interrupts from one CPU to another,
//! and a vCPU that sleeps while its interrupt is pending elsewhere never wakes. Each wait therefore
//! ends by a timer, whose interrupt is counted as a wake-up that was lost.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use test_guests::gic::{self, Version, register};
use test_guests::mmio::write8;
use test_guests::{MAX_CPUS, Machine, check, cpu, guest, psci, report, say, timer};

guest!(
    main,
    irq = test_guests::exception::ignore,
    other_cpu = other
);

/// SGI by which CPU 0 gives orders, and the others tell it that they did something. The highest
/// SGI, so that those that are counted begin at 0.
const ORDER: u32 = 15;
/// SGI that goes round.
const TOKEN: u32 = 14;
/// Twenty laps of the token: each hop is a wake-up by the CPU that has just been woken.
const LAPS: u32 = 20;
/// SGI of the rounds in which all send to all.
const ROUND: u32 = 13;
/// Fifty rounds: in each all CPUs send at about the same time, so that sends meet a target that
/// falls asleep.
const ROUNDS: u64 = 50;
/// SGIs that are counted.
const COUNTED: u32 = 13;
/// A shared interrupt without a device, made pending by registers alone.
const SPI: u32 = 130;
/// After so long something is lost. A busy host delays a lap of all CPUs by seconds.
const LOST_US: u64 = 60_000_000;
/// Time to wait for an interrupt that must not come.
const PATIENCE_US: u64 = 20;

/// Orders to a CPU: the lower byte; above it an SGI, and a mask of targets. One word holds an
/// order, so that a CPU reads all of it at once.
mod order {
    pub(super) const SEND: u64 = 1;
    pub(super) const SEND_TO_OTHERS: u64 = 2;
    pub(super) const ROUNDS: u64 = 3;
    pub(super) const SGI: u32 = 8;
    pub(super) const TARGETS: u32 = 16;
}

/// Each word has one writer, or is changed by read-modify-write.
struct Cpu {
    order: AtomicU64,
    /// Number of times that each SGI came, then `SPI`.
    counts: [AtomicU32; COUNTED as usize + 1],
    /// Sender of the last SGI, from GICC_IAR. A GICv2 has three bits for it, 12:10.
    sender: AtomicU32,
    /// Last round that this CPU has begun.
    round: AtomicU64,
}

static CPUS: [Cpu; MAX_CPUS] = [const {
    Cpu {
        order: AtomicU64::new(0),
        counts: [const { AtomicU32::new(0) }; COUNTED as usize + 1],
        sender: AtomicU32::new(0),
        round: AtomicU64::new(0),
    }
}; MAX_CPUS];
/// Written before any other CPU is on.
static CPU_COUNT: AtomicU32 = AtomicU32::new(0);
/// CPU 0 is on from the start.
static ON: AtomicU32 = AtomicU32::new(1);
/// CPU 0 alone counts: a lap is over when the token is back.
static LAPS_DONE: AtomicU32 = AtomicU32::new(0);
/// CPUs that are through all of their rounds.
static ROUNDS_DONE: AtomicU32 = AtomicU32::new(0);
/// Timers of waits that expired. A sum suffices: any one is a failure.
static LOST: AtomicU32 = AtomicU32::new(0);

/// Runs all checks. The order is from one interrupt at a time to all at once: a later check means
/// little if an earlier one fails.
fn main(machine: &Machine) {
    let cpus = machine.cpus;
    say!("{cpus} CPUs");
    CPU_COUNT.store(cpus as u32, Ordering::Relaxed);
    prepare();
    (1..cpus).for_each(|cpu| _ = psci::cpu_on(cpu));
    let all_on = wait_for(|| ON.load(Ordering::Acquire) as usize == cpus);
    check!("all-on", all_on, "{ON:?}");
    each_to_each(cpus);
    each_to_others(cpus);
    lists(cpus);
    token(cpus);
    rounds(cpus);
    routes(machine);
    let lost = LOST.load(Ordering::Relaxed);
    check!("no-wake-up-lost", lost == 0, "{lost}");
}

/// Enables the interrupts of this CPU. SGIs and PPIs have enables for each CPU, so all CPUs do
/// this.
fn prepare() {
    (0..16).for_each(gic::enable);
    gic::enable(timer::INTID);
    gic::set_edge(SPI, true);
}

/// Obeys orders. An order that arrives between the swap and WFI leaves its SGI pending, which ends
/// WFI at once.
fn other(me: usize) {
    prepare();
    ON.fetch_add(1, Ordering::Release);
    tell(me);
    loop {
        poll(me);
        match CPUS[me].order.swap(0, Ordering::Acquire) {
            0 => cpu::wfi(),
            order => obey(me, order),
        }
    }
}

/// Wakes CPU 0, which waits for what `me` has done. CPU 0's own deeds need no SGI, as CPU 0 is
/// awake then.
fn tell(me: usize) {
    if me != 0 {
        gic::send_sgi(0, ORDER);
    }
}

/// Returns the CPU to which the token goes from here.
fn next(me: usize) -> usize {
    (me + 1) % CPU_COUNT.load(Ordering::Relaxed) as usize
}

/// Takes all pending interrupts.
fn poll(me: usize) {
    loop {
        let acknowledged = gic::acknowledge();
        if !gic::is_real(acknowledged) {
            return;
        }
        let intid = gic::intid(acknowledged);
        match intid {
            timer::INTID => {
                timer::disarm();
                LOST.fetch_add(1, Ordering::Relaxed);
            }
            SPI => _ = CPUS[me].counts[COUNTED as usize].fetch_add(1, Ordering::Release),
            sgi if sgi < COUNTED => {
                CPUS[me].sender.store(acknowledged >> 10, Ordering::Relaxed);
                CPUS[me].counts[intid as usize].fetch_add(1, Ordering::Release);
            }
            TOKEN => pass_on(me),
            _ => {}
        }
        gic::end(acknowledged);
        tell(me);
    }
}

/// Sends the token on; CPU 0 counts the laps and keeps the token after the last one. With one CPU,
/// the SGI becomes pending while it is active still.
fn pass_on(me: usize) {
    if me != 0 || LAPS_DONE.fetch_add(1, Ordering::Relaxed) + 1 < LAPS {
        gic::send_sgi(next(me), TOKEN);
    }
}

/// Does what an order says. The sender is this CPU, which a GICv2 tells the target.
fn obey(me: usize, order: u64) {
    let sgi = (order >> order::SGI & 0xff) as u32;
    match order & 0xff {
        order::SEND => gic::send_sgi_to((order >> order::TARGETS) as u8, sgi),
        order::SEND_TO_OTHERS => gic::send_sgi_to_others(sgi),
        _ => meet(me),
    }
}

/// Begins each round, tells all others, and sleeps until all have begun it. A round begins on each
/// CPU at its own time, so a CPU may get the SGIs of a round that it has not begun.
fn meet(me: usize) {
    let cpus = &CPUS[..CPU_COUNT.load(Ordering::Relaxed) as usize];
    for round in 1..=ROUNDS {
        CPUS[me].round.store(round, Ordering::Release);
        gic::send_sgi_to_others(ROUND);
        let all_there = || {
            cpus.iter()
                .all(|cpu| cpu.round.load(Ordering::Acquire) >= round)
        };
        timer::arm(timer::now() + timer::from_us(LOST_US));
        while !all_there() {
            cpu::wfi();
            poll(me);
        }
        timer::disarm();
    }
    ROUNDS_DONE.fetch_add(1, Ordering::Release);
    tell(me);
}

/// Makes a CPU do something. The order is stored before the SGI, which wakes the CPU to look for
/// it. The release store and the DSB in the driver keep that order.
fn give(to: usize, order: u64) {
    if to == 0 {
        return obey(0, order);
    }
    CPUS[to].order.store(order, Ordering::Release);
    gic::send_sgi(to, ORDER);
}

/// Waits until `condition` holds, but not for ever; takes what comes to CPU 0.
fn wait_for(condition: impl Fn() -> bool) -> bool {
    let end = timer::now() + timer::from_us(LOST_US);
    loop {
        poll(0);
        if condition() {
            return true;
        }
        if timer::now() >= end {
            return false;
        }
        timer::arm(end);
        cpu::wfi();
        timer::disarm();
    }
}

/// Tells whether interrupt `index` of those that are counted comes once to each CPU of `mask`, and
/// to no other. A count of exactly one finds interrupts that are lost and those that come twice.
/// The pause gives an interrupt that must not come the time to come.
fn arrives(index: u32, mask: u8) -> bool {
    let count = |cpu: &Cpu| cpu.counts[index as usize].load(Ordering::Acquire);
    let has_come = wait_for(|| {
        let mut targets = CPUS.iter().enumerate();
        targets.all(|(cpu, state)| mask >> cpu & 1 == 0 || count(state) != 0)
    });
    timer::delay_us(PATIENCE_US);
    poll(0);
    let mut exact = has_come;
    for (cpu, state) in CPUS.iter().enumerate() {
        let taken = state.counts[index as usize].swap(0, Ordering::Acquire);
        exact &= taken == u32::from(mask >> cpu & 1);
    }
    exact
}

/// Returns the mask of all CPUs that there are. A GICv2 has eight bits for targets, and a VM at
/// most eight vCPUs.
fn everybody(cpus: usize) -> u8 {
    (0xff_u16 >> (8 - cpus)) as u8
}

/// Sends an SGI from each CPU to each, itself included. A GICv2 tells the sender in GICC_IAR (Arm
/// IHI 0048, 4.4.4); a GICv3 has no such field, so that 0 is expected.
fn each_to_each(cpus: usize) {
    let mut wrong = 0;
    let mut wrong_sender = 0;
    for from in 0..cpus {
        for (to, target) in CPUS.iter().enumerate().take(cpus) {
            let sgi = (from * cpus + to) as u32 % COUNTED;
            let list = 1 << (to as u32 + order::TARGETS);
            give(from, order::SEND | u64::from(sgi) << order::SGI | list);
            wrong += u32::from(!arrives(sgi, 1 << to));
            let sender = target.sender.load(Ordering::Relaxed) as usize;
            let expected = if gic::version() == Version::V2 {
                from
            } else {
                0
            };
            wrong_sender += u32::from(sender != expected);
        }
    }
    report::equal("each-to-each", (wrong, wrong_sender), (0, 0));
}

/// Sends by the filter or the bit that means all but the sender, whose list of targets is ignored.
fn each_to_others(cpus: usize) {
    let wrong = (0..cpus).filter(|&from| {
        let sgi = from as u32;
        give(from, order::SEND_TO_OTHERS | u64::from(sgi) << order::SGI);
        !arrives(sgi, everybody(cpus) & !(1 << from))
    });
    report::equal("each-to-others", wrong.count(), 0);
}

/// Sends SGIs to lists of targets, absent CPUs included. Bits of absent CPUs must reach nobody: in
/// a VM they could be CPUs of other VMs (G1-GIC-004).
fn lists(cpus: usize) {
    let wrong = (0..=255_u8).step_by(7).filter(|&mask| {
        let from = usize::from(mask) % cpus;
        let sgi = u32::from(mask) % COUNTED;
        let list = u64::from(mask) << order::TARGETS;
        give(from, order::SEND | u64::from(sgi) << order::SGI | list);
        !arrives(sgi, mask & everybody(cpus))
    });
    report::equal("lists", wrong.count(), 0);
}

/// Passes one SGI on from CPU to CPU. A single lost wake-up stops the token for good. No timer of
/// CPU 0's repairs it, as only the CPU with the token sends.
fn token(cpus: usize) {
    gic::send_sgi(next(0), TOKEN);
    let is_round = wait_for(|| LAPS_DONE.load(Ordering::Relaxed) >= LAPS);
    check!("token", is_round, "{LAPS_DONE:?} laps of {cpus} CPUs");
}

/// Has all CPUs begin the rounds. CPU 0 comes last, as it stays in its rounds until all others have
/// joined.
fn rounds(cpus: usize) {
    (0..cpus).rev().for_each(|cpu| give(cpu, order::ROUNDS));
    let all_done = wait_for(|| ROUNDS_DONE.load(Ordering::Acquire) as usize == cpus);
    check!("rounds", all_done, "{ROUNDS_DONE:?} CPUs got through");
}

/// A shared interrupt goes to the CPU that it is routed to, also while it is pending. The second
/// part changes the route of an interrupt that is pending already, and disabled: it must come where
/// it is routed when it is enabled.
fn routes(machine: &Machine) {
    let cpus = machine.cpus;
    gic::enable(SPI);
    let mut wrong = 0;
    for to in (0..cpus).chain((0..cpus).rev()) {
        gic::route(SPI, to);
        gic::set_pending(SPI, true);
        wrong += u32::from(!arrives(COUNTED, 1 << to));
        gic::disable(SPI);
        gic::set_pending(SPI, true);
        gic::route(SPI, cpus - 1 - to);
        gic::enable_as_routed(SPI);
        wrong += u32::from(!arrives(COUNTED, 1 << (cpus - 1 - to)));
    }
    report::equal("routes", wrong, 0);
    if gic::version() == Version::V2 && machine.gearv {
        // QEMU's GIC delivers the interrupt to each target.
        one_of_many(cpus);
    }
}

/// A shared interrupt with all CPUs as targets goes to one of them. The 1-of-N model of a GICv2
/// (Arm IHI 0048, 1.4.3): two CPUs that both acknowledge the interrupt would sum up to two.
fn one_of_many(cpus: usize) {
    let targets = gic::distributor() + register::ITARGETSR + u64::from(SPI);
    write8(targets, everybody(cpus));
    let spi = |cpu: &Cpu| cpu.counts[COUNTED as usize].load(Ordering::Acquire);
    let sum = || CPUS.iter().map(spi).sum::<u32>();
    let once_each = (1..=20).all(|count| {
        gic::set_pending(SPI, true);
        let came = wait_for(|| sum() >= count);
        timer::delay_us(PATIENCE_US);
        came && sum() == count
    });
    check!("one-of-many", once_each, "{}", sum());
}
