//! Safe states: the end of a VM that has failed for good.

use gear1_abi::id::VmId;
use gearv_manifest::{Manifest, OnGiveUp, Vm};

/// Consequence of a failure after which a VM is not started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SafeState {
    /// The VM stays stopped.
    Stop,
    /// The machine is powered off.
    PowerOff,
    /// Another VM, the standby, is started.
    FailOver(VmId),
}

impl SafeState {
    pub(super) fn new(manifest: &Manifest<'_>, vm: &Vm<'_>) -> Self {
        // The rules have found that a standby is one of the VMs.
        let standby = vm.standby.and_then(|name| manifest.vm_named(name));
        match (vm.on_give_up, standby) {
            (OnGiveUp::PowerOff, _) => Self::PowerOff,
            (OnGiveUp::FailOver, Some(standby)) => Self::FailOver(standby.id),
            (OnGiveUp::FailOver, None) | (OnGiveUp::Stop, _) => Self::Stop,
        }
    }
}
