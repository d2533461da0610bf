//! Software-generated interrupts of a GICv3 (IHI 0069, 12.2.17 to 12.2.20).

use super::types::{IntId, Kicks, VcpuIndex};
use super::word::Gate;
use super::{Vcpu, VmGic};

const IRM: u64 = 1 << 40;
/// Aff3, Aff2 and Aff1: vCPUs have affinities 0.0.0.n.
const UPPER_AFFINITY: u64 = 0x00ff_00ff_00ff_0000;

impl VmGic {
    /// Emulates a write to ICC_SGI1R_EL1 by `from`.
    ///
    /// G1-GIC-004: an SGI reaches vCPUs of the sender's own VM only.
    pub fn sgi1r(&mut self, from: VcpuIndex, value: u64) -> Kicks {
        let (targets, intid) = sgi_targets(self.everybody(), from, value);
        self.post_sgi(targets, intid)
    }

    /// Emulates a write to ICC_SGI0R_EL1 or, the same with one security state, ICC_ASGI1R_EL1:
    /// only SGIs that their target has configured as Group 0 become pending.
    pub fn sgi0r(&mut self, from: VcpuIndex, value: u64) -> Kicks {
        let (mut targets, intid) = sgi_targets(self.everybody(), from, value);
        let (_, bit) = intid.place();
        // Bound: 8 vCPUs.
        for target in Kicks::from_mask(targets).iter() {
            if self.vcpu(target).word.group1 & bit != 0 {
                targets &= !target.bit();
            }
        }
        self.post_sgi(targets, intid)
    }

    /// Makes SGIs (GICv3), a bit each, pending on a vCPU.
    #[inline]
    pub fn post_sgis(&mut self, target: VcpuIndex, sgis: u32) -> Kicks {
        let gate = self.gate;
        if self.vcpu_mut(target).post(gate, sgis) {
            Kicks::from_mask(target.bit())
        } else {
            Kicks::NONE
        }
    }

    /// Makes an SGI pending on the vCPUs of a mask.
    #[inline]
    pub(super) fn post_sgi(&mut self, targets: u8, intid: IntId) -> Kicks {
        let (_, bit) = intid.place();
        let mut kicks = Kicks::NONE;
        // Bound: 8 vCPUs.
        for target in Kicks::from_mask(targets).iter() {
            kicks = kicks.union(self.post_sgis(target, bit));
        }
        kicks
    }
}

/// Returns a mask over the vCPUs, of `everybody`, that a write to an SGI register addresses, and
/// the SGI. RS is not implemented (GICD_TYPER.RSS = 0) and ignored.
#[inline]
pub(super) fn sgi_targets(everybody: u8, from: VcpuIndex, value: u64) -> (u8, IntId) {
    let targets = if value & IRM != 0 {
        everybody & !from.bit()
    } else if value & UPPER_AFFINITY != 0 {
        0
    } else {
        // planted: an SGI reaches every vCPU
        everybody & value as u8
    };
    (targets, IntId::at(0, (value >> 24) as u32 & 15))
}

/// Returns the index of the vCPU and the SGI if a write to ICC_SGI1R_EL1 addresses one vCPU alone.
#[inline]
pub fn only_target(value: u64) -> Option<(usize, u32)> {
    let list = value as u16;
    let is_one = value & (IRM | UPPER_AFFINITY) == 0 && list.is_power_of_two();
    is_one.then_some((list.trailing_zeros() as usize, (value >> 24) as u32 & 15))
}

impl Vcpu {
    /// Makes SGIs, a bit each, pending; tells whether the vCPU must look at them.
    #[inline]
    fn post(&mut self, gate: Gate, bits: u32) -> bool {
        self.word.latch |= bits;
        let listed = self.word.listed & bits;
        let waiting = self.word.waiting(gate) & bits;
        if listed != 0 {
            // The list register can still be refilled with its SGI: `replayable` stays.
            self.stale |= 1;
        }
        if waiting != 0 {
            self.pending_words |= 1;
        }
        listed | waiting != 0
    }
}
