//! Reasons for which Gear2 refuses to change a VM's life.
//!
//! Gear2's outcome says that the state does not allow the operation. What the VM is and does says
//! the reason, and what can be done instead.

use gear1_abi::call::VmState;
use gear2_protocol::{op, outcome};

use super::vm_row;
use crate::client::{Vm, describe, kind_of};
use crate::error::Error;

/// Returns the error for a refused operation on a VM, as it was just before.
pub(super) fn of(op: u32, vm: &Vm, outcome: u32) -> Error {
    let name = &vm.name;
    let reason = match outcome {
        outcome::WRONG_STATE => reason(op, vm),
        outcome::NOT_FOUND => "Gear2 knows it no longer; see `gearctl list`".into(),
        outcome::UNKNOWN => {
            "this Gear2 knows no such operation; see `gearctl version` for both versions".into()
        }
        other => describe(other),
    };
    Error::new(
        kind_of(outcome),
        format!("VM {name} {}: {reason}", not_done(op)),
    )
}

/// Says what is not done.
fn not_done(op: u32) -> &'static str {
    match op {
        op::VM_START => "is not started",
        op::VM_STOP => "is not stopped",
        op::VM_RESTART => "is not restarted",
        op::VM_PAUSE => "is not paused",
        op::VM_RESUME => "is not resumed",
        op::VM_POWER_BUTTON => "is not shut down",
        op::VCPU_REGISTERS => "is not dumped",
        _ => "is not changed",
    }
}

/// Returns the reason why the state does not allow an operation.
fn reason(op: u32, vm: &Vm) -> String {
    let name = &vm.name;
    // The state is of the moment before the request: where it explains nothing, the VM has changed
    // since.
    let is_running = VmState::from_reg(vm.state) == Some(VmState::Running);
    match op {
        // The likeliest wish comes first: who starts a paused VM wants it to go on.
        op::VM_START if is_running && vm.paused => {
            format!("it runs already, and is paused; `gearctl resume {name}` lets it go on")
        }
        op::VM_START if is_running => {
            format!("it runs already; `gearctl restart {name}` begins it anew")
        }
        op::VM_STOP if VmState::from_reg(vm.state) == Some(VmState::Stopped) => {
            "it is stopped already".into()
        }
        op::VM_PAUSE if vm.real_time => format!(
            "it is real-time, with CPUs of its own on which Gear2 does not schedule it; it can be \
             stopped (`gearctl stop {name}`)"
        ),
        op::VM_RESUME if vm.real_time => "it is real-time, and never paused".into(),
        op::VM_PAUSE if vm.device_model => {
            "the device model and gearctl run in it, and nobody could resume it".into()
        }
        op::VM_RESUME if vm.device_model => {
            "the device model and gearctl run in it, so that it is never paused".into()
        }
        op::VM_PAUSE | op::VM_RESUME if !is_running => {
            format!("it does not run, it is {}", vm_row(vm).state_text())
        }
        op::VM_PAUSE if vm.paused => {
            format!("it is paused already; `gearctl resume {name}` lets it go on")
        }
        op::VM_RESUME if !vm.paused && !vm.suspended => "it is not paused".into(),
        _ => format!(
            "it was {} and has changed meanwhile; see `gearctl list`, and try again",
            vm_row(vm).state_text()
        ),
    }
}

#[cfg(test)]
mod tests;
