//! Borrowed virtual time: shares by weight, and a warp for vCPUs that must run at once.
//!
//! Each vCPU has an actual virtual time, which grows with its use divided by its weight, and an
//! effective one, less by its warp. The ready vCPU with the least effective virtual time runs for a
//! slice (the paper's context switch allowance), or until it is a slice ahead of the next one. A
//! vCPU that wakes starts at the scheduler's virtual time, the least of the ready ones, and
//! preempts unless it is ahead. A warp ends when the vCPU has used a slice since it woke: what it
//! borrows is bounded.
//!
//! The paper bounds the lead alone. A vCPU that is a slice behind would then run for two slices,
//! and the others would wait for that.
//!
//! Source: K. J. Duda, D. R. Cheriton, "Borrowed-Virtual-Time (BVT) scheduling: supporting
//! latency-sensitive threads in a general-purpose scheduler", SOSP 1999.

use gear1_abi::id::{MAX_VCPUS, VcpuId};
use gear1_abi::regs::NO_DEADLINE;

use super::queue::{Queue, Set};
use super::{Choice, Policy, Refused, Run, Share};
use account::Account;

mod account;
#[cfg(test)]
mod tests;

/// Virtual time of the first vCPU, so that no warp leads below zero.
const ORIGIN: u64 = 1 << 56;

/// Virtual time at which all virtual times are set back.
const TOO_FAR: u64 = 1 << 60;

/// The borrowed-virtual-time policy of one CPU.
#[derive(Debug)]
pub struct Bvt {
    /// Ticks of a turn, and by which the vCPU that runs may get ahead of the next one.
    slice: u64,
    known: Set,
    accounts: [Account; MAX_VCPUS],
    /// Ready vCPUs but the one that has the CPU: those without a warp, by virtual time, and those
    /// with one, by their effective and by their actual virtual time.
    plain: Queue,
    warped: Queue,
    warped_actual: Queue,
    /// The scheduler's virtual time.
    floor: u64,
    /// vCPU that has the CPU, and the ticks of its turn that it has used.
    turn: Option<VcpuId>,
    used: u64,
}

impl Bvt {
    /// Makes the policy with a context switch allowance in ticks.
    #[must_use]
    pub fn new(slice: u64) -> Self {
        let slice = slice.max(1);
        Self {
            slice,
            known: Set::default(),
            accounts: [Account::new(slice, ORIGIN); MAX_VCPUS],
            plain: Queue::new(),
            warped: Queue::new(),
            warped_actual: Queue::new(),
            floor: ORIGIN,
            turn: None,
            used: 0,
        }
    }

    /// Returns the virtual times of a vCPU.
    fn account(&self, vcpu: VcpuId) -> &Account {
        vcpu.select(&self.accounts)
    }

    /// Raises the scheduler's virtual time to the least one of the ready vCPUs.
    #[inline]
    fn raise_floor(&mut self) {
        let turn = self.turn.map(|turn| self.account(turn).actual);
        // Actual times alone: a warp is borrowed, and must not hold the others' time back.
        let waiting = [self.plain.first(), self.warped_actual.first()];
        let waiting = waiting.into_iter().flatten().map(|(_, actual)| actual);
        self.floor = self
            .floor
            .max(turn.into_iter().chain(waiting).min().unwrap_or(0));
    }

    /// Sets all virtual times back by the same length, once in weeks.
    #[cold]
    #[inline(never)]
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

    /// Tells whether a vCPU waits for the CPU.
    fn waits(&self, vcpu: VcpuId) -> bool {
        self.plain.contains(vcpu) || self.warped.contains(vcpu)
    }

    /// Lets a vCPU wait, behind those with the same virtual time.
    fn enqueue(&mut self, vcpu: VcpuId) {
        let account = vcpu.select(&self.accounts);
        if account.warped > 0 {
            self.warped.insert(vcpu, account.effective());
            self.warped_actual.insert(vcpu, account.actual);
        } else {
            self.plain.insert(vcpu, account.actual);
        }
    }

    /// Takes a vCPU that waits out of its queues.
    fn dequeue(&mut self, vcpu: VcpuId) {
        if !self.plain.remove(vcpu) && self.warped.remove(vcpu) {
            self.warped_actual.remove(vcpu);
        }
    }

    /// Moves a vCPU that waits to where its virtual times belong.
    fn order(&mut self, vcpu: VcpuId) {
        let &account = self.account(vcpu);
        // The warp was used up by a charge that came late.
        if account.warped == 0 && self.warped.contains(vcpu) {
            self.dequeue(vcpu);
            self.enqueue(vcpu);
        }
        self.plain.set_key(vcpu, account.actual);
        self.warped.set_key(vcpu, account.effective());
        self.warped_actual.set_key(vcpu, account.actual);
    }

    /// Returns the vCPU with the least effective virtual time that waits, and that time.
    #[inline]
    fn first(&self) -> Option<(VcpuId, u64)> {
        match (self.warped.first(), self.plain.first()) {
            (Some(warped), Some(plain)) if plain.1 < warped.1 => Some(plain),
            (None, plain) => plain,
            (warped, _) => warped,
        }
    }

