//! Admission of budgets on a CPU, by the arithmetic of `cargo xtask check`.
//!
//! A manifest has times in microseconds, and a policy has ticks of the counter. A budget becomes
//! microseconds again here, exactly as they were, so that a policy takes what `check` takes, and
//! refuses what it refuses.

use gearv_manifest::Supply;

use super::{Budget, Refused};

/// Admission of one CPU.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// Ticks of a second.
    pub counter_hz: u64,
    /// Time of a switch, of which each period has two, in nanoseconds.
    pub switch_ns: u32,
    /// Time that there is for budgets.
    pub supply: Supply,
}

impl Default for Admission {
    /// A whole CPU whose switches take no time, with a tick of a microsecond.
    fn default() -> Self {
        Self {
            counter_hz: 1_000_000,
            switch_ns: 0,
            supply: Supply::WHOLE,
        }
    }
}

impl Admission {
    /// Returns the ticks of a switch, rounded up.
    pub(super) fn switch_ticks(&self) -> u64 {
        let ns = u64::from(self.switch_ns);
        self.counter_hz.saturating_mul(ns).div_ceil(1_000_000_000)
    }

    /// Returns the part of the CPU that a budget asks for, in millionths.
    pub(super) fn demand(&self, budget: Budget) -> Result<u64, Refused> {
        budget.check()?;
        let server = gearv_manifest::Budget {
            budget_us: self.us(budget.ticks),
            period_us: self.us(budget.period),
        };
        let demand = self.supply.demand(server, self.switch_ns);
        let demand = demand.ok_or(Refused::Overload)?;
        Ok(demand.budget_ppm + demand.switches_ppm)
    }

    /// Tells whether budgets that ask for so much together have room.
    pub(super) const fn has_room(&self, demand_ppm: u64) -> bool {
        demand_ppm <= self.supply.there_ppm
    }

    /// Returns the microseconds that became a number of ticks, which are rounded down: of two
    /// microseconds that give the same ticks, there is none with a counter of 1 MHz or more.
    fn us(&self, ticks: u64) -> u32 {
        let us = (u128::from(ticks) * 1_000_000).div_ceil(u128::from(self.counter_hz.max(1)));
        u32::try_from(us).unwrap_or(u32::MAX)
    }
}
