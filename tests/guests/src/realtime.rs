//! Tests of a real-time VM with two CPUs and a UART of its own: it compares its exit counts with
//! its actions, measures the latency of its timers, tries to reach memory and devices of others,
//! and restarts once.
//!
//! Requirements: G1-RT-002, G1-RT-004, G1-RT-007.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gear1_abi::exit::ExitReason;

use crate::gic::{self, register};
use crate::mmio::{read32, write32};
use crate::timer::{self, Kind};
use crate::{Machine, check, cpu, psci, report, say, stats, uart};

/// The guest on the machine's first CPU has this SGI enabled too, and fails if it comes there.
const SGI: u32 = 7;
/// Asks the second CPU for [`ANSWER`].
const QUESTION: u32 = 8;
/// SGI with which the second CPU answers.
const ANSWER: u32 = 9;
/// First of the machine's CPUs that the VM has, as the manifest says.
const FIRST_CPU: u32 = 1;
/// The exit count must match exactly, so that one exit too many in 500 shows.
const CALLS: u64 = 500;
const SGIS: u64 = 500;
/// Each start meets the kick that turns the vCPU on at another moment.
const STARTS: u64 = 300;
/// Longest delay of a kick; the test of late kicks delays one by 100 us.
const START_US: u64 = 200;
/// With [`PERIOD_US`] half a second of a control loop of 2 kHz.
const PERIODS: u64 = 1000;
const PERIOD_US: u64 = 500;
/// PL011: fractional divisor, which a restart of the VM does not touch.
const FBRD: u64 = 0x28;
const RESTARTED: u32 = 0x2a;
const VIRTUAL: u32 = Kind::Virtual.intid();
const PHYSICAL: u32 = Kind::Physical.intid();
/// Foreign interrupts: the EL2 timer's, the maintenance interrupt, and an unowned SPI. Gear1 uses
/// none of them on a CPU whose interface is the guest's (G1-RT-002), and the guest must not reach
/// them all the same (G1-RT-003).
const FOREIGN: [u32; 3] = [26, 25, 200];

/// Number of starts of the second CPU.
static STARTED: AtomicU64 = AtomicU64::new(0);
/// The second CPU turns itself off.
static OFF_AGAIN: AtomicBool = AtomicBool::new(true);
/// SGIs taken by the second CPU.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// Due time of a timer, and its latency.
static DUE: AtomicU64 = AtomicU64::new(0);
static LATE: AtomicU64 = AtomicU64::new(0);
/// Interrupts of either timer: a sleep ends with the change of this number, and not with a WFI that
/// returned early.
static TICKS: AtomicU64 = AtomicU64::new(0);
/// Questions for a counter so far, each a hypercall.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// Way in which the VM gets its interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// From the machine: no timer costs an exit.
    PassThrough,
    /// From the virtual interrupt controller: the virtual timer's costs one each.
    Emulated,
}

/// The first CPU. The restart comes last: by SYSTEM_RESET Gear1 starts the VM again without Gear2
/// (G1-RT-006), and the second life reads in its own UART that there was a first one.
pub fn main(machine: &Machine, mode: Mode) {
    // Without GearV, the UART is as new at each start of the machine.
    if read32(uart::base() + FBRD) == RESTARTED {
        report::pass("restarted");
        write32(uart::base() + FBRD, 0);
        return;
    }
    if machine.gearv {
        check!("boot-exits", exits() > 0, "none is counted");
        calls();
    }
    starts();
    let started = psci::cpu_on(1);
    check!("cpu-on", started == psci::result::SUCCESS, "{started}");
    sgis(machine);
    senders(machine, mode);
    for kind in [Kind::Virtual, Kind::Physical] {
        latency(machine, mode, kind);
    }
    if machine.gearv {
        if mode == Mode::PassThrough {
            foreign_interrupts();
        }
        foreign_cpus();
        write32(uart::base() + FBRD, RESTARTED);
        psci::system_reset();
    }
}

