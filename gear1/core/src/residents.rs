//! vCPUs whose stage-1 translations and instructions a CPU may hold, for each VM.
//!
//! TLB entries are tagged by VMID and ASID. Two vCPUs of a VM share one VMID, and their guest may
//! use one ASID for different tables on each: entries that one left on a CPU are wrong for the
//! other. Therefore a CPU remembers the vCPU of each VM that it ran last, and the life of the VM.
//!
//! Requirements: G1-MEM-022.

use gear1_abi::id::{MAX_VMS, VmId};

use crate::vgic::VcpuIndex;

/// The vCPU of each VM that a CPU ran last.
#[derive(Clone, Copy, Debug)]
pub struct Residents([Resident; MAX_VMS]);

/// A vCPU in a life of its VM. All zero: no vCPU, since the first life is number 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Resident {
    life: u32,
    vcpu: u32,
}

impl Residents {
    /// A CPU that ran nobody.
    pub const NONE: Self = Self([Resident { life: 0, vcpu: 0 }; MAX_VMS]);

    /// Notes that the CPU runs a vCPU of `vm`, in the VM's life `life`. Returns whether the CPU may
    /// hold translations of another vCPU or life.
    #[inline]
    pub fn moves_in(&mut self, vm: VmId, vcpu: VcpuIndex, life: u32) -> bool {
        let new = Resident {
            life,
            vcpu: vcpu.index() as u32,
        };
        let last = vm.select_mut(&mut self.0);
        // planted: siblings on a CPU have one TLB
        core::mem::replace(last, new) != new
    }
}

#[cfg(test)]
mod tests;
