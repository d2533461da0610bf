//! A control loop for the example manifests: woken every millisecond by its timer, it says every
//! 1,000 periods how late the latest wake-up was, and how many periods it has missed since its
//! start. With a doorbell of another VM it also says how often that was rung. It never ends, unless
//! its command line says after how many periods: `periods=N`. Then it checks that it missed as many
//! as `missed=N` says, none without that. With `overrun=US` its work takes that long once, halfway.
#![no_std]
#![no_main]

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use test_guests::{Machine, cpu, gic, guest, report, say, timer};

guest!(main, irq = on_interrupt);

/// A common rate of motor and process control.
const PERIOD_US: u64 = 1_000;
/// A line a second: the console's time is part of a period.
const REPORTED: u64 = 1_000;

/// Due time of the wake-up, then the longest delay since the last report. Written by the handler
/// and by the loop with interrupts masked, so no exchange is needed.
static DUE: AtomicU64 = AtomicU64::new(0);
static LATEST: AtomicU64 = AtomicU64::new(0);
/// Number of wake-ups, then the number of periods without one. The loop compares counts and not
/// times, as it may find several wake-ups at once.
static PERIODS: AtomicU64 = AtomicU64::new(0);
static MISSED: AtomicU64 = AtomicU64::new(0);
/// Interrupts by the doorbell. Rings within the manifest's interval are one interrupt (G1-CHN-006).
static RINGS: AtomicU64 = AtomicU64::new(0);

/// The overrun is busy, with interrupts masked: the timer's interrupt stays pending, and its
/// lateness tells what was missed.
fn main(machine: &Machine) {
    let last = machine.option("periods").unwrap_or(u64::MAX);
    let mut overrun = machine.option("overrun");
    let has_doorbell = enable_doorbell(machine);
    gic::enable(timer::INTID);
    arm(timer::now() + timer::from_us(PERIOD_US));
    let mut reported = 0;
    loop {
        cpu::unmask_irqs();
        cpu::wfi();
        cpu::mask_irqs();
        let periods = PERIODS.load(Relaxed);
        // On a busy machine two wake-ups may come before this line: reports keep to their steps.
        let next = last.min(reported + REPORTED);
        if periods >= next {
            reported = next;
            let late = timer::to_ns(LATEST.swap(0, Relaxed)) / 1_000;
            let missed = MISSED.load(Relaxed);
            let rung = Rung(has_doorbell.then(|| RINGS.load(Relaxed)));
            say!("control loop: {reported} periods, at most {late} us late, {missed} missed{rung}");
        }
        if reported == last {
            break;
        }
        if periods >= last / 2
            && let Some(us) = overrun.take()
        {
            timer::delay_us(us);
        }
    }
    let expected = machine.option("missed").unwrap_or(0);
    report::equal("periods missed", MISSED.load(Relaxed), expected);
}

/// Enables the interrupt of the first doorbell that leads here; tells whether there is one. `intid`
/// is 0 for a doorbell that leads out of this VM.
fn enable_doorbell(machine: &Machine) -> bool {
    let mut channels = machine.channels.iter().flatten();
    let Some(channel) = channels.find(|channel| channel.intid != 0) else {
        return false;
    };
    gic::set_edge(channel.intid, true);
    gic::enable(channel.intid);
    true
}

/// End of a report: how often the doorbell was rung, if there is one.
struct Rung(Option<u64>);

impl fmt::Display for Rung {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .map_or(Ok(()), |rings| write!(out, ", rung {rings} times"))
    }
}

fn on_interrupt(intid: u32) {
    if intid == timer::INTID {
        end_period();
    } else {
        RINGS.fetch_add(1, Relaxed);
    }
}

/// The next deadline is a multiple of the period from the first one: lateness does not add up.
/// Linux's `hrtimer_forward` does so as well.
fn end_period() {
    let due = DUE.load(Relaxed);
    let late = timer::now() - due;
    LATEST.fetch_max(late, Relaxed);
    PERIODS.fetch_add(1, Relaxed);
    // A period that is over before its timer is armed is missed: no wake-up of its own tells of it.
    let period = timer::from_us(PERIOD_US);
    let missed = late / period;
    MISSED.fetch_add(missed, Relaxed);
    arm(due + period * (missed + 1));
}

/// Arms the timer for the next wake-up. An absolute compare value (CNTV_CVAL_EL0): CNTV_TVAL_EL0
/// would add the way from the read of the counter to each period.
fn arm(due: u64) {
    DUE.store(due, Relaxed);
    timer::arm(due);
}
