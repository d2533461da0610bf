//! Whose stage-1 translations and instructions a CPU may hold of each VM.
//!
//! Entries of a TLB are told apart by VMID and ASID. Two vCPUs of a VM have one VMID, and their
//! guest may use the same ASID for different tables on each: what one left on a CPU is wrong for
//! the other. So a CPU remembers which vCPU of a VM it ran last, in which life of the VM.
//!
//! Requirements: G1-MEM-022.

use gear1_abi::id::{MAX_VMS, VmId};

/// The vCPU of each VM that a CPU ran last.
#[derive(Clone, Copy, Debug)]
pub struct Residents([Resident; MAX_VMS]);

/// A vCPU in a life of its VM. All zero: none, since the first life is number 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Resident {
    life: u32,
    vcpu: u32,
}

impl Residents {
    /// A CPU that ran nobody.
    pub const NONE: Self = Self([Resident { life: 0, vcpu: 0 }; MAX_VMS]);

    /// Notes that the CPU runs a vCPU of `vm` from now on, in the VM's life `life`. Tells whether
    /// it may hold what is not this vCPU's.
    #[inline]
    pub fn moves_in(&mut self, vm: VmId, vcpu: usize, life: u32) -> bool {
        let new = Resident {
            life,
            vcpu: vcpu as u32,
        };
        match self.0.get_mut(vm.index()) {
            Some(last) => core::mem::replace(last, new) != new,
            None => true,
        }
    }
}

#[cfg(test)]
mod tests;
