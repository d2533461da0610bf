//! `gearctl shutdown`: the power button of a VM.
//!
//! The button is a channel of the manifest that Gear2 rings (`power-button`) or, without one, a key
//! (KEY_POWER) of the VM's virtio input device. Stock kernels report both as the button of a
//! machine. The guest's system decides what follows: systemd's logind shuts down, a system without
//! a program that listens does nothing.

use super::answer::{Outcome, State, VmChanged};
use gear2_protocol::{op, outcome};

use super::{Wait, refusal, vm_row, wait};
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

/// Presses the power button that is a channel, or else that of the first input device that has one
/// which a driver listens to.
fn press(client: &mut Client, vm: &Vm) -> Result<(), Error> {
    match client.call(op::VM_POWER_BUTTON, &[vm.id])?.outcome {
        outcome::OK => return Ok(()),
        // A Gear2 that knows no buttons has none, either.
        outcome::NOT_FOUND | outcome::UNKNOWN => {}
        other => return Err(refusal::of(op::VM_POWER_BUTTON, vm, other)),
    }
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
    Err(not_pressed(vm, last))
}

/// Makes the error of a button that was not pressed: the refusal of the last device that has one,
/// or that there is none. Both name what always works, since the user wanted the VM to end.
fn not_pressed(vm: &Vm, refusal: Option<String>) -> Error {
    let name = &vm.name;
    let instead = format!("`gearctl stop {name}` stops it at once");
    match refusal {
        Some(reason) => refused(vm, ErrorKind::Refused, &format!("{reason}; {instead}")),
        None => {
            let reason = "it has no power button: its manifest gives it neither a virtio device \
                          of the type `input` nor a channel with `power-button`";
            refused(vm, ErrorKind::NotFound, &format!("{reason}; {instead}"))
        }
    }
}
