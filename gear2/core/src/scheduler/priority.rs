//! Fixed priorities: the ready vCPU with the highest one runs, equals take turns of one slice.
//!
//! A vCPU that is preempted stays at the head of its priority. With a ceiling, a vCPU that has been
//! ready for so long without running gets one slice before all priorities: a high priority that
//! never blocks slows the others down, and starves nobody. The next such slice begins one slice
//! later at the earliest, or many that wait would hold the highest priority up.
//!
//! Source: SCHED_FIFO and SCHED_RR of POSIX.1-2017; the ceiling is aging as in A. Silberschatz,
//! P. B. Galvin, "Operating System Concepts", "Priority Scheduling".

use gear1_abi::id::{MAX_VCPUS, VcpuId};
use gear1_abi::regs::NO_DEADLINE;

use super::queue::{Queue, Set};
use super::{Choice, Policy, Refused, Run, Share, rest_of};

#[cfg(test)]
mod tests;

/// Priorities, 0 the lowest.
const LEVELS: usize = 32;

/// The priority policy of one CPU.
#[derive(Debug)]
pub struct Priority {
    /// Ticks of a turn.
    slice: u64,
    /// Ticks after which a turn ends at the next event.
    enough: u64,
    /// The longest wait for higher priorities, in ticks; 0: no limit.
    ceiling: u64,
    /// vCPUs that were added; wake-ups of others are ignored.
    known: Set,
    /// Level of each vCPU, 0 the highest priority.
    levels: [u8; MAX_VCPUS],
    /// Ready vCPUs by level, in the order of their turns.
    ready: Queue,
    /// Number of ready vCPUs of each level.
    counts: [u8; LEVELS],
    /// Ready vCPUs but the one that runs, by the time since which they wait, if there is a ceiling.
    waiting: Queue,
    /// vCPU that has the CPU, and whether it runs before all priorities.
    turn: Option<VcpuId>,
    aged: bool,
    /// Time before which no other vCPU runs before all priorities.
    rested: u64,
    /// Ticks of its turn that each vCPU used. A preemption does not begin a new turn, or a vCPU
    /// that is preempted often would starve its equals.
    used: [u64; MAX_VCPUS],
}

impl Priority {
    /// Makes the policy with a slice and a ceiling in ticks.
    #[must_use]
    pub fn new(slice: u64, ceiling: u64) -> Self {
        let slice = slice.max(1);
        Self {
            slice,
            enough: slice - rest_of(slice),
            ceiling,
            known: Set::default(),
            levels: [0; MAX_VCPUS],
            ready: Queue::new(),
            counts: [0; LEVELS],
            waiting: Queue::new(),
            turn: None,
            aged: false,
            rested: 0,
            used: [0; MAX_VCPUS],
        }
    }

    fn level(&self, vcpu: VcpuId) -> usize {
        usize::from(self.levels[vcpu.index()])
    }

    /// Turns a priority, whose highest runs first, into a key of `ready`, whose least is first.
    fn level_of(share: &Share) -> u8 {
        (LEVELS as u8 - 1).saturating_sub(share.priority)
    }

    /// Moves a ready vCPU behind the others of its level.
    fn rotate(&mut self, vcpu: VcpuId) {
        let level = self.level(vcpu) as u64;
        self.ready.insert(vcpu, level);
    }

    /// Notes since when a vCPU waits. Without a ceiling nobody asks.
    #[inline]
    fn wait(&mut self, vcpu: VcpuId, now: u64) {
        if self.ceiling > 0 {
            self.waiting.insert(vcpu, now);
        }
    }

    /// Gives a vCPU the CPU. The one that has had it waits from now on, if it is ready.
    fn give(&mut self, vcpu: VcpuId, aged: bool, now: u64) {
        if self.turn != Some(vcpu) {
            if let Some(last) = self.turn.filter(|last| self.ready.contains(*last)) {
                self.wait(last, now);
            }
            self.waiting.remove(vcpu);
            self.turn = Some(vcpu);
        }
        self.aged = aged;
        if aged {
            self.used[vcpu.index()] = 0;
        }
    }

