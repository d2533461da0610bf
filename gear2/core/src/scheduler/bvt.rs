//! Borrowed virtual time: shares by weight, and a warp for vCPUs that must run at once.
//!
//! Each vCPU has an actual virtual time, which grows with its use divided by its weight, and an
//! effective one, less by its warp. The ready vCPU with the least effective virtual time runs until
//! it is a slice (the paper's context switch allowance) ahead of the next one. A vCPU that wakes
//! starts at the scheduler's virtual time, the least of the ready ones, and preempts unless it is
//! ahead. A warp ends when the vCPU has used a slice since it woke: what it borrows is bounded.
//!
//! Source: K. J. Duda, D. R. Cheriton, "Borrowed-Virtual-Time (BVT) scheduling: supporting
//! latency-sensitive threads in a general-purpose scheduler", SOSP 1999.

use gear1_abi::id::{MAX_VCPUS, VcpuId, VmId};
use gear1_abi::regs::NO_DEADLINE;

use super::queue::{Queue, Set};
use super::{Choice, Policy, Refused, Run, Share};

#[cfg(test)]
mod tests;

/// Virtual time of the first vCPU, so that no warp leads below zero.
const ORIGIN: u64 = 1 << 56;

/// Virtual time at which all virtual times are set back.
const TOO_FAR: u64 = 1 << 60;

/// Account of a vCPU.
#[derive(Clone, Copy, Debug)]
struct Account {
    share: Share,
    /// The actual virtual time.
    actual: u64,
    /// What charges left below a unit of virtual time.
    rest: u64,
    /// Ticks for which the warp lasts.
    warped: u64,
}

impl Account {
    /// Returns the effective virtual time.
    const fn effective(&self) -> u64 {
        let warp = if self.warped > 0 {
            Share::of(VmId::FIRST).virtual_time(self.share.latency)
        } else {
            0
        };
        self.actual.saturating_sub(warp)
    }
}

/// The borrowed-virtual-time policy of one CPU.
#[derive(Debug)]
pub struct Bvt {
    /// Ticks by which the vCPU that runs may get ahead of the next one.
    slice: u64,
    known: Set,
    accounts: [Account; MAX_VCPUS],
    /// Ready vCPUs by actual virtual time: the scheduler's is that of the first.
    actual: Queue,
    /// Ready vCPUs by effective virtual time.
    effective: Queue,
    /// The scheduler's virtual time.
    floor: u64,
    /// vCPU that has the CPU.
    turn: Option<VcpuId>,
}

impl Bvt {
    /// Makes the policy with a context switch allowance in ticks.
    #[must_use]
    pub fn new(slice: u64) -> Self {
        Self {
            slice: slice.max(1),
            known: Set::default(),
            accounts: [Account {
                share: Share::of(VmId::FIRST),
                actual: ORIGIN,
                rest: 0,
                warped: 0,
            }; MAX_VCPUS],
            actual: Queue::new(),
            effective: Queue::new(),
            floor: ORIGIN,
            turn: None,
        }
    }

    fn account(&mut self, vcpu: VcpuId) -> &mut Account {
        vcpu.select_mut(&mut self.accounts)
    }

    /// Raises the scheduler's virtual time to that of the first ready vCPU.
    fn raise_floor(&mut self) {
        if let Some((_, least)) = self.actual.first() {
            self.floor = self.floor.max(least);
        }
        if self.floor > TOO_FAR {
            self.set_back();
        }
    }

    /// Sets all virtual times back by the same length, once in weeks.
    fn set_back(&mut self) {
        let by = self.floor - ORIGIN;
        self.floor = ORIGIN;
        for index in 0..MAX_VCPUS {
            self.accounts[index].actual = self.accounts[index].actual.saturating_sub(by);
            if let Some(vcpu) = VcpuId::new(index) {
                self.order(vcpu);
            }
        }
    }

    /// Moves a ready vCPU to where its virtual times belong.
    fn order(&mut self, vcpu: VcpuId) {
        let account = self.accounts[vcpu.index()];
        self.actual.set_key(vcpu, account.actual);
        self.effective.set_key(vcpu, account.effective());
    }

