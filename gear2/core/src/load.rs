//! Load of a CPU: how many of its vCPUs are ready, now and on average.
//!
//! A [`Measured`] policy is another policy that says so, for the balancer and for people. The load
//! is published when it changes, in one word, so that a reader on another CPU never gets halves of
//! two loads. The average is that of the last period: it moves towards the number of ready vCPUs as
//! time passes, whether the CPU has events or not.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

use gear1_abi::id::VcpuId;

use crate::scheduler::{Choice, Policy, Refused, Share};

/// Units of an average: one ready vCPU.
pub(crate) const ONE: u64 = 1 << AVERAGE_POINT;
/// Layout of a published load, from bit 63 down: time of the last change (36 bits of the counter),
/// average (6 bits before the point and 16 behind), ready vCPUs (6 bits).
const AVERAGE_POINT: u32 = 16;
const AVERAGE_BITS: u32 = 22;
const READY_BITS: u32 = 6;
const SINCE_BITS: u32 = 64 - AVERAGE_BITS - READY_BITS;

/// Load of one CPU.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Ready vCPUs, their average at the last change, and the time of that.
    word: AtomicU64,
    /// Ready vCPUs, a bit each.
    ready: AtomicU32,
}

/// Load at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Ready vCPUs.
    pub(crate) ready: u64,
    /// Average of them, in parts of [`ONE`].
    pub(crate) average: u64,
}

impl Load {
    /// Returns the load at `now`. `period`: ticks that the average is taken over. The average has
    /// moved in proportion to the time since the last change: after a period the average is the
    /// number itself.
    pub(crate) fn read(&self, now: u64, period: u64) -> Seen {
        let word = self.word.load(Relaxed);
        let ready = word & mask(READY_BITS);
        let average = word >> READY_BITS & mask(AVERAGE_BITS);
        let since = word >> (READY_BITS + AVERAGE_BITS);
        // 36 bits of the counter wrap after 69 s at 1 GHz. A CPU without a change for so long reads
        // as just changed, and its average is right again one period later.
        let elapsed = now.wrapping_sub(since) & mask(SINCE_BITS);
        let (elapsed, period) = (elapsed.min(period), period.max(1));
        // Below 2^22 times a period of some milliseconds: no overflow.
        let aim = ready << AVERAGE_POINT;
        let way = aim.abs_diff(average).saturating_mul(elapsed) / period;
        let average = if aim > average {
            average + way
        } else {
            average - way
        };
        Seen { ready, average }
    }

    /// Returns the ready vCPUs, a bit each.
    /// Only the CPU's own loop asks: the word and these bits may be of two moments to others.
    pub(crate) fn ready(&self) -> u32 {
        self.ready.load(Relaxed)
    }

    /// Returns their number.
    pub(crate) fn count(&self) -> u32 {
        (self.word.load(Relaxed) & mask(READY_BITS)) as u32
    }

    /// Publishes the ready vCPUs.
    fn publish(&self, ready: u32, now: u64, period: u64) {
        let average = self.read(now, period).average;
        let count = u64::from(ready.count_ones()).min(mask(READY_BITS));
        let since = now & mask(SINCE_BITS);
        let word = since << (READY_BITS + AVERAGE_BITS) | average << READY_BITS | count;
        // Relaxed: readers act on a load of the recent past, and no other memory depends on it.
        self.word.store(word, Relaxed);
        self.ready.store(ready, Relaxed);
    }
}

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// A policy whose load others see.
pub(crate) struct Measured<'m> {
    policy: Box<dyn Policy + 'm>,
    load: &'m Load,
    /// Ticks that averages are taken over.
    period: u64,
    /// vCPUs of the CPU, and those that are ready.
    known: u32,
    ready: u32,
    /// Ready vCPUs as published.
    published: u32,
}

impl<'m> Measured<'m> {
    pub(crate) fn new(policy: Box<dyn Policy + 'm>, load: &'m Load, period: u64) -> Self {
        Self {
            policy,
            load,
            period,
            known: 0,
            ready: 0,
            published: 0,
        }
    }
}

/// Returns the bit of a vCPU.
const fn bit(vcpu: VcpuId) -> u32 {
    1 << vcpu.index()
}

impl Policy for Measured<'_> {
    fn add(&mut self, vcpu: VcpuId, share: &Share, now: u64) -> Result<(), Refused> {
        self.policy.add(vcpu, share, now)?;
        self.known |= bit(vcpu);
        Ok(())
    }

    fn remove(&mut self, vcpu: VcpuId, now: u64) {
        self.policy.remove(vcpu, now);
        self.known &= !bit(vcpu);
        self.ready &= !bit(vcpu);
    }

    fn set(&mut self, vcpu: VcpuId, share: &Share, now: u64) -> Result<(), Refused> {
        self.policy.set(vcpu, share, now)
    }

    fn wake(&mut self, vcpu: VcpuId, now: u64) {
        self.policy.wake(vcpu, now);
        // Policies ignore who was not added, and so does the count.
        self.ready |= bit(vcpu) & self.known;
    }

    fn block(&mut self, vcpu: VcpuId, now: u64) {
        self.policy.block(vcpu, now);
        self.ready &= !bit(vcpu);
    }

    fn give_way(&mut self, vcpu: VcpuId, now: u64) {
        self.policy.give_way(vcpu, now);
    }

    fn ran(&mut self, vcpu: VcpuId, ticks: u64, now: u64) {
        self.policy.ran(vcpu, ticks, now);
    }

    fn pays_for_end(&self, vcpu: VcpuId) -> bool {
        self.policy.pays_for_end(vcpu)
    }

    fn pick(&mut self, now: u64) -> Choice {
        // One store for all changes of an event: the choice at its end is what others can act on.
        if self.ready != self.published {
            self.load.publish(self.ready, now, self.period);
            self.published = self.ready;
        }
        self.policy.pick(now)
    }
}

#[cfg(test)]
mod tests;
