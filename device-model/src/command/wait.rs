//! `gearctl wait`, and the ends of changes that are waited for.

use std::thread::sleep;
use std::time::{Duration, Instant};

use gear2_protocol::op;

use super::answer::{State, VmReached, Wanted};
use super::vm_row;
use crate::client::{Client, Vm};
use crate::error::{Error, ErrorKind};

#[cfg(test)]
mod tests;

/// Between two looks.
const STEP: Duration = Duration::from_millis(50);

/// Waits until a VM is in a state.
pub(super) fn run(
    client: &mut Client,
    name: &str,
    state: Wanted,
    timeout: Option<Duration>,
) -> Result<VmReached, Error> {
    let vm = client.find(name)?;
    let begin = Instant::now();
    until(client, &vm, state, timeout, |vm| is(vm, state))?;
    let waited_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
    let vm = vm.name;
    Ok(VmReached {
        vm,
        state,
        waited_ms,
    })
}

/// Waits for the end of an operation. `before` is the VM as it was when it was asked for.
pub(super) fn for_end(
    client: &mut Client,
    op: u32,
    before: &Vm,
    timeout: Option<Duration>,
) -> Result<(), Error> {
    let wanted = match op {
        op::VM_STOP => Wanted::Stopped,
        _ => Wanted::Running,
    };
    // A VM that runs may not have been stopped yet.
    let is_new = |vm: &Vm| op != op::VM_RESTART || vm.restarts != before.restarts;
    until(client, before, wanted, timeout, |vm| {
        is(vm, wanted) && is_new(vm)
    })
}

/// Waits until a VM whose power button was pressed has ended: it has stopped, or its manifest has it
/// started again and it lives anew.
pub(super) fn for_shutdown(
    client: &mut Client,
    before: &Vm,
    timeout: Option<Duration>,
) -> Result<(), Error> {
    let wanted = Wanted::Stopped;
    until(client, before, wanted, timeout, |vm| {
        is(vm, wanted) || vm.restarts != before.restarts
    })
}

/// Waits until a VM is what it is wanted to be.
fn until(
    client: &mut Client,
    vm: &Vm,
    wanted: Wanted,
    timeout: Option<Duration>,
    ended: impl Fn(&Vm) -> bool,
) -> Result<(), Error> {
    let begin = Instant::now();
    loop {
        let now = client.vm(vm.id)?;
        if ended(&now) {
            return Ok(());
        }
        if timeout.is_some_and(|timeout| begin.elapsed() >= timeout) {
            return Err(too_late(&now, wanted, timeout));
        }
        sleep(STEP);
    }
}

/// Says what a VM is instead of what it is wanted to be.
fn too_late(vm: &Vm, wanted: Wanted, timeout: Option<Duration>) -> Error {
    let (name, state) = (&vm.name, vm_row(vm).state_text());
    let seconds = timeout.unwrap_or_default().as_secs_f64();
    let wanted = wanted.text();
    Error::new(
        ErrorKind::TimedOut,
        format!("VM {name} is {state} after {seconds} s, and was to be {wanted}"),
    )
}

impl Wanted {
    /// Returns the words for the state.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Suspended => "suspended",
            Self::Stopped => "stopped",
            Self::GivenUp => "given up",
            Self::FailedOver => "failed over",
        }
    }
}

/// Tells whether a VM is in a state.
fn is(vm: &Vm, wanted: Wanted) -> bool {
    let vm = vm_row(vm);
    let state = vm.state;
    match wanted {
        Wanted::Running => state == State::Running && !vm.paused,
        Wanted::Suspended => state == State::Running && vm.suspended,
        Wanted::Paused => state == State::Running && vm.paused,
        // A start that waits is a VM on its way up.
        Wanted::Stopped => state == State::Stopped && !vm.waits,
        Wanted::GivenUp => vm.given_up,
        Wanted::FailedOver => vm.failed_over,
    }
}
