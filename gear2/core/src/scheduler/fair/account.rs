//! Account of a vCPU: virtual time, weight and cap.

use alloc::boxed::Box;

use crate::scheduler::cap::Cap;
use crate::scheduler::{Share, Weight};

/// Account of a vCPU.
#[derive(Debug)]
pub(super) struct Account {
    weight: Weight,
    pub(super) virtual_time: u64,
    /// Remainder of charges, below a unit of virtual time.
    rest: u64,
    /// Virtual time of those before which it woke: until then it may preempt again.
    pub(super) lags_until: u64,
    pub(super) cap: Option<Box<Cap>>,
}

impl Account {
    pub(super) const fn new() -> Self {
        Self {
            weight: Weight::DEFAULT,
            virtual_time: 0,
            rest: 0,
            lags_until: 0,
            cap: None,
        }
    }

    /// Begins the account of a vCPU that is new on the CPU.
    pub(super) fn begin(&mut self, share: &Share, virtual_time: u64) {
        (self.virtual_time, self.rest, self.lags_until) = (virtual_time, 0, 0);
        self.cap = share.cap.map(|budget| Box::new(Cap::new(budget)));
        self.weight = Weight::of(share);
    }

    /// Changes weight and cap.
    pub(super) fn set(&mut self, share: &Share) {
        self.weight = Weight::of(share);
        match (share.cap, &mut self.cap) {
            (Some(budget), Some(cap)) => cap.set(budget),
            // A new cap begins full; a cap that is taken away takes its debt with it.
            (budget, cap) => *cap = budget.map(|budget| Box::new(Cap::new(budget))),
        }
    }

    /// Charges the ticks up to `now`.
    #[inline]
    pub(super) fn charge(&mut self, ticks: u64, now: u64) {
        let length = self.weight.virtual_charge(ticks, &mut self.rest);
        self.virtual_time = self.virtual_time.saturating_add(length);
        if let Some(cap) = &mut self.cap {
            cap.charge(ticks, now);
        }
    }

    /// Returns the ticks in which the vCPU came from a virtual time to its own.
    #[inline]
    pub(super) const fn ticks_since(&self, time: u64) -> u64 {
        (self.weight).ticks(self.virtual_time.saturating_sub(time))
    }

    /// Returns the ticks in which the vCPU comes to a virtual time.
    #[inline]
    pub(super) const fn ticks_until(&self, time: u64) -> u64 {
        (self.weight).ticks(time.saturating_sub(self.virtual_time))
    }

    /// Returns the virtual time until which a vCPU that wakes now lags behind this one, and behind
    /// those that this one lags behind.
    #[inline]
    pub(super) const fn ahead(&self) -> u64 {
        if self.lags() {
            self.lags_until
        } else {
            self.virtual_time
        }
    }

    /// Tells whether the vCPU lags behind those before which it woke.
    #[inline]
    pub(super) const fn lags(&self) -> bool {
        self.virtual_time < self.lags_until
    }

    /// Sets the virtual times back.
    pub(super) const fn set_back(&mut self, by: u64) {
        self.virtual_time = self.virtual_time.saturating_sub(by);
        self.lags_until = self.lags_until.saturating_sub(by);
    }
}
