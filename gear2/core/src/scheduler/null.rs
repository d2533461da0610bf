//! Null: one vCPU has the CPU for itself, and no timer is ever programmed.
//!
//! Source: Xen's null scheduler has the same contract: one vCPU a CPU, no decision.

use gear1_abi::id::VcpuId;
use gear1_abi::regs::NO_DEADLINE;

use super::{Choice, Policy, Refused, Run, Share};

#[cfg(test)]
mod tests;

/// The null policy of one CPU.
#[derive(Debug, Default)]
pub struct Null {
    /// The vCPU that has the CPU.
    vcpu: Option<VcpuId>,
    /// Whether the vCPU has woken and not blocked since.
    ready: bool,
}

impl Policy for Null {
    fn add(&mut self, vcpu: VcpuId, _share: &Share, _now: u64) -> Result<(), Refused> {
        if *self.vcpu.get_or_insert(vcpu) != vcpu {
            return Err(Refused::Full);
        }
        // Blocked, as every vCPU that is added, also one that was here before.
        self.ready = false;
        Ok(())
    }

    fn remove(&mut self, vcpu: VcpuId, _now: u64) {
        if self.vcpu == Some(vcpu) {
            *self = Self::default();
        }
    }

    fn set(&mut self, _vcpu: VcpuId, _share: &Share, _now: u64) -> Result<(), Refused> {
        Ok(())
    }

    fn wake(&mut self, vcpu: VcpuId, _now: u64) {
        self.ready |= self.vcpu == Some(vcpu);
    }

    fn block(&mut self, vcpu: VcpuId, _now: u64) {
        self.ready &= self.vcpu != Some(vcpu);
    }

    fn give_way(&mut self, _vcpu: VcpuId, _now: u64) {}

    fn ran(&mut self, _vcpu: VcpuId, _ticks: u64, _now: u64) {}

    fn pick(&mut self, _now: u64) -> Choice {
        match self.vcpu.filter(|_| self.ready) {
            Some(vcpu) => Choice::Run(Run {
                vcpu,
                until: NO_DEADLINE,
                // WFE is left to the vCPU: nobody else waits for the CPU.
                contended: false,
                alone: true,
            }),
            None => Choice::Idle { until: NO_DEADLINE },
        }
    }
}
