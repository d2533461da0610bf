//! Round-robin: the ready vCPUs take turns of one slice each.
//!
//! The head of the queue has the CPU. It goes to the tail when it has had a
//! slice and somebody waits; alone, it runs without a deadline. A vCPU that
//! wakes goes to the tail, so that it cannot displace those that wait already.

use alloc::collections::VecDeque;

use gear1_abi::id::{MAX_VCPUS, VcpuId};
use gear1_abi::regs::NO_DEADLINE;

use super::{Choice, Scheduler};

#[cfg(test)]
mod tests;

/// The round-robin policy of one CPU.
#[derive(Debug)]
pub struct RoundRobin {
    /// Ticks of a turn.
    slice: u64,
    /// Ready vCPUs of the CPU, each once; the first one has the CPU.
    queue: VecDeque<VcpuId>,
    /// Time at which the head of the queue got the CPU; `None` until it is picked.
    since: Option<u64>,
}

impl RoundRobin {
    /// Makes the policy with a slice in ticks.
    #[must_use]
    pub fn new(slice: u64) -> Self {
        Self {
            slice: slice.max(1),
            queue: VecDeque::with_capacity(MAX_VCPUS),
            since: None,
        }
    }

    /// Ends the turn of the vCPU at the head.
    fn rotate(&mut self) {
        self.queue.rotate_left(1);
        self.since = None;
    }
}

impl Scheduler for RoundRobin {
    /// Takes in a vCPU. A wake-up of one that is ready already, which Gear1 may repeat, leaves its
    /// place.
    fn wake(&mut self, vcpu: VcpuId, _now: u64) {
        if !self.queue.contains(&vcpu) {
            self.queue.push_back(vcpu);
        }
    }

    /// Lets go of a vCPU, whether it is ready or not. The next one's turn begins when it is picked.
    fn block(&mut self, vcpu: VcpuId, _now: u64) {
        let Some(place) = self.queue.iter().position(|&queued| queued == vcpu) else {
            return;
        };
        self.queue.remove(place);
        if place == 0 {
            self.since = None;
        }
    }

    /// Ends the turn of a vCPU that spins at WFE, if another waits.
    fn give_way(&mut self, vcpu: VcpuId, _now: u64) {
        let runs = self.since.is_some() && self.queue.front() == Some(&vcpu);
        if runs && self.queue.len() > 1 {
            self.rotate();
        }
    }

    /// Picks the head. A slice that is used up ends here and nowhere else, so an event in the
    /// middle of a slice changes nothing.
    fn pick(&mut self, now: u64) -> Option<Choice> {
        let contended = self.queue.len() > 1;
        let used = self.since.map_or(0, |since| now.saturating_sub(since));
        if contended && used >= self.slice {
            self.rotate();
        }
        let vcpu = *self.queue.front()?;
        let since = *self.since.get_or_insert(now);
        let deadline = if contended {
            since.saturating_add(self.slice)
        } else {
            NO_DEADLINE
        };
        Some(Choice {
            vcpu,
            deadline,
            contended,
        })
    }
}
