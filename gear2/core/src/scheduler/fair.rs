//! Fair: shares by weight, caps, and wake-ups that preempt by lag.
//!
//! Each vCPU has a virtual time, which grows with its use divided by its weight. The ready vCPU
//! with the least virtual time has the next turn of one slice. A vCPU that wakes keeps its virtual
//! time, at most [`Fair::credit`] behind the ready ones, and preempts the one that runs if that one
//! is ahead. A vCPU that uses less than its share hence runs at once, however many others spin.
//!
//! Sources: P. Goyal, X. Guo, H. M. Vin, "A Hierarchical CPU Scheduler for Multimedia Operating
//! Systems", OSDI 1996 (start-time fair queueing); the lag over sleeps of I. Stoica and
//! H. Abdel-Wahab, "Earliest Eligible Virtual Deadline First", 1995.

use alloc::boxed::Box;

use gear1_abi::id::{MAX_VCPUS, VcpuId, VmId};
use gear1_abi::regs::NO_DEADLINE;

use super::cap::Cap;
use super::queue::{Queue, Set};
use super::{Choice, Policy, Refused, Run, Share};

#[cfg(test)]
mod tests;

/// Virtual time at which all virtual times are set back.
const TOO_FAR: u64 = 1 << 60;

/// Account of a vCPU.
#[derive(Debug)]
struct Account {
    share: Share,
    virtual_time: u64,
    /// What charges left below a unit of virtual time.
    rest: u64,
    cap: Option<Box<Cap>>,
}

/// The fair policy of one CPU.
#[derive(Debug)]
pub struct Fair {
    /// Ticks of a turn.
    slice: u64,
    known: Set,
    accounts: [Account; MAX_VCPUS],
    /// Ready vCPUs by virtual time, the one that runs among them.
    ready: Queue,
    /// Those of them that woke and have not run since, or that may preempt again, by virtual time.
    fresh: Queue,
    /// Ready vCPUs whose caps are used up, by the time at which they may run again.
    capped: Queue,
    /// The least virtual time of ready vCPUs so far.
    floor: u64,
    /// Time since which no vCPU may run; `NO_DEADLINE`: one may.
    idle_since: u64,
    /// vCPU whose turn it is, and the ticks of the turn that it has used.
    turn: Option<VcpuId>,
    used: u64,
    /// The vCPU had woken and came before others that were ready.
    preempted: bool,
}

impl Fair {
    /// Makes the policy with a slice in ticks.
    #[must_use]
    pub fn new(slice: u64) -> Self {
        Self {
            slice: slice.max(1),
            known: Set::default(),
            accounts: core::array::from_fn(|_| Account {
                share: Share::of(VmId::FIRST),
                virtual_time: 0,
                rest: 0,
                cap: None,
            }),
            ready: Queue::new(),
            fresh: Queue::new(),
            capped: Queue::new(),
            floor: 0,
            idle_since: NO_DEADLINE,
            turn: None,
            used: 0,
            preempted: false,
        }
    }

    /// Returns how far behind the others a vCPU may wake: a slice of the default weight.
    const fn credit(&self) -> u64 {
        Share::of(VmId::FIRST).virtual_time(self.slice)
    }

    /// Returns how far ahead of one that woke a vCPU may get: less is not worth a switch.
    const fn grain(&self) -> u64 {
        self.credit() / 32 + 1
    }

    /// Raises the floor to the least virtual time.
    fn raise_floor(&mut self) {
        if let Some((_, least)) = self.ready.first() {
            self.floor = self.floor.max(least);
        }
        if self.floor > TOO_FAR {
            self.set_back();
        }
    }

    /// Sets all virtual times back by the same length, once in weeks.
    fn set_back(&mut self) {
        let by = self.floor - self.credit();
        self.floor -= by;
        for (index, account) in self.accounts.iter_mut().enumerate() {
            account.virtual_time = account.virtual_time.saturating_sub(by);
            if let Some(vcpu) = VcpuId::new(index) {
                self.ready.set_key(vcpu, account.virtual_time);
                self.fresh.set_key(vcpu, account.virtual_time);
            }
        }
    }

    /// Takes a vCPU into the queue. Idle time moves the floor as a vCPU of weight 100 would that had
    /// used it: a vCPU that has used little of that time lags behind all that come after it.
    fn enter(&mut self, vcpu: VcpuId, now: u64) {
        let idle = now.saturating_sub(self.idle_since);
        let moved = Share::of(VmId::FIRST).virtual_time(idle);
        (self.idle_since, self.floor) = (NO_DEADLINE, self.floor.saturating_add(moved));
        self.raise_floor();
        let least = self.floor.saturating_sub(self.credit());
        let account = &mut self.accounts[vcpu.index()];
        account.virtual_time = account.virtual_time.max(least);
        self.ready.insert(vcpu, account.virtual_time);
        self.fresh.insert(vcpu, account.virtual_time);
    }

    /// Takes a vCPU out of the queue.
    fn leave(&mut self, vcpu: VcpuId) {
        self.ready.remove(vcpu);
        self.fresh.remove(vcpu);
        if self.turn == Some(vcpu) {
            self.turn = None;
        }
    }

    fn virtual_time(&self, vcpu: VcpuId) -> u64 {
        self.accounts[vcpu.index()].virtual_time
    }

