//! Account of a vCPU: virtual times, weight and warp.

use gear1_abi::id::VmId;

use crate::scheduler::Share;

/// Account of a vCPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    pub(super) share: Share,
    /// The warp, in virtual time.
    warp: u64,
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
    pub(super) const fn new(share: Share, slice: u64, actual: u64) -> Self {
        let account = Self {
            share,
            warp: 0,
            allowance: 0,
            actual,
            rest: 0,
            warped: 0,
        };
        account.with(share, slice)
    }

    /// Returns the account with other parameters.
    pub(super) const fn with(self, share: Share, slice: u64) -> Self {
        Self {
            share,
            warp: Share::of(VmId::FIRST).virtual_time(share.latency),
            allowance: share.virtual_time(slice),
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
        let length = self.share.virtual_charge(ticks, &mut self.rest);
        self.actual = self.actual.saturating_add(length);
        self.warped = self.warped.saturating_sub(ticks);
    }
}
