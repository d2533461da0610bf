//! `gearctl pause` and `gearctl resume`: a VM's vCPUs do not run, and its devices rest.

use std::thread::sleep;
use std::time::{Duration, Instant};

use gear2_protocol::{op, outcome};

use super::answer::State;
use super::{refusal, vm_row};
use crate::client::{Client, Vm};
use crate::error::{Error, ErrorKind};

/// Requests that the devices have taken end within this time, unless a backend hangs.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks.
const STEP: Duration = Duration::from_millis(2);

/// Has Gear2 hold the vCPUs, and GDM the devices. A VM that has stopped is refused, unless the
/// `devices` are enough.
pub(super) fn begin(client: &mut Client, vm: &Vm, devices: bool) -> Result<(), Error> {
    ask(client, op::VM_PAUSE, vm, devices)
}

/// Lets both go on.
pub(super) fn end(client: &mut Client, vm: &Vm, devices: bool) -> Result<(), Error> {
    ask(client, op::VM_RESUME, vm, devices)
}

fn ask(client: &mut Client, op: u32, vm: &Vm, devices: bool) -> Result<(), Error> {
    match client.call(op, &[vm.id, devices.into()])?.outcome {
        outcome::OK => Ok(()),
        other => Err(refusal::of(op, vm, other)),
    }
}

/// Waits until no request of the paused VM's devices is under way. Who resumes it meanwhile ends
/// the wait.
pub(super) fn until_quiet(client: &mut Client, vm: &Vm) -> Result<(), Error> {
    if !client.tells_quiet()? {
        return Ok(());
    }
    let begin = Instant::now();
    loop {
        let now = client.vm(vm.id)?;
        if now.quiet || !now.paused {
            return Ok(());
        }
        if begin.elapsed() >= PATIENCE {
            return Err(unquiet(vm));
        }
        sleep(STEP);
    }
}

/// Says that requests of devices do not end.
fn unquiet(vm: &Vm) -> Error {
    let name = &vm.name;
    let (state, way_out) = match vm_row(vm).state {
        State::Stopped => ("has stopped", String::new()),
        _ => (
            "is paused",
            format!("; `gearctl resume {name}` lets it go on"),
        ),
    };
    let sentence = format!(
        "VM {name} {state}, but requests of its devices are still under way after {} s: a backend \
         does not finish them (`gearctl device list`){way_out}",
        PATIENCE.as_secs()
    );
    Error::new(ErrorKind::TimedOut, sentence)
}
