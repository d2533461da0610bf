//! Account of a vCPU: virtual times, weight and warp.

use crate::scheduler::{Share, Weight};

/// Account of a vCPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    pub(super) weight: Weight,
    /// The warp, in virtual time.
    pub(super) warp: u64,
    /// The virtual time of a slice.
    pub(super) allowance: u64,
    /// The actual virtual time.
    pub(super) actual: u64,
    /// Remainder of charges, below a unit of virtual time.
    rest: u64,
    /// Ticks for which the warp lasts.
    pub(super) warped: u64,
}

impl Account {
    pub(super) const fn new(slice: u64, actual: u64) -> Self {
        Self {
            weight: Weight::DEFAULT,
            warp: 0,
            allowance: Weight::DEFAULT.virtual_time(slice),
            actual,
            rest: 0,
            warped: 0,
        }
    }

    /// Returns the account with other parameters.
    pub(super) const fn with(self, share: &Share, slice: u64) -> Self {
        let weight = Weight::of(share);
        Self {
            weight,
            warp: Weight::DEFAULT.virtual_time(share.latency),
            allowance: weight.virtual_time(slice),
            ..self
        }
    }

    /// Returns the effective virtual time.
    #[inline]
    pub(super) const fn effective(&self) -> u64 {
        if self.warped > 0 {
            self.actual.saturating_sub(self.warp)
        } else {
            self.actual
        }
    }

    /// Charges ticks.
    #[inline]
    pub(super) const fn charge(&mut self, ticks: u64) {
        let length = self.weight.virtual_charge(ticks, &mut self.rest);
        self.actual = self.actual.saturating_add(length);
        self.warped = self.warped.saturating_sub(ticks);
    }
}
