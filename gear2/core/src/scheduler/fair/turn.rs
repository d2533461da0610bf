//! Turns: how one begins, and when it ends.

use gear1_abi::id::VcpuId;
use gear1_abi::regs::NO_DEADLINE;

use super::Fair;

impl Fair {
    /// Begins a turn. What the vCPU is ahead of the least virtual time counts as used.
    pub(super) fn begin(&mut self, vcpu: VcpuId, least: u64) {
        self.used = self.account(vcpu).ticks_since(least).min(self.slice - 1);
        (self.turn, self.woke) = (Some(vcpu), false);
    }

    /// Returns the vCPU whose turn it is. A turn ends when the slice is used up, or when it is
    /// ahead of a vCPU that woke.
    pub(super) fn turn(&mut self) -> Option<VcpuId> {
        if let Some(turn) = self.turn {
            let time = self.account(turn).virtual_time;
            let fresh = self.waiting.least_fresh();
            if self.used < self.slice && fresh.is_none_or(|fresh| time < fresh + self.grain()) {
                return Some(turn);
            }
        }
        let least = self.raise_floor()?;
        let vcpu = match self.turn.take() {
            Some(turn) => self.replace(turn)?,
            None => self.waiting.take_next(self.grain())?,
        };
        self.begin(vcpu, least);
        Some(vcpu)
    }

    /// Lets a vCPU wait whose turn has ended. Returns the next one.
    fn replace(&mut self, turn: VcpuId) -> Option<VcpuId> {
        let account = turn.select(&self.accounts);
        let may_preempt = account.lags() && self.used < self.slice;
        (self.waiting).exchange(turn, account.virtual_time, may_preempt, self.grain())
    }

    /// Returns the ticks after which the turn of a vCPU ends, if nothing happens.
    pub(super) fn rest_of_turn(&self, vcpu: VcpuId) -> u64 {
        if self.waiting.is_empty() {
            return NO_DEADLINE;
        }
        let rest = self.slice - self.used;
        let until = |fresh| self.account(vcpu).ticks_until(fresh + self.grain());
        (self.waiting.least_fresh()).map_or(rest, |fresh| rest.min(until(fresh)))
    }
}
