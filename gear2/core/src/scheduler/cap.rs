//! Caps: the most that a vCPU gets in any window of a length.
//!
//! The ticks of each run come back one period after the run began. No window as long as the period
//! then holds more than the budget, wherever it begins: what is used again in the window began to
//! be used before it.
//!
//! Source: sporadic servers, B. Sprunt, L. Sha, J. Lehoczky, "Aperiodic Task Scheduling for
//! Hard-Real-Time Systems", 1989.

use super::Budget;

/// Runs that are remembered. More of them in a period are merged, and come back late.
const RUNS: usize = 16;

/// A run whose ticks come back.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    ticks: u64,
    /// Time of the end of the run.
    end: u64,
    /// Time at which the ticks come back.
    back: u64,
}

/// The account of a vCPU with a cap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cap {
    budget: Budget,
    /// Runs in the order of time, from `first` on.
    runs: [Used; RUNS],
    first: usize,
    count: usize,
    /// Ticks of all these runs.
    used: u64,
}

impl Cap {
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            budget,
            runs: [Used::default(); RUNS],
            first: 0,
            count: 0,
            used: 0,
        }
    }

    /// Changes the budget. Ticks used before come back as they would have.
    pub(super) const fn set(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// Charges the ticks up to `now`.
    pub(super) fn charge(&mut self, ticks: u64, now: u64) {
        let start = now.saturating_sub(ticks);
        let back = start.saturating_add(self.budget.period);
        self.used = self.used.saturating_add(ticks);
        if self.count > 0 {
            let full = self.count == RUNS;
            let last = &mut self.runs[(self.first + self.count - 1) % RUNS];
            let goes_on = last.end == start;
            if goes_on || full {
                last.ticks = last.ticks.saturating_add(ticks);
                last.end = now;
                last.back = if goes_on { last.back } else { back };
                return;
            }
        }
        self.runs[(self.first + self.count) % RUNS] = Used {
            ticks,
            end: now,
            back,
        };
        self.count += 1;
    }

    /// Returns the ticks that are left at `now`.
    pub(super) fn left(&mut self, now: u64) -> u64 {
        // Bounded by RUNS.
        while self.count > 0 && self.runs[self.first].back <= now {
            self.used = self.used.saturating_sub(self.runs[self.first].ticks);
            self.first = (self.first + 1) % RUNS;
            self.count -= 1;
        }
        self.budget.ticks.saturating_sub(self.used)
    }

    /// Returns when an eighth of the budget is left again. Less is not worth a switch.
    pub(super) fn back(&self) -> u64 {
        let mut used = self.used;
        let worthwhile = self.budget.ticks - self.budget.ticks / 8;
        // Bounded by RUNS.
        for place in 0..self.count {
            let run = &self.runs[(self.first + place) % RUNS];
            used = used.saturating_sub(run.ticks);
            if used <= worthwhile && used < self.budget.ticks {
                return run.back;
            }
        }
        0
    }
}
