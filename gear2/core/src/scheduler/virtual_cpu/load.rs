//! Loads: when a vCPU wakes, and how long it works then.

use alloc::vec::Vec;

use gear1_abi::regs::NO_DEADLINE;

/// Work between a wake-up and the wait for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Time of the wake-up.
    pub release: u64,
    /// Ticks of work, at least one.
    pub work: u64,
    /// Time by which the work must have ended; [`NO_DEADLINE`]: none.
    pub due: u64,
}

/// Behaviour of a vCPU.
pub trait Load {
    /// Returns the job after those that have ended up to `now`, or nothing if the vCPU sleeps for
    /// good. A job that was released before `now` begins at once.
    fn next(&mut self, now: u64) -> Option<Job>;
}

/// Numbers that look random and follow from a seed.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// Makes the sequence of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Returns the next number, below `limit` or zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % limit.max(1)
    }
}

/// Never blocks.
#[derive(Clone, Copy, Debug)]
pub struct Spin;

impl Load for Spin {
    fn next(&mut self, now: u64) -> Option<Job> {
        Some(Job {
            release: now,
            work: NO_DEADLINE,
            due: NO_DEADLINE,
        })
    }
}

/// Never wakes.
#[derive(Clone, Copy, Debug)]
pub struct Idle;

impl Load for Idle {
    fn next(&mut self, _now: u64) -> Option<Job> {
        None
    }
}

/// A job in each period, due at its end.
#[derive(Clone, Copy, Debug)]
pub struct Periodic {
    /// Ticks of a period.
    pub period: u64,
    /// Ticks of work in a period.
    pub work: u64,
    /// Beginning of the next period.
    pub start: u64,
    /// Most by which a wake-up is later than the beginning of its period, in ticks.
    pub jitter: u64,
    /// Source of the jitter.
    pub random: Random,
}

impl Load for Periodic {
    fn next(&mut self, _now: u64) -> Option<Job> {
        let start = self.start;
        self.start = start.saturating_add(self.period.max(1));
        Some(Job {
            release: start.saturating_add(self.random.below(self.jitter.saturating_add(1))),
            work: self.work.max(1),
            due: self.start,
        })
    }
}

/// Works, then sleeps, for lengths or for random ones up to them.
#[derive(Clone, Copy, Debug)]
pub struct Bursts {
    /// Ticks of work.
    pub work: u64,
    /// Ticks of sleep.
    pub sleep: u64,
    /// Beginning of the first burst.
    pub start: u64,
    /// Source of random lengths; `None`: the lengths are fixed.
    pub random: Option<Random>,
}

impl Load for Bursts {
    fn next(&mut self, now: u64) -> Option<Job> {
        let begun = self.start == NO_DEADLINE;
        let random = &mut self.random;
        let mut length = |most: u64| match random {
            Some(random) => 1 + random.below(most),
            None => most.max(1),
        };
        let work = length(self.work);
        let release = if begun {
            now.saturating_add(length(self.sleep))
        } else {
            core::mem::replace(&mut self.start, NO_DEADLINE)
        };
        Some(Job {
            release,
            work,
            due: NO_DEADLINE,
        })
    }
}

/// Jobs that were recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The jobs that are left, the last one first.
    jobs: Vec<Job>,
}

impl Recorded {
    /// Makes the load of these jobs, in the order of time.
    #[must_use]
    pub fn new(mut jobs: Vec<Job>) -> Self {
        jobs.reverse();
        Self { jobs }
    }
}

impl Load for Recorded {
    fn next(&mut self, _now: u64) -> Option<Job> {
        self.jobs.pop()
    }
}
