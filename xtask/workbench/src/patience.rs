//! How long a program is waited for on a machine that has other work.
//!
//! A limit counts the time in which the program could run: a busy machine lengthens a wait by as
//! much as the program's threads queue for a CPU. A program that sleeps for ever, and one that
//! computes for ever, both reach the limit.

use std::fs;
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// A wait never takes longer by the clock than this many times its limit.
const LONGEST: u32 = 10;

/// CPU time, and time spent in a run queue, of a process and all processes that it started.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Use {
    /// Time on a CPU.
    ran: Duration,
    /// Time in which threads could run and had no CPU.
    queued: Duration,
}

impl Use {
    /// Reads what the kernel accounts to the threads of a process, which may have ended. A kernel
    /// without `CONFIG_SCHED_INFO` accounts nothing.
    fn of(process: u32) -> Use {
        let mut total = Use::default();
        let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
            return total;
        };
        for thread in threads.flatten().map(|entry| entry.path()) {
            let text = |file| fs::read_to_string(thread.join(file)).unwrap_or_default();
            total.add(parse(&text("schedstat")).unwrap_or_default());
            for child in text("children").split_whitespace() {
                total.add(child.parse().map(Use::of).unwrap_or_default());
            }
        }
        total
    }

    /// Adds the times of another thread or process.
    fn add(&mut self, other: Use) {
        self.ran += other.ran;
        self.queued += other.queued;
    }

    /// Returns what came after `earlier`. Threads that ended since take their share with them.
    fn since(self, earlier: Use) -> Use {
        Use {
            ran: self.ran.saturating_sub(earlier.ran),
            queued: self.queued.saturating_sub(earlier.queued),
        }
    }

    /// Returns how much of `time` passed as it would on a machine of the program's own.
    fn undisturbed(self, time: Duration) -> Duration {
        let wanted = (self.ran + self.queued).as_secs_f64();
        if wanted == 0.0 {
            return time;
        }
        time.mul_f64(self.ran.as_secs_f64() / wanted)
    }
}

/// Reads a thread's `schedstat` (Linux, Documentation/scheduler/sched-stats.rst): nanoseconds on a
/// CPU and in a run queue.
fn parse(schedstat: &str) -> Option<Use> {
    let mut fields = schedstat.split_whitespace();
    let mut next = || fields.next()?.parse().ok().map(Duration::from_nanos);
    Some(Use {
        ran: next()?,
        queued: next()?,
    })
}

/// One wait for a program.
#[derive(Debug)]
pub(crate) struct Patience {
    /// The program that is waited for; without one, the clock alone counts.
    process: Option<u32>,
    begin: Instant,
    /// Times of the process when the wait began.
    at_begin: Use,
    /// Longest wait, in time in which the program could run.
    limit: Duration,
}

impl Patience {
    /// Begins a wait for a process; without one, the clock alone counts.
    pub(crate) fn new(process: Option<u32>, limit: Duration) -> Patience {
        Patience {
            process,
            begin: Instant::now(),
            at_begin: process.map(Use::of).unwrap_or_default(),
            limit,
        }
    }

    /// Returns the next time to look again, or nothing once the limit is reached.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        let now = Instant::now();
        let passed = now - self.begin;
        let used = self.process.map(Use::of).unwrap_or_default();
        let counted = used.since(self.at_begin).undisturbed(passed);
        let by_program = self.limit.checked_sub(counted)?;
        let by_clock = (self.limit * LONGEST).checked_sub(passed)?;
        let left = by_program.min(by_clock);
        (!left.is_zero()).then(|| now + left)
    }
}
