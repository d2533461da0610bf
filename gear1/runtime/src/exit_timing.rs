//! The exit that Gear2 handles: how long both gears work for the vCPU that left its guest.
//!
//! Requirements: G1-RUN-007.

use gear1_abi::exit::ExitReason;
use gear1_arch::this_cpu::is_same;
use gear1_core::vcpu::VcpuShared;

/// Exit that went to Gear2, whose ticks count until its vCPU is entered again.
pub(crate) struct ExitTiming {
    /// vCPU that left its guest; `None`: nothing is counted.
    vcpu: Option<&'static VcpuShared>,
    /// Counter value at the exit.
    since: u64,
    /// Reason of the exit.
    reason: ExitReason,
}

impl ExitTiming {
    /// No exit.
    pub(crate) const NONE: Self = Self {
        vcpu: None,
        since: 0,
        reason: ExitReason::Hvc,
    };

    /// A vCPU leaves its guest at `now`.
    #[inline(always)]
    pub(crate) const fn begin(vcpu: &'static VcpuShared, reason: ExitReason, now: u64) -> Self {
        Self {
            vcpu: Some(vcpu),
            since: now,
            reason,
        }
    }

    /// A vCPU enters its guest at `now`: the exit's ticks count if it is the one that left, as those
    /// of another vCPU's run in between would count for this one. The exit is kept while the guest
    /// runs. The way to Gear2 begins another one, and a restart of Gear2 drops it, so nothing counts
    /// twice.
    #[inline(always)]
    pub(crate) fn end(&self, vcpu: &VcpuShared, now: u64) {
        if self.is_of(vcpu) {
            vcpu.add_ticks(self.reason, now.wrapping_sub(self.since));
        }
    }

    /// Tells whether this vCPU left its guest.
    #[inline(always)]
    pub(crate) fn is_of(&self, vcpu: &VcpuShared) -> bool {
        self.vcpu.is_some_and(|left| is_same(left, vcpu))
    }
}