    /// Returns the vCPU whose turn it is. A turn ends when the slice is used up, or when it is ahead
    /// of a vCPU that woke.
    fn turn(&mut self) -> Option<VcpuId> {
        if let Some(turn) = self.turn.filter(|_| self.used < self.slice) {
            let time = self.virtual_time(turn);
            let fresh = self.fresh.first();
            if fresh.is_none_or(|(_, least)| time < least + self.grain()) {
                return Some(turn);
            }
            // A vCPU that preempted and still lags behind may preempt again: its job waits for no
            // slice. On a CPU that was idle all lag, and share it by slices.
            if self.preempted && time < self.floor {
                self.fresh.insert(turn, time);
            }
        }
        let fresh = self.fresh.first();
        let first = self.ready.first()?;
        // Among equals, one that woke is before those that wait for their next turn.
        let (vcpu, _) = fresh.filter(|(_, time)| *time <= first.1).unwrap_or(first);
        self.preempted = self.fresh.remove(vcpu) && self.ready.len() > 1;
        (self.turn, self.used) = (Some(vcpu), 0);
        Some(vcpu)
    }

    /// Returns the vCPU whose turn it is, and the ticks that its cap leaves. Those whose caps are
    /// used up leave the queue.
    fn next(&mut self, now: u64) -> Option<(VcpuId, u64)> {
        // Bounded by the vCPUs that are ready.
        loop {
            let vcpu = self.turn()?;
            let Some(cap) = &mut self.accounts[vcpu.index()].cap else {
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

    /// Returns the ticks after which the turn of a vCPU ends, if nothing happens.
    fn rest_of_turn(&self, vcpu: VcpuId) -> u64 {
        if self.ready.len() < 2 {
            return NO_DEADLINE;
        }
        let account = &self.accounts[vcpu.index()];
        let ahead = |(_, time): (VcpuId, u64)| {
            let ahead = (time + self.grain()).saturating_sub(account.virtual_time);
            account.share.ticks(ahead)
        };
        let fresh = self.fresh.first().map_or(NO_DEADLINE, ahead);
        (self.slice - self.used).min(fresh)
    }
}

impl Policy for Fair {
    fn add(&mut self, vcpu: VcpuId, share: &Share, now: u64) -> Result<(), Refused> {
        share.cap.map_or(Ok(()), super::Budget::check)?;
        self.remove(vcpu, now);
        self.known.insert(vcpu);
        self.accounts[vcpu.index()] = Account {
            share: *share,
            virtual_time: self.floor,
            rest: 0,
            cap: share.cap.map(|budget| Box::new(Cap::new(budget))),
        };
        Ok(())
    }

    fn remove(&mut self, vcpu: VcpuId, now: u64) {
        self.block(vcpu, now);
        self.known.remove(vcpu);
    }

    fn set(&mut self, vcpu: VcpuId, share: &Share, now: u64) -> Result<(), Refused> {
        share.cap.map_or(Ok(()), super::Budget::check)?;
        let account = &mut self.accounts[vcpu.index()];
        account.share = *share;
        match (share.cap, &mut account.cap) {
            (Some(budget), Some(cap)) => cap.set(budget),
            (budget, cap) => *cap = budget.map(|budget| Box::new(Cap::new(budget))),
        }
        if self.capped.remove(vcpu) {
            self.wake(vcpu, now);
        }
        Ok(())
    }

    fn wake(&mut self, vcpu: VcpuId, now: u64) {
        let queued = self.ready.contains(vcpu) || self.capped.contains(vcpu);
        if self.known.contains(vcpu) && !queued {
            self.enter(vcpu, now);
        }
    }

    fn block(&mut self, vcpu: VcpuId, _now: u64) {
        self.raise_floor();
        self.leave(vcpu);
        self.capped.remove(vcpu);
    }

    /// Ends the turn. The account does not change: the vCPU is next only when others have caught
    /// up with it, or when nobody else is ready.
    fn give_way(&mut self, vcpu: VcpuId, _now: u64) {
        if self.turn != Some(vcpu) {
            return;
        }
        if let Some((_, next)) = self.ready.second() {
            let account = &mut self.accounts[vcpu.index()];
            account.virtual_time = account.virtual_time.max(next);
            self.ready.insert(vcpu, account.virtual_time);
        }
        self.turn = None;
    }

    fn ran(&mut self, vcpu: VcpuId, ticks: u64, now: u64) {
        if !self.known.contains(vcpu) {
            return;
        }
        let account = &mut self.accounts[vcpu.index()];
        let virtual_ticks = account.share.virtual_charge(ticks, &mut account.rest);
        account.virtual_time = account.virtual_time.saturating_add(virtual_ticks);
        if let Some(cap) = &mut account.cap {
            cap.charge(ticks, now);
        }
        self.ready.set_key(vcpu, account.virtual_time);
        self.fresh.set_key(vcpu, account.virtual_time);
        if self.turn == Some(vcpu) {
            self.used = self.used.saturating_add(ticks);
        }
    }

    fn pick(&mut self, now: u64) -> Choice {
        // Bounded by the vCPUs whose caps are used up.
        while let Some(vcpu) = self.capped.pop_until(now) {
            self.enter(vcpu, now);
        }
        let next = self.next(now);
        self.raise_floor();
        let back = self.capped.first().map_or(NO_DEADLINE, |(_, back)| back);
        let Some((vcpu, left)) = next else {
            self.idle_since = self.idle_since.min(now);
            return Choice::Idle { until: back };
        };
        let turn = self.rest_of_turn(vcpu);
        Choice::Run(Run {
            vcpu,
            until: now.saturating_add(turn.min(left)).min(back),
            contended: self.ready.len() > 1,
        })
    }
}
