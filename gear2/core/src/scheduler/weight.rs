//! Weight of a vCPU: how fast its virtual time passes.

use gearv_manifest::Parameters;

use super::Share;

/// The largest weight.
pub const MAX_WEIGHT: u64 = 1000;

/// A weight from 1 to [`MAX_WEIGHT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weight(u64);

impl Weight {
    /// The weight of a VM that names none.
    pub(super) const DEFAULT: Self = Self(Parameters::WEIGHT as u64);

    /// Returns the weight of a vCPU. A weight of zero would stop the account: the least one counts.
    pub(super) const fn of(share: &Share) -> Self {
        Self(if share.weight == 0 { 1 } else { share.weight })
    }

    /// Returns the virtual time of `ticks`: longer for a smaller weight.
    pub(super) const fn virtual_time(self, ticks: u64) -> u64 {
        ticks.saturating_mul(MAX_WEIGHT) / self.0
    }

    /// Returns the same for a charge. What the division leaves is kept in `rest` for the next one:
    /// a vCPU whose charges are short would run for nothing otherwise.
    pub(super) const fn virtual_charge(self, ticks: u64, rest: &mut u64) -> u64 {
        let scaled = ticks.saturating_mul(MAX_WEIGHT).saturating_add(*rest);
        *rest = scaled % self.0;
        scaled / self.0
    }

    /// Returns the ticks in which the virtual time grows by `length`, rounded up.
    pub(super) const fn ticks(self, length: u64) -> u64 {
        length.saturating_mul(self.0).div_ceil(MAX_WEIGHT)
    }
}