    /// Gives a vCPU the CPU.
    fn begin(&mut self, vcpu: VcpuId) {
        (self.turn, self.used) = (Some(vcpu), 0);
    }

    /// Returns the ticks for which a vCPU may have the CPU, whose turn it is.
    #[inline]
    fn allowance(&self, vcpu: VcpuId) -> u64 {
        let Some((_, next)) = self.first() else {
            return NO_DEADLINE;
        };
        let account = self.account(vcpu);
        let limit = next.saturating_add(account.allowance);
        // Virtual time grows with use divided by weight: the way back multiplies.
        let ahead = limit.saturating_sub(account.effective());
        let ahead = account.weight.ticks(ahead);
        let ticks = ahead.min(self.slice.saturating_sub(self.used));
        // A warp that ends changes the order.
        if account.warped > 0 {
            ticks.min(account.warped)
        } else {
            ticks
        }
    }

    /// Gives the CPU to the first one. Returns it, and the ticks for which it may have the CPU.
    fn switch(&mut self) -> Option<(VcpuId, u64)> {
        if let Some(turn) = self.turn {
            self.enqueue(turn);
            self.turn = None;
        }
        self.raise_floor();
        // Saturated virtual times would be equal, and order nobody.
        if self.floor > TOO_FAR {
            self.set_back();
        }
        let (vcpu, _) = self.first()?;
        self.dequeue(vcpu);
        self.begin(vcpu);
        Some((vcpu, self.allowance(vcpu).max(1)))
    }
}

impl Policy for Bvt {
    fn add(&mut self, vcpu: VcpuId, share: &Share, now: u64) -> Result<(), Refused> {
        self.remove(vcpu, now);
        self.raise_floor();
        self.known.insert(vcpu);
        *vcpu.select_mut(&mut self.accounts) =
            Account::new(self.slice, self.floor).with(share, self.slice);
        Ok(())
    }

    fn remove(&mut self, vcpu: VcpuId, now: u64) {
        self.block(vcpu, now);
        self.known.remove(vcpu);
    }

    fn set(&mut self, vcpu: VcpuId, share: &Share, _now: u64) -> Result<(), Refused> {
        let account = vcpu.select_mut(&mut self.accounts);
        *account = account.with(share, self.slice);
        self.order(vcpu);
        Ok(())
    }

    fn wake(&mut self, vcpu: VcpuId, _now: u64) {
        if !self.known.contains(vcpu) || self.turn == Some(vcpu) || self.waits(vcpu) {
            return;
        }
        self.raise_floor();
        let (floor, slice) = (self.floor, self.slice);
        let account = vcpu.select_mut(&mut self.accounts);
        // Sleep saves up nothing: who wakes begins with the others.
        account.actual = account.actual.max(floor);
        account.warped = if account.warp > 0 { slice } else { 0 };
        let effective = account.effective();
        match self.turn {
            // Equal claims: the one that woke has not run yet.
            Some(turn) if effective <= self.account(turn).effective() => {
                self.enqueue(turn);
                self.begin(vcpu);
            }
            None if self.first().is_none() => self.begin(vcpu),
            _ => self.enqueue(vcpu),
        }
    }

    fn block(&mut self, vcpu: VcpuId, _now: u64) {
        self.raise_floor();
        if self.turn == Some(vcpu) {
            self.turn = None;
        } else {
            self.dequeue(vcpu);
        }
    }

    /// Ends the turn, as if the vCPU had used its allowance.
    fn give_way(&mut self, vcpu: VcpuId, _now: u64) {
        let Some((_, next)) = self.first().filter(|_| self.turn == Some(vcpu)) else {
            return;
        };
        let account = vcpu.select_mut(&mut self.accounts);
        account.warped = 0;
        // Virtual time that was not used counts as used, else `pick` would choose the same one.
        account.actual = account.actual.max(next);
        self.enqueue(vcpu);
        self.turn = None;
    }

    fn ran(&mut self, vcpu: VcpuId, ticks: u64, _now: u64) {
        if !self.known.contains(vcpu) {
            return;
        }
        vcpu.select_mut(&mut self.accounts).charge(ticks);
        if self.turn == Some(vcpu) {
            self.used = self.used.saturating_add(ticks);
        } else {
            self.order(vcpu);
        }
    }

    fn pick(&mut self, now: u64) -> Choice {
        // The vCPU that runs stays until its allowance is used up.
        let kept = self.turn.map(|turn| (turn, self.allowance(turn)));
        let kept = kept.filter(|(_, ticks)| *ticks > 0);
        let Some((vcpu, ticks)) = kept.or_else(|| self.switch()) else {
            return Choice::Idle { until: NO_DEADLINE };
        };
        let contended = self.first().is_some();
        Choice::Run(Run {
            vcpu,
            until: now.saturating_add(ticks),
            contended,
            alone: !contended,
        })
    }
}
