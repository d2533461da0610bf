//! A real-time VM that measures how late its timer interrupt is, and what comes to it that is not
//! its own, for ever: a line for each window, on a UART that it owns. Between windows it causes
//! that UART's interrupt once, which has to come. The interrupts of its doorbell, if it has one,
//! are counted beside the time that they came in.
//!
//! Requirements: G1-CHN-006, G1-CHN-007, G1-RT-001 (in the checking build), G1-RT-003, G1-RT-004,
//! G1-RT-008.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use test_guests::realtime::exits;
use test_guests::{Machine, cpu, gic, guest, say, timer};

guest!(main, irq = on_interrupt);

/// A window is short beside what disturbs: one that is disturbed stands out.
const PERIODS: usize = 100;
/// Period in microseconds, unless the command line has `period-us=`.
const PERIOD_US: u64 = 50;
/// Latest arrival of the VM's own shared interrupt. Gear1 is not on that way: the SPI goes to the
/// CPU at EL1.
const OWN_US: u64 = 1000;
/// Last SPI that is checked; the machine has none above it. QEMU's `virt` has 256 SPIs.
const INTIDS: u32 = 288;

static DUE: AtomicU64 = AtomicU64::new(0);
static LATE: AtomicU64 = AtomicU64::new(0);
static TICKS: AtomicU64 = AtomicU64::new(0);
/// The UART's shared interrupt, which the UART itself never causes, and how often it came.
/// GICD_ISPENDR sets it pending by software, so the UART's own state does not matter.
static UART: AtomicU32 = AtomicU32::new(0);
static OWN: AtomicU64 = AtomicU64::new(0);
/// INTID of the VM's doorbell, and how often it was rung.
static BELL: AtomicU32 = AtomicU32::new(0);
static RINGS: AtomicU64 = AtomicU64::new(0);
/// Number of foreign interrupts: the guest enables all that it can, and causes none of them.
/// Enables of others' interrupts must have no effect (G1-RT-003), or the CPU would take the host's
/// and other VMs' interrupts.
static FOREIGN: AtomicU64 = AtomicU64::new(0);

/// Exits are counted over the measurement alone: accesses to the distributor in between trap.
fn main(machine: &Machine) {
    for intid in 0..INTIDS {
        gic::enable(intid);
    }
    UART.store(machine.uart_intid, Relaxed);
    let bell = machine.channels.iter().flatten().next();
    BELL.store(bell.map_or(0, |bell| bell.intid), Relaxed);
    let mut rung_since = timer::now();
    let period = timer::from_us(machine.option("period-us").unwrap_or(PERIOD_US));
    for window in 0_u64.. {
        let before = exits();
        let late = measure(period);
        let left = exits() - before;
        let at = |percent: usize| late[(PERIODS - 1) * percent / 100];
        let [least, half, most, worst] = [0, 50, 95, 100].map(at);
        let own = own_interrupts(machine.uart_intid);
        let foreign = FOREIGN.swap(0, Relaxed);
        let now = timer::now();
        let (rings, us) = (
            RINGS.swap(0, Relaxed),
            timer::to_ns(now - rung_since) / 1000,
        );
        rung_since = now;
        say!(
            "WINDOW {window} least {least} half {half} most {most} worst {worst} rings {rings} in {us} exits {left} foreign {foreign} own {own}"
        );
    }
}

/// Triggers the VM's shared interrupt once, and returns the number of arrivals.
fn own_interrupts(intid: u32) -> u64 {
    let end = timer::now() + timer::from_us(OWN_US);
    cpu::unmask_irqs();
    gic::set_pending(intid, true);
    while OWN.load(Relaxed) == 0 && timer::now() < end {
        cpu::relax();
    }
    cpu::mask_irqs();
    OWN.swap(0, Relaxed)
}

/// Returns how late the timer was, in nanoseconds, in ascending order. The deadline is set anew
/// each time: one late period must not make the next one late.
fn measure(period: u64) -> [u64; PERIODS] {
    let mut all = [0; PERIODS];
    for place in &mut all {
        let ticks = TICKS.load(Relaxed);
        let due = timer::now() + period;
        DUE.store(due, Relaxed);
        timer::arm(due);
        cpu::sleep_until(|| TICKS.load(Relaxed) != ticks);
        *place = timer::to_ns(LATE.load(Relaxed));
    }
    all.sort_unstable();
    all
}

/// Lateness is taken first, before any store.
fn on_interrupt(intid: u32) {
    if intid == timer::INTID {
        LATE.store(timer::now() - DUE.load(Relaxed), Relaxed);
        TICKS.fetch_add(1, Relaxed);
        timer::disarm();
    } else if intid == UART.load(Relaxed) {
        OWN.fetch_add(1, Relaxed);
    } else if intid == BELL.load(Relaxed) {
        RINGS.fetch_add(1, Relaxed);
    } else {
        FOREIGN.fetch_add(1, Relaxed);
    }
}
