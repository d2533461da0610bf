//! Round-robin: the ready vCPUs take turns of one slice each.
//!
//! The head of the queue has the CPU. It goes to the tail when it has used a
//! slice and somebody waits; alone, it runs without a deadline. A vCPU that
//! wakes goes to the tail, so that it cannot displace those that wait already.
//!
//! Source: L. Kleinrock, "Analysis of a Time-Shared Processor", 1964.

use alloc::collections::VecDeque;

use gear1_abi::id::{MAX_VCPUS, VcpuId};
use gear1_abi::regs::NO_DEADLINE;

use super::queue::Set;
use super::{Choice, Policy, Refused, Run, Share, rest_of};

#[cfg(test)]
mod tests;

/// The round-robin policy of one CPU.
#[derive(Debug)]
pub struct RoundRobin {
    /// Ticks of a turn.
    slice: u64,
    /// Ticks after which a turn ends at the next event.
    enough: u64,
    /// vCPUs of the CPU, ready or not.
    known: Set,
    /// vCPUs that are ready.
    ready: Set,
    /// The ready ones in order, each once; the first one has the CPU.
    queue: VecDeque<VcpuId>,
    /// Ticks that the head of the queue has used in its turn; `None` until it is picked.
    used: Option<u64>,
}

impl RoundRobin {
    /// Makes the policy with a slice in ticks.
    #[must_use]
    pub fn new(slice: u64) -> Self {
        let slice = slice.max(1);
        Self {
            slice,
            enough: slice - rest_of(slice),
            known: Set::default(),
            ready: Set::default(),
            queue: VecDeque::with_capacity(MAX_VCPUS),
            used: None,
        }
    }

    /// Ends the turn of the vCPU at the head.
    fn rotate(&mut self) {
        self.queue.rotate_left(1);
        self.used = None;
    }
}

impl Policy for RoundRobin {
    fn add(&mut self, vcpu: VcpuId, _share: &Share, now: u64) -> Result<(), Refused> {
        self.remove(vcpu, now);
        self.known.insert(vcpu);
        Ok(())
    }

    fn remove(&mut self, vcpu: VcpuId, now: u64) {
        self.block(vcpu, now);
        self.known.remove(vcpu);
    }

    fn set(&mut self, _vcpu: VcpuId, _share: &Share, _now: u64) -> Result<(), Refused> {
        Ok(())
    }

    /// Takes in a vCPU. A wake-up of one that is ready already, which Gear1 may repeat, leaves its
    /// place.
    fn wake(&mut self, vcpu: VcpuId, _now: u64) {
        if self.known.contains(vcpu) && self.ready.insert(vcpu) {
            self.queue.push_back(vcpu);
        }
    }

    /// Lets go of a vCPU, whether it is ready or not. The next one's turn begins when it is picked.
    fn block(&mut self, vcpu: VcpuId, _now: u64) {
        if !self.ready.remove(vcpu) {
            return;
        }
        // Most often the one that ran blocks.
        if self.queue.front() == Some(&vcpu) {
            self.queue.pop_front();
            self.used = None;
        } else {
            self.queue.retain(|&queued| queued != vcpu);
        }
    }

    /// Ends the turn of a vCPU that spins at WFE, if another waits.
    fn give_way(&mut self, vcpu: VcpuId, _now: u64) {
        let runs = self.used.is_some() && self.queue.front() == Some(&vcpu);
        if runs && self.queue.len() > 1 {
            self.rotate();
        }
    }

    fn ran(&mut self, vcpu: VcpuId, ticks: u64, _now: u64) {
        if self.queue.front() == Some(&vcpu)
            && let Some(used) = &mut self.used
        {
            *used = used.saturating_add(ticks);
        }
    }

    /// Picks the head. A slice that is used up ends here and nowhere else, so an event in the
    /// middle of a slice changes nothing.
    fn pick(&mut self, now: u64) -> Choice {
        let contended = self.queue.len() > 1;
        if contended && self.used.is_some_and(|used| used >= self.enough) {
            self.rotate();
        }
        let Some(&vcpu) = self.queue.front() else {
            return Choice::Idle { until: NO_DEADLINE };
        };
        let used = *self.used.get_or_insert(0);
        let until = if contended {
            now.saturating_add(self.slice - used)
        } else {
            NO_DEADLINE
        };
        Choice::Run(Run {
            vcpu,
            until,
            contended,
            alone: !contended,
        })
    }
}
