//! vCPUs that wait for their turn, by virtual time, and those of them that woke.

use gear1_abi::id::VcpuId;

use super::queue::Queue;

/// Ready vCPUs but the one whose turn it is.
#[derive(Debug)]
pub(super) struct Waiting {
    all: Queue,
    /// Waiting vCPUs that woke and have not run since, or that may preempt again.
    fresh: Queue,
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self {
            all: Queue::new(),
            fresh: Queue::new(),
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.all.len() == 0
    }

    pub(super) const fn contains(&self, vcpu: VcpuId) -> bool {
        self.all.contains(vcpu)
    }

    /// Inserts a vCPU behind those with the same virtual time. `fresh`: it may preempt.
    pub(super) fn insert(&mut self, vcpu: VcpuId, time: u64, fresh: bool) {
        self.all.insert(vcpu, time);
        if fresh {
            self.fresh.insert(vcpu, time);
        }
    }

    /// Changes the virtual time of a vCPU, if it waits.
    pub(super) fn set_time(&mut self, vcpu: VcpuId, time: u64) {
        self.all.set_key(vcpu, time);
        // No change to one that is not fresh.
        self.fresh.set_key(vcpu, time);
    }

    /// Removes a vCPU, if it waits.
    pub(super) fn remove(&mut self, vcpu: VcpuId) {
        self.all.remove(vcpu);
        self.fresh.remove(vcpu);
    }

    /// Returns the least virtual time.
    #[inline]
    pub(super) fn least(&self) -> Option<u64> {
        self.all.first().map(|(_, time)| time)
    }

    /// Returns the least virtual time of those that may preempt.
    #[inline]
    pub(super) fn least_fresh(&self) -> Option<u64> {
        self.fresh.first().map(|(_, time)| time)
    }

    /// Has a vCPU wait as [`Self::insert`] does, and returns the next one as [`Self::take_next`]
    /// does.
    #[inline]
    pub(super) fn exchange(
        &mut self,
        vcpu: VcpuId,
        time: u64,
        fresh: bool,
        grain: u64,
    ) -> Option<VcpuId> {
        // Nobody preempts at most ends of turns: the least virtual time alone decides then.
        if !fresh && self.fresh.len() == 0 {
            return Some(self.all.exchange(vcpu, time));
        }
        self.insert(vcpu, time, fresh);
        self.take_next(grain)
    }

    /// Removes and returns the vCPU that is next: one that may preempt is before those that wait
    /// for their next turn, if it is at most `grain` ahead of them.
    pub(super) fn take_next(&mut self, grain: u64) -> Option<VcpuId> {
        let first = self.all.first()?;
        let fresh = self.fresh.first();
        let (vcpu, _) = fresh
            .filter(|(_, time)| *time <= first.1.saturating_add(grain))
            .unwrap_or(first);
        self.remove(vcpu);
        Some(vcpu)
    }
}