/// The second CPU is turned on and off again and again: no interrupt of anybody's waits for it.
/// Gear1 wakes the CPU by an SGI of its own. If that SGI is still pending when the interface
/// becomes the guest's, the guest takes an interrupt that nobody sent (G1-RT-007). Linux polls
/// AFFINITY_INFO likewise when it turns a CPU off (`psci_cpu_kill`), because the CPU that calls
/// CPU_OFF is on until the call is done.
fn starts() {
    for start in 1..=STARTS {
        let started = psci::cpu_on(1);
        check_start(started);
        // QEMU's own firmware says that it is off until it is on.
        cpu::wait_until(|| STARTED.load(Ordering::Relaxed) == start);
        cpu::wait_until(|| psci::affinity_info(1) == psci::affinity::OFF);
    }
    OFF_AGAIN.store(false, Ordering::Relaxed);
    report::equal("starts-with-nothing-pending", gic::pending_sgis(), 0);
}

/// Only a failure prints, since 300 successes tell no more than one.
fn check_start(started: i32) {
    if started != psci::result::SUCCESS {
        report::fail("starts", format_args!("{started}"));
    }
}

/// The second CPU. A start that is counted ends by a return, upon which the runtime calls CPU_OFF.
/// The delay gives a late kick the time to arrive before the look at GICR_ISPENDR0 or
/// GICD_ISPENDR0.
pub fn other(_index: usize) {
    if OFF_AGAIN.load(Ordering::Relaxed) {
        timer::delay_us(START_US);
        gic::note_pending_sgis();
        STARTED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    gic::enable(SGI);
    gic::enable(QUESTION);
    cpu::unmask_irqs();
    loop {
        cpu::wfi();
    }
}

/// Both CPUs' interrupts.
pub fn on_interrupt(intid: u32) {
    match intid {
        SGI => {
            TAKEN.fetch_add(1, Ordering::Release);
        }
        QUESTION => gic::send_sgi(0, ANSWER),
        VIRTUAL => tick(Kind::Virtual),
        PHYSICAL => tick(Kind::Physical),
        _ => say!("FAIL interrupt {intid}"),
    }
}

/// CTL = 0 lowers the line before the interrupt ends, which would come again otherwise.
fn tick(kind: Kind) {
    let late = kind.now() - DUE.load(Ordering::Relaxed);
    LATE.store(late, Ordering::Relaxed);
    TICKS.fetch_add(1, Ordering::Relaxed);
    kind.set_control(0);
}

/// Returns all exits of this vCPU so far but those of asking for them. Each question is an HVC, and
/// would count among the exits that a check compares.
pub fn exits() -> u64 {
    let asked = ExitReason::COUNT as u64;
    let sum: u64 = ExitReason::ALL
        .iter()
        .map(|&reason| stats::exits(reason))
        .sum();
    // The questions before the one for `Hvc` are in its answer already.
    sum - ASKED.fetch_add(asked, Ordering::Relaxed) - ExitReason::Hvc as u64
}

/// Gear1 answers PSCI_VERSION by itself, so that a call is one exit.
fn calls() {
    let before = exits();
    for _ in 0..CALLS {
        psci::hvc(psci::function::VERSION, [0; 3]);
    }
    report::equal("calls-counted", exits() - before, CALLS);
}

/// The second CPU takes each SGI, and each costs its sender one exit. With pass-through as well,
/// ICC_SGI1R_EL1 traps, as does GICD_SGIR by an abort: an untrapped SGI could go to any CPU of the
/// machine (G1-RT-004). Taking the SGI is no exit with pass-through.
fn sgis(machine: &Machine) {
    // The second CPU is in WFI, with its interrupt enabled, when the first SGI has arrived.
    while TAKEN.load(Ordering::Acquire) == 0 {
        gic::send_sgi(1, SGI);
        timer::delay_us(100);
    }
    timer::delay_us(1000);
    TAKEN.store(0, Ordering::Relaxed);
    let before = if machine.gearv { exits() } else { 0 };
    for sent in 1..=SGIS {
        gic::send_sgi(1, SGI);
        cpu::wait_until(|| TAKEN.load(Ordering::Acquire) >= sent);
    }
    if machine.gearv {
        report::equal("sgis-counted", exits() - before, SGIS);
    }
    report::equal("sgis-taken", TAKEN.load(Ordering::Acquire), SGIS);
}

/// Checks the sender of an SGI in GICC_IAR of a GICv2: with pass-through, where the VM has the
/// physical CPU interface, the interface number of the machine's CPU, else the vCPU, as
/// GICD_ITARGETSR0 reads. The number does not change (docs/rtvm.md). A GICv3 names no sender. Linux
/// ends an SGI by the whole value of GICC_IAR: a sender that changed between acknowledge and end
/// would leave the SGI active.
fn senders(machine: &Machine, mode: Mode) {
    let physical = machine.gearv && mode == Mode::PassThrough;
    let first = if physical { FIRST_CPU } else { 0 };
    let expected = match machine.gic {
        gic::Version::V2 => [first, first + 1, first],
        gic::Version::V3 => [0; 3],
    };
    gic::enable(ANSWER);
    let senders = [(0, ANSWER), (1, QUESTION), (0, ANSWER)].map(|(target, sgi)| {
        gic::send_sgi(target, sgi);
        let mut acknowledged = gic::NONE;
        cpu::wait_until(|| {
            acknowledged = gic::acknowledge();
            gic::is_real(acknowledged)
        });
        gic::end(acknowledged);
        (gic::intid(acknowledged), acknowledged >> 10)
    });
    gic::disable(ANSWER);
    report::equal(
        "sgi-senders",
        senders,
        expected.map(|sender| (ANSWER, sender)),
    );
}

/// Measures the latency of a timer's interrupt, in nanoseconds, and its exits: with pass-through
/// the VM has both timers. Neither timer traps then, as CNTHCTL_EL2 leaves both to EL1.
fn latency(machine: &Machine, mode: Mode, kind: Kind) {
    gic::enable(kind.intid());
    if machine.gearv && mode == Mode::PassThrough {
        let before = exits();
        kind.set_control(0);
        kind.set_compare(kind.now());
        report::equal("timer-registers", exits() - before, 0);
    }
    let before = if machine.gearv { exits() } else { 0 };
    let [least, average, most] = latencies(kind);
    say!(
        "LATENCY of the {kind:?} timer min {least} avg {average} max {most} ns over {PERIODS} periods"
    );
    if machine.gearv {
        check_timer_exits(mode, kind, exits() - before);
    }
}

/// Returns the least, the average and the largest latency of a timer's interrupts, in nanoseconds.
/// The handler reads the count, so that the way back from the interrupt is not part of a latency.
fn latencies(kind: Kind) -> [u64; 3] {
    let (mut least, mut most, mut sum) = (u64::MAX, 0, 0);
    for _ in 0..PERIODS {
        let ticks = TICKS.load(Ordering::Relaxed);
        let due = kind.now() + timer::from_us(PERIOD_US);
        DUE.store(due, Ordering::Relaxed);
        kind.set_compare(due);
        kind.set_control(1);
        cpu::sleep_until(|| TICKS.load(Ordering::Relaxed) != ticks);
        let late = timer::to_ns(LATE.load(Ordering::Relaxed));
        least = least.min(late);
        most = most.max(late);
        sum += late;
    }
    [least, sum / PERIODS, most]
}

/// A physical interrupt to EL2 is the one exit of the emulated mode; with pass-through the
/// interrupt is taken at EL1 (HCR_EL2.IMO = 0).
fn check_timer_exits(mode: Mode, kind: Kind, cost: u64) {
    match (mode, kind) {
        (Mode::PassThrough, _) => report::equal("timer-exits", cost, 0),
        (Mode::Emulated, Kind::Virtual) => report::equal("timer-exits", cost, PERIODS),
        // Accesses to the physical timer trap, and Gear1 waits for its expiry.
        (Mode::Emulated, Kind::Physical) => {
            check!("timer-exits", cost > PERIODS, "{cost} for {PERIODS}");
        }
    }
}

/// G1-RT-003. With pass-through the registers are the machine's own, cut to the fields of the VM
/// (`passthrough::Fields::mask`). The read finds a bit that a write has reached.
fn foreign_interrupts() {
    let registers = [register::ISENABLER, register::ISPENDR, register::ISACTIVER];
    for intid in FOREIGN {
        for set in registers {
            gic::write_bit(set, intid);
        }
        let changed = registers.iter().any(|set| gic::read_bit(*set, intid));
        check!("foreign-interrupt", !changed, "{intid} changed");
    }
}

/// G1-RT-004: the guest on the machine's first CPU has SGI 7 enabled and fails if one comes. The VM
/// has two CPUs, so that numbers from 2 on name none of its own; the machine has more.
fn foreign_cpus() {
    for target in 2..8 {
        gic::send_sgi(target, SGI);
    }
    gic::send_sgi_to_others(SGI);
    timer::delay_us(1000);
    report::pass("foreign-sgis-sent");
}