    /// Returns the vCPU that waits longest, and the time at which it gets its slice.
    fn ceiling(&self) -> Option<(VcpuId, u64)> {
        let (vcpu, since) = self.waiting.first().filter(|_| self.ceiling > 0)?;
        Some((vcpu, since.saturating_add(self.ceiling).max(self.rested)))
    }

    /// Decides who has the CPU from `now` on.
    fn choose(&mut self, now: u64) -> Option<VcpuId> {
        let over = self
            .turn
            .filter(|turn| self.used[turn.index()] >= self.enough);
        // The slice before all priorities is not over.
        if self.aged && over.is_none() && self.turn.is_some() {
            return self.turn;
        }
        if let Some(turn) = over {
            self.used[turn.index()] = 0;
            // Only equals take turns: an aged vCPU keeps its place.
            if !self.aged {
                self.rotate(turn);
            }
        }
        if core::mem::take(&mut self.aged) {
            // planted: all that wait at the ceiling run in one go
            self.rested = now.saturating_add(self.slice);
        }
        if let Some((vcpu, _)) = self.ceiling().filter(|(_, due)| *due <= now) {
            self.give(vcpu, true, now);
            return Some(vcpu);
        }
        let (vcpu, _) = self.ready.first()?;
        self.give(vcpu, false, now);
        Some(vcpu)
    }
}

impl Policy for Priority {
    fn add(&mut self, vcpu: VcpuId, share: &Share, now: u64) -> Result<(), Refused> {
        self.remove(vcpu, now);
        self.known.insert(vcpu);
        self.levels[vcpu.index()] = Self::level_of(share);
        Ok(())
    }

    fn remove(&mut self, vcpu: VcpuId, now: u64) {
        self.block(vcpu, now);
        self.known.remove(vcpu);
    }

    fn set(&mut self, vcpu: VcpuId, share: &Share, _now: u64) -> Result<(), Refused> {
        let (old, new) = (self.level(vcpu), Self::level_of(share));
        self.levels[vcpu.index()] = new;
        if self.ready.contains(vcpu) && old != usize::from(new) {
            // Behind its new equals, like one that wakes.
            self.counts[old] -= 1;
            self.counts[usize::from(new)] += 1;
            self.rotate(vcpu);
        }
        Ok(())
    }

    fn wake(&mut self, vcpu: VcpuId, now: u64) {
        if self.known.contains(vcpu) && !self.ready.contains(vcpu) {
            let level = self.level(vcpu);
            self.counts[level] += 1;
            self.ready.insert(vcpu, level as u64);
            self.wait(vcpu, now);
        }
    }

    fn block(&mut self, vcpu: VcpuId, _now: u64) {
        if self.ready.remove(vcpu) {
            self.counts[self.level(vcpu)] -= 1;
        }
        self.waiting.remove(vcpu);
        if self.turn == Some(vcpu) {
            self.turn = None;
        }
        self.used[vcpu.index()] = 0;
    }

    /// Ends the turn among equals, and the slice of a vCPU that runs before all priorities.
    fn give_way(&mut self, vcpu: VcpuId, _now: u64) {
        if self.turn == Some(vcpu) {
            self.used[vcpu.index()] = self.slice;
        }
    }

    fn ran(&mut self, vcpu: VcpuId, ticks: u64, _now: u64) {
        if self.turn == Some(vcpu) {
            let used = &mut self.used[vcpu.index()];
            *used = used.saturating_add(ticks);
        }
    }

    fn pick(&mut self, now: u64) -> Choice {
        let Some(vcpu) = self.choose(now) else {
            return Choice::Idle { until: NO_DEADLINE };
        };
        let equals = self.counts[self.level(vcpu)] > 1;
        // Alone in its level, a vCPU runs until an event: a higher priority comes by one.
        let turn = if equals || self.aged {
            self.slice.saturating_sub(self.used[vcpu.index()])
        } else {
            NO_DEADLINE
        };
        let mut until = now.saturating_add(turn);
        if !self.aged
            && let Some((_, due)) = self.ceiling()
        {
            until = until.min(due);
        }
        Choice::Run(Run {
            vcpu,
            until,
            // A vCPU that spins at WFE gives way to its equals, and to those that it passed by age.
            contended: equals || self.aged,
            alone: self.ready.len() == 1,
        })
    }
}
