//! Every state against every goal.

use alloc::vec;
use alloc::vec::Vec;

use gear1_abi::call::number;
use gear1_abi::id::VmId;
use gear1_abi::regs::Regs;

use super::*;
use crate::gear1::Conduit;
use crate::simulator::AT_ONCE;

/// A Gear1 with one VM in a state; notes the calls and refuses on demand.
struct OneVm {
    state: VmState,
    outcome: Status,
    starts: u64,
    calls: Vec<u16>,
}

impl Conduit for OneVm {
    fn svc<const NUMBER: u16>(&mut self, _: Regs) -> Regs {
        if NUMBER == number::VM_STATE {
            return [0, self.state as u64, 0, self.starts, 0, 0, 0, 0];
        }
        self.calls.push(NUMBER);
        [self.outcome as u64, 0, 0, 0, 0, 0, 0, 0]
    }
}

fn vm(restart: Restart, may_power_off: bool) -> VmConfig {
    VmConfig {
        share: crate::scheduler::Share::of(VmId::FIRST),
        id: VmId::new(0).unwrap(),
        name: "vm".into(),
        console: None,
        watchdog_device: None,
        has_pmu: false,
        rtc: None,
        may_power_off,
        dump: false,
        restart,
        restarts: AT_ONCE,
        safe_state: SafeState::Stop,
        tells: None,
        power_button: None,
        must_run: false,
        watchdog: 0,
        progress: 0,
        dma_fault_limit: 0,
        autostart: true,
        boot_order: 0,
        scheduled: true,
        affinity: gearv_manifest::CpuSet::first(1),
        virtio: None,
        vcpus: 0..1,
    }
}

fn step(state: VmState, goal: Goal, outcome: Status) -> (Step, Vec<u16>) {
    let mut gear1 = OneVm {
        state,
        outcome,
        starts: 0,
        calls: vec![],
    };
    let mut lifecycle = Lifecycle::default();
    lifecycle.ask(goal);
    let step = lifecycle.step(&vm(Restart::Never, false), &mut gear1);
    (step, gear1.calls)
}

#[test]
fn steps_are_those_of_the_table() {
    use Goal::{PowerOff, Restart, Run, Stop};
    use VmState::{Loaded, Loading, Running, Stopped, Stopping};
    use number::{VM_LOAD, VM_STOP};
    let table: &[(VmState, Goal, Step, &[u16])] = &[
        (Stopped, Run, Step::More, &[VM_LOAD]),
        (Stopped, Restart, Step::More, &[VM_LOAD]),
        (Stopped, Stop, Step::Stopped, &[]),
        (Loading, Run, Step::More, &[VM_LOAD]),
        (Loading, Restart, Step::More, &[VM_LOAD]),
        (Loading, Stop, Step::Stopped, &[]),
        (Loaded, Run, Step::Reset, &[]),
        (Loaded, Restart, Step::Reset, &[]),
        (Loaded, Stop, Step::Stopped, &[]),
        (Running, Run, Step::Done, &[]),
        (Running, Restart, Step::More, &[VM_STOP]),
        (Running, Stop, Step::Stopped, &[VM_STOP]),
        (Stopping, Run, Step::More, &[VM_STOP]),
        (Stopping, Restart, Step::More, &[VM_STOP]),
        (Stopping, Stop, Step::Stopped, &[VM_STOP]),
        (Running, PowerOff, Step::PowerOff, &[]),
        (Stopped, PowerOff, Step::PowerOff, &[]),
    ];
    for &(state, goal, expected, calls) in table {
        let done = step(state, goal, Status::Ok);
        assert_eq!(done, (expected, calls.to_vec()), "{state:?} {goal:?}");
    }
}

#[test]
fn busy_waits_and_other_refusals_end_it() {
    use VmState::{Running, Stopped};
    assert_eq!(step(Running, Goal::Stop, Status::Busy).0, Step::Wait);
    assert_eq!(step(Running, Goal::Restart, Status::Busy).0, Step::Wait);
    let refused = Step::Refused(Status::WrongState);
    assert_eq!(step(Running, Goal::Stop, Status::WrongState).0, refused);
    assert_eq!(step(Stopped, Goal::Run, Status::WrongState).0, refused);
}

#[test]
fn a_loaded_vm_starts_after_its_devices_were_reset() {
    let mut gear1 = OneVm {
        state: VmState::Loaded,
        starts: 0,
        outcome: Status::Ok,
        calls: vec![],
    };
    let mut lifecycle = Lifecycle::default();
    lifecycle.ask(Goal::Run);
    let vm = vm(Restart::Never, false);
    assert_eq!(lifecycle.step(&vm, &mut gear1), Step::Reset);
    assert_eq!(lifecycle.step(&vm, &mut gear1), Step::Started(0));
    assert_eq!(lifecycle.step(&vm, &mut gear1), Step::Done);
    assert_eq!(
        (gear1.calls, lifecycle.starts()),
        (vec![number::VM_START], 1)
    );
}

