//! `gearctl pause` and `gearctl resume`: a VM's vCPUs do not run, and its devices rest.

use std::thread::sleep;
use std::time::{Duration, Instant};

use gear2_protocol::{op, outcome};

use super::refusal;
use crate::client::{Client, Vm};
use crate::error::{Error, ErrorKind};

/// Requests that the devices have taken end within this time, unless a backend hangs.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks.
const STEP: Duration = Duration::from_millis(2);

/// Has Gear2 hold the vCPUs, and GDM the devices.
pub(super) fn begin(client: &mut Client, vm: &Vm) -> Result<(), Error> {
    ask(client, op::VM_PAUSE, vm)
}

/// Lets both go on.
pub(super) fn end(client: &mut Client, vm: &Vm) -> Result<(), Error> {
    ask(client, op::VM_RESUME, vm)
}

fn ask(client: &mut Client, op: u32, vm: &Vm) -> Result<(), Error> {
    match client.call(op, &[vm.id])?.outcome {
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
            return Err(never_quiet(vm));
        }
        sleep(STEP);
    }
}

/// Makes the error of a VM whose devices do not finish. The VM stays paused, which the user has to
/// know: only the user can say whether it is to go on.
fn never_quiet(vm: &Vm) -> Error {
    let (name, seconds) = (&vm.name, PATIENCE.as_secs());
    let what = format!(
        "VM {name} is paused, but requests of its devices are still under way after {seconds} s: a \
         backend does not finish them (`gearctl device list`); `gearctl resume {name}` lets it go \
         on"
    );
    Error::new(ErrorKind::TimedOut, what)
}
