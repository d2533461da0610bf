//! Fair: shares by weight, caps, and wake-ups that preempt by lag.
//!
//! Each vCPU has a virtual time, which grows with its use divided by its weight. The ready vCPU
//! with the least virtual time has the next turn of one slice. A vCPU that wakes keeps its virtual
//! time, at most `credit` behind the ready ones, and has the CPU at once unless it is ahead of
//! them. A vCPU that uses less than its share hence runs at once, however many others spin.
//!
//! Sources: P. Goyal, X. Guo, H. M. Vin, "A Hierarchical CPU Scheduler for Multimedia Operating
//! Systems", OSDI 1996 (start-time fair queueing); the lag over sleeps of I. Stoica and
//! H. Abdel-Wahab, "Earliest Eligible Virtual Deadline First", 1995.

use gear1_abi::id::{MAX_VCPUS, VcpuId};
use gear1_abi::regs::NO_DEADLINE;

use super::queue::{Queue, Set};
use super::waiting::Waiting;
use super::{Choice, Policy, Refused, Run, Share, Weight};
use account::Account;

mod account;
#[cfg(test)]
mod tests;
mod turn;

/// Virtual time at which all virtual times are set back.
const TOO_FAR: u64 = 1 << 60;

/// The fair policy of one CPU.
#[derive(Debug)]
pub struct Fair {
    /// Ticks of a turn.
    slice: u64,
    /// How far behind the others a vCPU may wake: a slice of the default weight.
    credit: u64,
    known: Set,
    accounts: [Account; MAX_VCPUS],
    waiting: Waiting,
    /// Ready vCPUs whose caps are used up, by the time at which they may run again.
    capped: Queue,
    /// The least virtual time of ready vCPUs so far.
    floor: u64,
    /// Time since which no vCPU may run; `NO_DEADLINE`: one may.
    idle_since: u64,
    /// vCPU whose turn it is, the ticks of the turn that it has used, and whether it has the CPU
    /// because it woke.
    turn: Option<VcpuId>,
    used: u64,
    woke: bool,
}

impl Fair {
    /// Makes the policy with a slice in ticks.
    #[must_use]
    pub fn new(slice: u64) -> Self {
        let slice = slice.max(1);
        Self {
            slice,
            credit: Weight::DEFAULT.virtual_time(slice),
            known: Set::default(),
            accounts: core::array::from_fn(|_| Account::new()),
            waiting: Waiting::new(),
            capped: Queue::new(),
            floor: 0,
            idle_since: NO_DEADLINE,
            turn: None,
            used: 0,
            woke: false,
        }
    }

    /// Returns by how much virtual times have to differ to be worth a switch.
    const fn grain(&self) -> u64 {
        self.credit / 32 + 1
    }

    fn account(&self, vcpu: VcpuId) -> &Account {
        vcpu.select(&self.accounts)
    }

    /// Raises the floor to the least virtual time, and returns that.
    fn raise_floor(&mut self) -> Option<u64> {
        let turn = self.turn.map(|turn| self.account(turn).virtual_time);
        let least = turn.into_iter().chain(self.waiting.least()).min();
        self.floor = self.floor.max(least.unwrap_or(0));
        least
    }

    /// Sets all virtual times back by the same length, once in weeks.
    #[cold]
    #[inline(never)]
    fn set_back(&mut self) {
        let by = self.floor - self.credit;
        self.floor -= by;
        for (index, account) in self.accounts.iter_mut().enumerate() {
            account.set_back(by);
            if let Some(vcpu) = VcpuId::new(index) {
                self.waiting.set_time(vcpu, account.virtual_time);
            }
        }
    }

    /// Takes in a vCPU that is ready. Idle time moves the floor as a vCPU of weight 100 would that
    /// had used it: a vCPU that has used little of that time lags behind all that come after it.
    ///
    /// At most a grain ahead of the others, the vCPU has the CPU at once, unless the one that has
    /// it woke as well and has not used a grain since.
    fn enter(&mut self, vcpu: VcpuId, now: u64) {
        if self.idle_since != NO_DEADLINE {
            let idle = now.saturating_sub(self.idle_since);
            let moved = Weight::DEFAULT.virtual_time(idle);
            (self.idle_since, self.floor) = (NO_DEADLINE, self.floor.saturating_add(moved));
        }
        if self.turn.is_none() && self.waiting.is_empty() {
            return self.enter_alone(vcpu);
        }
        let least = self.raise_floor();
        let lags_until = self.turn.map_or(0, |turn| self.account(turn).ahead());
        let credited = self.floor.saturating_sub(self.credit);
        let account = vcpu.select_mut(&mut self.accounts);
        account.lags_until = lags_until;
        account.virtual_time = account.virtual_time.max(credited);
        let time = account.virtual_time;
        let is_taken = self.turn.is_some() && self.woke && self.used < self.slice / 32;
        if is_taken || time > least.unwrap_or(time).saturating_add(self.grain()) {
            return self.waiting.insert(vcpu, time, true);
        }
        if let Some(turn) = self.turn {
            self.give_up(turn);
        }
        self.begin(vcpu, least.unwrap_or(time));
        self.woke = true;
    }

