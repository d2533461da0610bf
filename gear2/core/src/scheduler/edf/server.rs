//! The account of a server: its budget, its deadline, and what it used too much.

use crate::scheduler::Budget;

/// Account of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    pub(super) budget: Budget,
    /// Ticks left until the deadline.
    pub(super) left: u64,
    /// Ticks used beyond the budget.
    /// The next periods pay them, so that a turn that ends late costs no other server.
    pub(super) debt: u64,
    pub(super) deadline: u64,
    /// Whether the vCPU wants the CPU. A spent server that is ready waits for its deadline.
    pub(super) ready: bool,
}

impl Server {
    /// Makes a server without budget: its first wake-up begins its first period.
    pub(super) const fn new(budget: Budget) -> Self {
        Self {
            budget,
            left: 0,
            debt: 0,
            deadline: 0,
            ready: false,
        }
    }

    /// Begins a period that ends at `deadline`. Debts are paid first.
    pub(super) fn begin(&mut self, deadline: u64) {
        let paid = self.debt.min(self.budget.ticks);
        self.debt -= paid;
        self.left = self.budget.ticks - paid;
        self.deadline = deadline;
    }

    /// Tells whether the rest of the budget would exceed the server's share until the deadline.
    pub(super) fn is_stale(&self, now: u64) -> bool {
        let Some(rest) = self.deadline.checked_sub(now).filter(|rest| *rest > 0) else {
            return true;
        };
        // `left / rest > budget / period`, multiplied out: a division would round, and 64 bits
        // overflow with periods of minutes.
        let needed = u128::from(self.left) * u128::from(self.budget.period);
        needed > u128::from(rest) * u128::from(self.budget.ticks)
    }
}