#[test]
fn the_later_wish_wins_unless_it_would_skip_a_stop() {
    let after = |first, second| {
        let mut lifecycle = Lifecycle::default();
        lifecycle.ask(first);
        lifecycle.ask(second);
        lifecycle.goal
    };
    assert_eq!(after(Goal::Stop, Goal::Run), Some(Goal::Restart));
    assert_eq!(after(Goal::Restart, Goal::Run), Some(Goal::Restart));
    assert_eq!(after(Goal::Restart, Goal::Stop), Some(Goal::Stop));
    assert_eq!(after(Goal::Run, Goal::Stop), Some(Goal::Stop));
    assert_eq!(after(Goal::PowerOff, Goal::Run), Some(Goal::PowerOff));
}

#[test]
fn what_somebody_asked_for_outlives_the_vms_own_end() {
    let mut lifecycle = Lifecycle::default();
    lifecycle.ask(Goal::Stop);
    lifecycle.ended(Goal::Restart);
    assert_eq!(lifecycle.goal, Some(Goal::Stop));
}

#[test]
fn ends_follow_the_manifest() {
    use Restart::{Always, Never, OnFailure};
    let after = |restart, power, end| goal_after(&vm(restart, power), end);
    let off = |restart, power| after(restart, power, Ended::Off);
    assert_eq!(off(Never, false), Some(Goal::Stop));
    assert_eq!(off(OnFailure, false), Some(Goal::Stop));
    assert_eq!(off(Always, false), Some(Goal::Restart));
    assert_eq!(off(Always, true), Some(Goal::PowerOff));
    assert_eq!(after(Never, true, Ended::Reset), Some(Goal::Restart));
    assert_eq!(after(Never, true, Ended::Fault), Some(Goal::Stop));
    assert_eq!(after(OnFailure, false, Ended::Fault), Some(Goal::Restart));
    assert_eq!(after(Always, false, Ended::Fault), Some(Goal::Restart));
    assert_eq!(after(Always, true, Ended::No), None);
    let real_time = VmConfig {
        scheduled: false,
        ..vm(Always, true)
    };
    assert_eq!(
        goal_after(&real_time, Ended::Off),
        None,
        "Gear1's to see to"
    );
}

#[test]
fn what_ran_before_is_loaded_when_nobody_uses_its_memory() {
    let mut gear1 = OneVm {
        state: VmState::Stopped,
        starts: 0,
        outcome: Status::Ok,
        calls: vec![],
    };
    let vm = vm(Restart::Never, false);
    let mut lifecycle = Lifecycle::resumed(None, Reported::up_to_start(1), false);
    lifecycle.ask(Goal::Run);
    assert_eq!(lifecycle.step(&vm, &mut gear1), Step::Quiesce);
    assert_eq!(lifecycle.step(&vm, &mut gear1), Step::Quiesce);
    lifecycle.set_quiet();
    assert_eq!(lifecycle.step(&vm, &mut gear1), Step::More);
    assert_eq!(gear1.calls, [number::VM_LOAD]);
}

#[test]
fn a_fault_is_kept_and_does_not_undo_what_somebody_asked_for() {
    let mut lifecycle = Lifecycle::default();
    assert_eq!((lifecycle.faults(), lifecycle.last_fault()), (0, None));
    let fault = Fault {
        esr: 0x8200_0007,
        ..Fault::default()
    };
    lifecycle.faulted(3, fault);
    lifecycle.ended(Goal::Restart);
    assert_eq!(lifecycle.goal, Some(Goal::Restart));
    lifecycle.ask(Goal::Stop);
    lifecycle.faulted(1, fault);
    lifecycle.ended(Goal::Restart);
    assert_eq!(lifecycle.goal, Some(Goal::Stop));
    assert_eq!(lifecycle.faults(), 2);
    assert_eq!(lifecycle.last_fault(), Some((1, fault)));
}

#[test]
fn starts_of_a_real_time_vm_are_what_gear1_says() {
    let mut lifecycle = Lifecycle::default();
    let mut gear1 = OneVm {
        state: VmState::Loaded,
        outcome: Status::Ok,
        starts: 4,
        calls: vec![],
    };
    let vm = VmConfig {
        scheduled: false,
        ..vm(Restart::OnFailure, false)
    };
    lifecycle.ask(Goal::Run);
    assert_eq!(lifecycle.step(&vm, &mut gear1), Step::Reset);
    assert_eq!(lifecycle.step(&vm, &mut gear1), Step::Started(0));
    assert_eq!(lifecycle.starts(), 5);
    assert_eq!(gear1.calls, [number::VM_START]);
    gear1.starts = 5;
    let history = gear1.vm_history(vm.id).unwrap();
    assert_eq!(lifecycle.news(&history), None, "this start was Gear2's");
}