    /// Returns the ticks until the vCPU that runs is a slice ahead of the next one.
    fn allowance(&self, vcpu: VcpuId, next: u64) -> u64 {
        let account = &self.accounts[vcpu.index()];
        let limit = next.saturating_add(account.share.virtual_time(self.slice));
        let ticks = limit.saturating_sub(account.effective());
        let ticks = account.share.ticks(ticks);
        // A warp that ends changes the order.
        if account.warped > 0 {
            ticks.min(account.warped)
        } else {
            ticks
        }
    }

    /// Returns the least effective virtual time of the ready vCPUs but `vcpu`.
    fn least_but(&self, vcpu: VcpuId) -> Option<u64> {
        let first = self.effective.first().filter(|(first, _)| *first != vcpu);
        first
            .or_else(|| self.effective.second())
            .map(|(_, key)| key)
    }
}

impl Policy for Bvt {
    fn add(&mut self, vcpu: VcpuId, share: &Share, now: u64) -> Result<(), Refused> {
        self.remove(vcpu, now);
        self.known.insert(vcpu);
        let actual = self.floor;
        *self.account(vcpu) = Account {
            share: *share,
            actual,
            rest: 0,
            warped: 0,
        };
        Ok(())
    }

    fn remove(&mut self, vcpu: VcpuId, now: u64) {
        self.block(vcpu, now);
        self.known.remove(vcpu);
    }

    fn set(&mut self, vcpu: VcpuId, share: &Share, _now: u64) -> Result<(), Refused> {
        self.account(vcpu).share = *share;
        self.order(vcpu);
        Ok(())
    }

    fn wake(&mut self, vcpu: VcpuId, _now: u64) {
        if !self.known.contains(vcpu) || self.actual.contains(vcpu) {
            return;
        }
        self.raise_floor();
        let (floor, slice) = (self.floor, self.slice);
        let account = self.account(vcpu);
        account.actual = account.actual.max(floor);
        account.warped = if account.share.latency > 0 { slice } else { 0 };
        let (actual, effective) = (account.actual, account.effective());
        self.actual.insert(vcpu, actual);
        self.effective.insert(vcpu, effective);
        if let Some(turn) = self.turn
            && effective <= self.accounts[turn.index()].effective()
        {
            // Equal claims: the one that woke has not run yet.
            self.turn = Some(vcpu);
        }
    }

    fn block(&mut self, vcpu: VcpuId, _now: u64) {
        self.raise_floor();
        self.actual.remove(vcpu);
        self.effective.remove(vcpu);
        if self.turn == Some(vcpu) {
            self.turn = None;
        }
    }

    /// Ends the turn, as if the vCPU had used its allowance.
    fn give_way(&mut self, vcpu: VcpuId, _now: u64) {
        let Some(next) = self.least_but(vcpu).filter(|_| self.turn == Some(vcpu)) else {
            return;
        };
        let account = self.account(vcpu);
        account.warped = 0;
        account.actual = account.actual.max(next);
        let (actual, effective) = (account.actual, account.effective());
        // A new arrival is behind those with the same virtual time.
        self.actual.insert(vcpu, actual);
        self.effective.insert(vcpu, effective);
        self.turn = None;
    }

    fn ran(&mut self, vcpu: VcpuId, ticks: u64, _now: u64) {
        if !self.known.contains(vcpu) {
            return;
        }
        let account = self.account(vcpu);
        let virtual_ticks = account.share.virtual_charge(ticks, &mut account.rest);
        account.actual = account.actual.saturating_add(virtual_ticks);
        account.warped = account.warped.saturating_sub(ticks);
        self.order(vcpu);
    }

    fn pick(&mut self, now: u64) -> Choice {
        self.raise_floor();
        let mut turn = self.turn;
        // The vCPU that runs stays until its allowance is used up.
        if let Some(vcpu) = turn
            && let Some(next) = self.least_but(vcpu)
            && self.allowance(vcpu, next) == 0
        {
            turn = None;
        }
        self.turn = turn.or_else(|| self.effective.first().map(|(vcpu, _)| vcpu));
        let Some(vcpu) = self.turn else {
            return Choice::Idle { until: NO_DEADLINE };
        };
        let next = self.least_but(vcpu);
        let ticks = next.map_or(NO_DEADLINE, |next| self.allowance(vcpu, next).max(1));
        Choice::Run(Run {
            vcpu,
            until: now.saturating_add(ticks),
            contended: next.is_some(),
        })
    }
}
