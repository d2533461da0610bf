//! A control loop for the example manifests: woken every millisecond by its timer, it says every 1,000
//! periods how late the latest wake-up was. It never ends, unless its command line says after how many: `periods=N`.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use test_guests::{Machine, cpu, gic, guest, say, timer};

guest!(main, irq = on_timer);

const PERIOD_US: u64 = 1_000;
const REPORTED: u64 = 1_000;

/// When the wake-up is due; how late the latest one of this report was; how many there were.
static DUE: AtomicU64 = AtomicU64::new(0);
static LATEST: AtomicU64 = AtomicU64::new(0);
static PERIODS: AtomicU64 = AtomicU64::new(0);

fn main(machine: &Machine) {
    let last = machine.option("periods").unwrap_or(u64::MAX);
    gic::enable(timer::INTID);
    next(timer::now());
    let mut reported = 0;
    loop {
        cpu::unmask_irqs();
        cpu::wfi();
        cpu::mask_irqs();
        let periods = PERIODS.load(Relaxed);
        if periods >= last {
            return;
        }
        if periods >= reported + REPORTED {
            reported = periods;
            let late = timer::to_ns(LATEST.swap(0, Relaxed)) / 1_000;
            say!("control loop: {periods} periods, at most {late} us late");
        }
    }
}

fn on_timer(_intid: u32) {
    let due = DUE.load(Relaxed);
    let now = timer::now();
    LATEST.fetch_max(now - due, Relaxed);
    PERIODS.fetch_add(1, Relaxed);
    next(due);
}

/// Arms the timer one period after `due`, or after as many as have gone by.
fn next(due: u64) {
    let period = timer::from_us(PERIOD_US);
    let missed = timer::now().saturating_sub(due) / period;
    let due = due + period * (missed + 1);
    DUE.store(due, Relaxed);
    timer::arm(due);
}
