//! The safe state of a VM that has failed and is not started again.

use gear1_abi::call::VmState;

use super::CpuLoop;
use super::jobs::{Progress, WAIT_PAUSE_US, vm_job};
use crate::config::{SafeState, VmConfig};
use crate::gear1::Gear1;
use crate::lifecycle::{Goal, Lifecycle, Why};
use crate::machine::Platform;

impl<P: Platform> CpuLoop<'_, P> {
    /// Says that a VM is given up, and brings its safe state about.
    pub(super) fn give_up(
        &mut self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        lifecycle: &mut Lifecycle,
        why: Why,
        now: u64,
    ) -> Progress {
        let (name, vm, limit) = (&config.name, Some(config.id), config.restarts.limit);
        match why {
            Why::TooOften => {
                let text =
                    format_args!("{name} is given up: it was restarted {limit} times already");
                self.say(vm, text);
            }
            Why::NoRestart => self.say(
                vm,
                format_args!("{name} is given up: it is not restarted after a failure"),
            ),
            // A Gear2 that goes on after a failure finds the VM given up, and has said so before.
            Why::Known => {}
        }
        match config.safe_state {
            SafeState::Stop => Progress::Done,
            SafeState::PowerOff => {
                // Kept before the work begins: a Gear2 that fails here finds the goal and powers
                // off.
                lifecycle.set_safe(Some(Goal::PowerOff));
                self.machine.keep(config.id, lifecycle);
                Progress::More
            }
            SafeState::FailOver(_) => self.fail_over(gear1, config, lifecycle, now),
        }
    }

    /// Starts the standby of a VM, once, wherever Gear2 fails meanwhile: first the fail-over is
    /// noted with the starts of the standby, then the standby gets its goal, and last the VM's own
    /// goal ends. A Gear2 that goes on in between asks for the start unless there was one since.
    ///
    /// A standby does not fail over itself, so nobody holds its lifecycle and waits for another.
    fn fail_over(
        &mut self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        lifecycle: &mut Lifecycle,
        now: u64,
    ) -> Progress {
        let machine = self.machine;
        let SafeState::FailOver(vm) = config.safe_state else {
            return Progress::Done;
        };
        let Some((standby, shared)) = machine.vm(vm) else {
            return Progress::Done;
        };
        // No wait: this CPU's guests would stand still for as long as another CPU works on the
        // standby.
        let Some(mut other) = shared.lifecycle.try_lock() else {
            return self.in_a_while(now, WAIT_PAUSE_US);
        };
        let starts = gear1.vm_history(vm).map_or(0, |history| history.starts);
        let is_due = lifecycle.begin_fail_over(starts);
        // Asked before the standby gets its goal: later, a start by this fail-over looks the same.
        let runs_already = is_due && gear1.vm_state(vm) == Ok(VmState::Running);
        machine.keep(config.id, lifecycle);
        // A start since the fail-over was noted is its own, of before a failure of Gear2. An
        // operator may have stopped the standby again, which a second start would undo.
        if is_due {
            other.ask(Goal::Run);
            machine.keep(vm, &other);
        }
        drop(other);
        lifecycle.set_safe(None);
        machine.keep(config.id, lifecycle);
        let (name, standby) = (&config.name, &standby.name);
        let how = if runs_already {
            "runs already"
        } else {
            "is started in its place"
        };
        self.say(
            Some(config.id),
            format_args!("{name} fails over: {standby} {how}"),
        );
        // This loop brings the standby to its goal: no order of an operator tells another loop.
        self.jobs |= vm_job(vm);
        Progress::More
    }
}
