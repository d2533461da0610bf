//! Caps: the most that a vCPU gets in any window of a length.
//!
//! The ticks of each run come back one period after the run began. No window as long as the period
//! then holds more than the budget, wherever it begins: what is used again in the window began to
//! be used before it. Ticks beyond the budget are a debt. The ticks that come back pay the debt
//! first, which uses them at that time, so a run that was too long makes the next one shorter.
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
    /// Ticks of all these runs, at most the budget when they were used.
    used: u64,
    /// Ticks used beyond the budget.
    debt: u64,
}

impl Cap {
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            budget,
            runs: [Used::default(); RUNS],
            first: 0,
            count: 0,
            used: 0,
            debt: 0,
        }
    }

    /// Changes the budget. Ticks used before come back as if the period had been the new one.
    pub(super) fn set(&mut self, budget: Budget) {
        let old = self.budget.period;
        self.budget = budget;
        for run in &mut self.runs {
            run.back = run.back.saturating_sub(old).saturating_add(budget.period);
        }
    }

    /// Charges the ticks up to `now`.
    pub(super) fn charge(&mut self, ticks: u64, now: u64) {
        let paid = ticks.min(self.budget.ticks.saturating_sub(self.used));
        // planted: what runs beyond a cap is forgiven
        self.debt = self.debt.saturating_add(ticks - paid);
        if paid > 0 {
            self.note(paid, now.saturating_sub(ticks), now);
        }
    }

    /// Notes a run within the budget.
    fn note(&mut self, ticks: u64, start: u64, end: u64) {
        let back = start.saturating_add(self.budget.period);
        self.used += ticks;
        if self.count > 0 {
            let full = self.count == RUNS;
            let last = &mut self.runs[(self.first + self.count - 1) % RUNS];
            let goes_on = last.end == start;
            if goes_on || full {
                last.ticks += ticks;
                last.end = end;
                last.back = if goes_on {
                    last.back
                } else {
                    last.back.max(back)
                };
                return;
            }
        }
        self.runs[(self.first + self.count) % RUNS] = Used { ticks, end, back };
        self.count += 1;
    }

    /// Pays the debt from what is left of the budget at a time.
    fn pay(&mut self, at: u64) {
        let paid = (self.debt).min(self.budget.ticks.saturating_sub(self.used));
        if paid > 0 {
            self.debt -= paid;
            self.note(paid, at, at);
        }
    }

    /// Lets the periods pass in which all that came back paid the debt.
    fn skip(&mut self, now: u64) {
        if self.count == 0 || self.debt < self.used {
            return;
        }
        let last = &self.runs[(self.first + self.count - 1) % RUNS];
        let over = now.saturating_sub(last.back) / self.budget.period;
        let periods = over.min(self.debt / self.used);
        self.debt -= periods * self.used;
        for run in &mut self.runs {
            run.back = run.back.saturating_add(periods * self.budget.period);
        }
    }

    /// Returns the ticks that are left at `now`.
    pub(super) fn left(&mut self, now: u64) -> u64 {
        self.skip(now);
        // Bounded by three times RUNS: `skip` leaves at most two periods.
        while self.count > 0 && self.runs[self.first].back <= now {
            let run = self.runs[self.first];
            self.first = (self.first + 1) % RUNS;
            self.count -= 1;
            self.used -= run.ticks;
            self.pay(run.back);
        }
        if self.debt > 0 {
            self.pay(now);
        }
        self.budget.ticks.saturating_sub(self.used)
    }

    /// Returns when an eighth of the budget is left again, or when to ask again. Less is not worth
    /// a switch. The time is later than that of the last question.
    pub(super) fn back(&self) -> u64 {
        let (mut used, mut back) = (self.used, 0);
        let worthwhile = self.budget.ticks - self.budget.ticks / 8;
        // Bounded by RUNS.
        for place in 0..self.count {
            let run = &self.runs[(self.first + place) % RUNS];
            // A run comes back after those before it.
            back = run.back.max(back);
            used = used.saturating_sub(run.ticks);
            if used <= worthwhile && used < self.budget.ticks {
                break;
            }
        }
        back
    }
}
