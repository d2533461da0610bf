//! `gearctl shutdown`: the power button of a VM.
//!
//! The button is a key of the VM's virtio input device (KEY_POWER), which stock kernels report as
//! that of a machine. The guest's system decides what follows: systemd's logind shuts down, a system
//! without a program that listens does nothing.

use super::answer::{Outcome, State, VmChanged};
use super::{Wait, vm_row, wait};
use crate::board::DeviceKind;
use crate::client::{Client, Vm};
use crate::error::{Error, ErrorKind};
use crate::order::Order;

#[cfg(test)]
mod tests;

/// Presses the power button, and waits for the end of the VM's life if that is wished.
pub(super) fn run(client: &mut Client, name: &str, wait: &Wait) -> Result<VmChanged, Error> {
    let vm = client.find(name)?;
    if let Some(reason) = hindrance(&vm) {
        return Err(refused(&vm, ErrorKind::Refused, &reason));
    }
    press(client, &vm)?;
    let mut outcome = Outcome::Begun;
    if wait.wait {
        wait::for_shutdown(client, &vm, wait.timeout.map(|timeout| timeout.0))?;
        outcome = Outcome::Done;
    }
    let vm = vm.name;
    Ok(VmChanged { vm, outcome })
}

/// Says why a VM that is so cannot hear of a button.
fn hindrance(vm: &Vm) -> Option<String> {
    let name = &vm.name;
    let state = vm_row(vm);
    if vm.device_model {
        return Some("gearctl runs in it; `poweroff` at this prompt shuts it down".into());
    }
    if state.state != State::Running {
        return Some(format!("it does not run, it is {}", state.state_text()));
    }
    let why = [
        (vm.paused, "is paused"),
        (vm.suspended, "has suspended itself"),
    ];
    let why = why.into_iter().find(|(holds, _)| *holds);
    why.map(|(_, why)| {
        format!("it {why}, and hears of no button; `gearctl resume {name}` lets it go on")
    })
}

fn refused(vm: &Vm, kind: ErrorKind, reason: &str) -> Error {
    Error::new(kind, format!("VM {} is not shut down: {reason}", vm.name))
}

/// Presses the power button of the first device that has one which a driver listens to.
fn press(client: &mut Client, vm: &Vm) -> Result<(), Error> {
    let name = &vm.name;
    let instead = format!("`gearctl stop {name}` stops it at once");
    let mut last = None;
    for device in client.devices()? {
        if device.vm != vm.name || device.r#type != DeviceKind::Input.name() {
            continue;
        }
        match client.order(device.channel, Order::Power) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind == ErrorKind::Refused => {
                last = Some(format!("device {}: {error}", device.device));
            }
            Err(error) => return Err(error),
        }
    }
    Err(match last {
        Some(reason) => refused(vm, ErrorKind::Refused, &format!("{reason}; {instead}")),
        None => {
            let reason = "it has no power button: its manifest gives it no virtio device of the \
                          type `input`";
            refused(vm, ErrorKind::NotFound, &format!("{reason}; {instead}"))
        }
    })
}
