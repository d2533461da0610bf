//! Doorbells that several CPUs ring at once: `src/doorbell.rs` as it ships. Each function does what
//! the one of the runtime does that it names.
//!
//! A ring is told to the receiver by an interrupt that comes behind it, and two interrupts are an
//! interval apart.
//!
//! Requirements: G1-CHN-005, G1-CHN-006.

use std::sync::Arc;

use shuttle::scheduler::{DfsScheduler, PctScheduler, Scheduler};
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::{Runner, thread};

use crate::config;

#[expect(unreachable_pub, reason = "in its crate it is public")]
#[path = "../../src/doorbell.rs"]
mod shipped;

use shipped::{Doorbell, Ring};

/// Orders that are drawn where there are too many.
const DRAWN: usize = 500;
const SEED: u64 = 0x646f_6f72;

struct Machine {
    bell: Doorbell,
    interval: u64,
    clock: AtomicU64,
    /// Number of rings that have begun.
    rung: AtomicU64,
    /// Each interrupt: its time, and the rings that its receiver knows of.
    interrupts: Mutex<Vec<(u64, u64)>>,
}

impl Machine {
    /// The time passes with each look at it.
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// `vgic::doorbell::ring`, and the timer of the CPU if the ring has to wait.
    fn ring(&self) {
        self.rung.fetch_add(1, Ordering::SeqCst);
        let mut now = self.now();
        let mut ring = self.bell.ring(now, self.interval);
        while let Ring::Wait(due) = ring {
            now = self.clock.fetch_max(due, Ordering::SeqCst).max(due);
            ring = self.bell.expire(now, self.interval);
        }
        if ring == Ring::Deliver {
            let rung = self.rung.load(Ordering::SeqCst);
            self.interrupts.lock().unwrap().push((now, rung));
        }
    }

    /// No ring is without an interrupt behind it, and no two come too soon.
    fn check(&self) {
        let interrupts = self.interrupts.lock().unwrap();
        let told = interrupts.iter().map(|(_, rung)| *rung).max();
        assert_eq!(told, Some(self.rung.load(Ordering::SeqCst)), "a lost ring");
        let mut times: Vec<u64> = interrupts.iter().map(|(time, _)| *time).collect();
        times.sort_unstable();
        for pair in times.windows(2) {
            assert!(pair[1] - pair[0] >= self.interval, "too soon: {times:?}");
        }
    }
}

/// Lets CPUs ring, and returns the number of orders.
fn run(scheduler: impl Scheduler + 'static, cpus: usize, rings: usize, interval: u64) -> usize {
    let runner = Runner::new(scheduler, config());
    runner.run(move || {
        let machine = Arc::new(Machine {
            bell: Doorbell::new(),
            interval,
            clock: AtomicU64::new(1),
            rung: AtomicU64::new(0),
            interrupts: Mutex::new(Vec::new()),
        });
        let cpus: Vec<_> = (0..cpus)
            .map(|_| {
                let machine = Arc::clone(&machine);
                thread::spawn(move || (0..rings).for_each(|_| machine.ring()))
            })
            .collect();
        cpus.into_iter().for_each(|cpu| cpu.join().unwrap());
        machine.check();
    })
}

#[test]
fn no_ring_is_lost_and_none_comes_too_soon() {
    for interval in [0, 10] {
        let orders = run(DfsScheduler::new(None, false), 2, 1, interval);
        assert!(orders > 50, "{orders} orders only");
        for (cpus, rings) in [(2, 3), (3, 2)] {
            let drawn = PctScheduler::new_from_seed(SEED, 3, DRAWN);
            run(drawn, cpus, rings, interval);
        }
        println!("figure: all {orders} orders of two rings, interval {interval}");
    }
}