    /// Takes in a vCPU while no other one is ready: it has the CPU, and is ahead of nobody.
    #[inline]
    fn enter_alone(&mut self, vcpu: VcpuId) {
        let credited = self.floor.saturating_sub(self.credit);
        let account = vcpu.select_mut(&mut self.accounts);
        account.lags_until = 0;
        account.virtual_time = account.virtual_time.max(credited);
        (self.turn, self.used, self.woke) = (Some(vcpu), 0, true);
    }

    /// Lets a vCPU wait that had the CPU. One that still lags behind may preempt again: its job
    /// waits for no slice.
    fn give_up(&mut self, vcpu: VcpuId) {
        let account = vcpu.select(&self.accounts);
        let may_preempt = account.lags() && self.used < self.slice;
        self.waiting.insert(vcpu, account.virtual_time, may_preempt);
    }

    /// Takes out a vCPU.
    fn leave(&mut self, vcpu: VcpuId) {
        if self.turn == Some(vcpu) {
            self.turn = None;
        } else {
            self.waiting.remove(vcpu);
        }
    }

    /// Returns the vCPU whose turn it is, and the ticks that its cap leaves. Those whose caps are
    /// used up leave the queue.
    fn next(&mut self, now: u64) -> Option<(VcpuId, u64)> {
        // Bounded by the vCPUs that are ready.
        loop {
            let vcpu = self.turn()?;
            let Some(cap) = &mut vcpu.select_mut(&mut self.accounts).cap else {
                return Some((vcpu, NO_DEADLINE));
            };
            let left = cap.left(now);
            if left > 0 {
                return Some((vcpu, left));
            }
            let back = cap.back();
            self.leave(vcpu);
            self.capped.insert(vcpu, back);
        }
    }
}

impl Policy for Fair {
    fn add(&mut self, vcpu: VcpuId, share: &Share, now: u64) -> Result<(), Refused> {
        share.cap.map_or(Ok(()), super::Budget::check)?;
        if self.known.insert(vcpu) {
            // Whoever comes begins where those are that are ready now.
            self.raise_floor();
        } else {
            self.block(vcpu, now);
        }
        let floor = self.floor;
        vcpu.select_mut(&mut self.accounts).begin(share, floor);
        Ok(())
    }

    fn remove(&mut self, vcpu: VcpuId, now: u64) {
        self.block(vcpu, now);
        self.known.remove(vcpu);
    }

    fn set(&mut self, vcpu: VcpuId, share: &Share, now: u64) -> Result<(), Refused> {
        share.cap.map_or(Ok(()), super::Budget::check)?;
        vcpu.select_mut(&mut self.accounts).set(share);
        if self.capped.remove(vcpu) {
            self.wake(vcpu, now);
        }
        Ok(())
    }

    fn wake(&mut self, vcpu: VcpuId, now: u64) {
        let is_ready = self.turn == Some(vcpu) || self.waiting.contains(vcpu);
        if self.known.contains(vcpu) && !is_ready && !self.capped.contains(vcpu) {
            self.enter(vcpu, now);
        }
    }

    fn block(&mut self, vcpu: VcpuId, _now: u64) {
        self.raise_floor();
        // A vCPU is in one place at most.
        if self.turn == Some(vcpu) {
            self.turn = None;
        } else {
            self.waiting.remove(vcpu);
            self.capped.remove(vcpu);
        }
    }

    /// Ends the turn. The account does not change: the vCPU is next only when others have caught
    /// up with it, or when nobody else is ready.
    fn give_way(&mut self, vcpu: VcpuId, _now: u64) {
        if self.turn != Some(vcpu) {
            return;
        }
        if let Some(next) = self.waiting.least() {
            let account = vcpu.select_mut(&mut self.accounts);
            account.virtual_time = account.virtual_time.max(next);
            let time = account.virtual_time;
            self.waiting.insert(vcpu, time, false);
            self.turn = None;
        }
    }

    fn ran(&mut self, vcpu: VcpuId, ticks: u64, now: u64) {
        if !self.known.contains(vcpu) {
            return;
        }
        let account = vcpu.select_mut(&mut self.accounts);
        account.charge(ticks, now);
        if self.turn == Some(vcpu) {
            self.used = self.used.saturating_add(ticks);
        } else {
            self.waiting.set_time(vcpu, account.virtual_time);
        }
    }

    fn pick(&mut self, now: u64) -> Choice {
        // Bounded by the vCPUs whose caps are used up.
        while let Some(vcpu) = self.capped.pop_until(now) {
            self.enter(vcpu, now);
        }
        if self.floor > TOO_FAR {
            self.set_back();
        }
        let next = self.next(now);
        let back = self.capped.first().map_or(NO_DEADLINE, |(_, back)| back);
        let Some((vcpu, left)) = next else {
            self.idle_since = self.idle_since.min(now);
            return Choice::Idle { until: back };
        };
        let turn = self.rest_of_turn(vcpu);
        Choice::Run(Run {
            vcpu,
            until: now.saturating_add(turn.min(left)).min(back),
            contended: !self.waiting.is_empty(),
            // Ticks of a cap come back one period after their run: each run counts by itself.
            alone: self.waiting.is_empty() && left == NO_DEADLINE,
        })
    }
}
