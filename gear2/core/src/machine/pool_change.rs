//! A change of a VM's pool: what [`pools`](super::pools) decides by, and what stands against another
//! change.

use gear1_abi::id::{MAX_VCPUS, VmId};

use super::Stays;

/// A change of a VM's pool that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolChange {
    pub(super) vm: VmId,
    /// Pools by their places. A change that goes on after a restart has no old one.
    pub(super) from: usize,
    pub(super) to: usize,
    /// vCPUs, a bit each, that no CPU of the new pool has agreed to take yet.
    pub(super) waits: u32,
    /// vCPUs, a bit each, that were offered to a CPU of the new pool: a refusal of another vCPU is
    /// older than the change.
    pub(super) asked: u32,
    /// vCPUs, a bit each, that have neither moved nor been told to stay.
    pub(super) open: u32,
    /// CPUs, a bit each, that refused each vCPU.
    pub(super) tried: [u8; MAX_VCPUS],
    /// Why the VM stays in the old pool.
    pub(super) refused: Option<Stays>,
}

impl PoolChange {
    /// Tells whether CPUs of the new pool may agree to take vCPUs of a VM.
    pub(super) fn takes(&self, vm: VmId) -> bool {
        self.vm == vm && self.refused.is_none()
    }
}
