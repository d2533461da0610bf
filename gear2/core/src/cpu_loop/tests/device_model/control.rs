//! The control mailbox: its reports on VMs, and its operations.

use core::sync::atomic::Ordering::Relaxed;

use gear1_abi::call::{VcpuState, vcpu_reg};
use gear2_protocol::device_word::HOLD_ASKED;
use gear2_protocol::{PROTOCOL_VERSION, vm_flag};

use super::*;
use crate::simulator::{LOAD_PIECES, LOAD_TICKS};

#[test]
fn control_describes_the_machine() {
    let mut simulation = machine(&[guest(1, Guest::Spins, &[1])], 9);
    simulation.steps(2_000);
    let (done, words) = simulation.control(op::VERSION, [0; 2]);
    assert_eq!(done, outcome::OK);
    let abi = u64::from(gear1_abi::ABI_VERSION);
    assert_eq!(
        [words[0], words[1], words[3]],
        [abi, PROTOCOL_VERSION.into(), 2]
    );
    let (done, words) = simulation.control(op::VM_INFO, [1, 0]);
    assert_eq!(done, outcome::OK);
    assert_eq!(words, [VmState::Running as u64, 1, 2, 0, 0, 0]);
    let (done, words) = simulation.control(op::VM_NAME, [1, 0]);
    assert_eq!(
        (done, words[0].to_le_bytes()),
        (outcome::OK, *b"guest1\0\0")
    );
    let (done, words) = simulation.control(op::EXIT_STATS, [2, 1]);
    assert_eq!((done, words[0], words[1]), (outcome::OK, 7, 8));
    let (done, words) = simulation.control(op::LOG_READ, [3, 0]);
    assert_eq!((done, words), (outcome::OK, [4, 5, 6, 7, 8, 9]));
}

#[test]
fn control_tells_what_a_vm_is() {
    let real_time = Plan {
        real_time: true,
        ..guest(0, Guest::Spins, &[1])
    };
    let mut simulation = machine(&[guest(0, Guest::Spins, &[1]), real_time], 9);
    simulation.steps(2_000);
    let flags = [0, 1, 2].map(|vm| simulation.control(op::VM_INFO, [vm, 0]).1[4]);
    let real_time = vm_flag::REAL_TIME | vm_flag::NO_CONSOLE;
    assert_eq!(flags, [vm_flag::DEVICE_MODEL, 0, real_time]);
    assert_eq!(
        simulation.control(op::VM_PAUSE, [2, 0]).0,
        outcome::WRONG_STATE
    );
}

#[test]
fn control_refuses_what_does_not_exist() {
    let mut simulation = machine(&[guest(1, Guest::Spins, &[1])], 9);
    simulation.steps(2_000);
    let refusals = [
        (op::VM_INFO, [2, 0], outcome::NOT_FOUND),
        (op::VM_NAME, [u64::MAX, 0], outcome::NOT_FOUND),
        (op::VM_STOP, [16, 0], outcome::NOT_FOUND),
        (op::VM_PAUSE, [0, 0], outcome::WRONG_STATE),
        (op::VM_STOP, [0, 0], outcome::NEEDED),
        (op::VM_START, [1, 0], outcome::WRONG_STATE),
        (op::VM_RESUME, [1, 0], outcome::WRONG_STATE),
        (op::VCPU_INFO, [3, 0], outcome::NOT_FOUND),
        (op::VCPU_INFO, [32, 0], outcome::NOT_FOUND),
        (op::EXIT_STATS, [0, 99], outcome::NOT_FOUND),
        (op::LOG_READ, [9, 0], outcome::NOT_FOUND),
        (99, [0, 0], outcome::UNKNOWN),
    ];
    for (op, arguments, expected) in refusals {
        let (outcome, words) = simulation.control(op, arguments);
        assert_eq!((outcome, words), (expected, [0; 6]), "{op} {arguments:?}");
    }
}

#[test]
fn control_stops_starts_and_restarts() {
    let mut simulation = machine(&[guest(2, Guest::Works, &[0, 1])], 21);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(3_000);
    let steps = [
        (op::VM_STOP, VmState::Stopped, 1),
        (op::VM_START, VmState::Running, 2),
        (op::VM_RESTART, VmState::Running, 3),
    ];
    for (op, state, starts) in steps {
        assert_eq!(simulation.control(op, [1, 0]).0, outcome::STARTED);
        simulation.steps(3_000);
        assert_eq!(
            (simulation.vm_states()[1], simulation.starts()[1]),
            (state, starts)
        );
    }
    assert_eq!(simulation.control(op::VM_STOP, [1, 0]).0, outcome::STARTED);
    simulation.steps(3_000);
    assert_eq!(
        simulation.control(op::VM_STOP, [1, 0]).0,
        outcome::WRONG_STATE
    );
    assert_eq!(
        simulation.control(op::VM_PAUSE, [1, 0]).0,
        outcome::WRONG_STATE
    );
    let said = shown(&simulation, 1).1;
    let expected = ["started", "stopped", "restarted", "restarted", "stopped"];
    assert_eq!(said, expected.map(|what| alloc::format!("guest1 {what}")));
}

/// A button that is pressed while nobody can hear it is refused, and rings nothing.
#[test]
fn control_presses_a_power_button() {
    let with_button = Plan {
        power_button: Some(1),
        ..guest(1, Guest::Works, &[1])
    };
    let mut simulation = machine(&[with_button, guest(0, Guest::Spins, &[1])], 9);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(3_000);
    let press = |simulation: &mut Simulation, vm: u64, expected: u32, rings: u32| {
        let (outcome, words) = simulation.control(op::VM_POWER_BUTTON, [vm, 0]);
        assert_eq!((outcome, words), (expected, [0; 6]));
        assert_eq!(simulation.world.borrow().rings, [0, rings]);
    };
    press(&mut simulation, 1, outcome::OK, 1);
    press(&mut simulation, 2, outcome::NOT_FOUND, 1);
    assert_eq!(simulation.control(op::VM_PAUSE, [1, 0]).0, outcome::OK);
    press(&mut simulation, 1, outcome::WRONG_STATE, 1);
    assert_eq!(simulation.control(op::VM_RESUME, [1, 0]).0, outcome::OK);
    press(&mut simulation, 1, outcome::OK, 2);
    assert_eq!(simulation.control(op::VM_STOP, [1, 0]).0, outcome::STARTED);
    simulation.steps(3_000);
    press(&mut simulation, 1, outcome::WRONG_STATE, 2);
}

#[test]
fn a_paused_vm_does_not_run_until_it_is_resumed() {
    let mut simulation = machine(
        &[
            guest(1, Guest::Works, &[0, 1]),
            guest(0, Guest::Spins, &[1]),
        ],
        5,
    );
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(5_000);
    simulation.world.borrow_mut().paused = 1 << 1;
    assert_eq!(simulation.control(op::VM_PAUSE, [1, 0]).0, outcome::OK);
    assert_eq!(simulation.control(op::VM_INFO, [1, 0]).1[4], 2);
    simulation.steps(100);
    let before = simulation.used();
    simulation.steps(5_000);
    let after = simulation.used();
    assert_eq!(before[2..4], after[2..4]);
    assert!(before[0] < after[0] && before[4] < after[4]);
    assert_eq!(
        simulation.control(op::VM_PAUSE, [1, 0]).0,
        outcome::WRONG_STATE
    );
    assert_eq!(simulation.control(op::VM_RESUME, [1, 0]).0, outcome::OK);
    simulation.world.borrow_mut().paused = 0;
    simulation.steps(5_000);
    assert!(after[2] < simulation.used()[2]);
    // A paused VM can be stopped, and is not paused when it is started again.
    simulation.world.borrow_mut().paused = 1 << 1;
    assert_eq!(simulation.control(op::VM_PAUSE, [1, 0]).0, outcome::OK);
    assert_eq!(
        simulation.control(op::VM_RESTART, [1, 0]).0,
        outcome::STARTED
    );
    simulation.steps(1_000);
    simulation.world.borrow_mut().paused = 0;
    simulation.steps(5_000);
    assert_eq!(simulation.control(op::VM_INFO, [1, 0]).1[3..5], [1, 0]);
}

/// The devices of a paused VM rest, and nobody asks them twice.
#[test]
fn devices_of_a_paused_vm_are_held() {
    let plans = [guest(2, Guest::Works, &[0]), guest(1, Guest::Works, &[0])];
    let mut simulation = machine(&plans, 5);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(2_000);
    let held = |simulation: &Simulation| {
        let devices = &simulation
            .world
            .borrow()
            .gdm
            .as_ref()
            .unwrap()
            .region
            .devices;
        [0, 1, 2].map(|device: usize| devices[device][HOLD_ASKED].load(Relaxed))
    };
    let info = |simulation: &mut Simulation| simulation.control(op::VM_INFO, [1, 0]).1[4];
    assert_eq!(info(&mut simulation) & vm_flag::QUIET, 0);
    simulation.world.borrow_mut().gdm.as_mut().unwrap().stalled = true;
    simulation.world.borrow_mut().paused = 1 << 1;
    assert_eq!(simulation.control(op::VM_PAUSE, [1, 0]).0, outcome::OK);
    simulation.steps(2_000);
    assert_eq!(held(&simulation), [1, 1, 0]);
    let flags = info(&mut simulation);
    assert_eq!(flags & (vm_flag::PAUSED | vm_flag::QUIET), vm_flag::PAUSED);
    simulation.world.borrow_mut().gdm.as_mut().unwrap().stalled = false;
    simulation.steps(2_000);
    assert_ne!(info(&mut simulation) & vm_flag::QUIET, 0);
    // A refusal asks for nothing.
    let again = simulation.control(op::VM_PAUSE, [1, 0]).0;
    assert_eq!(
        (again, held(&simulation)),
        (outcome::WRONG_STATE, [1, 1, 0])
    );
    assert_eq!(simulation.control(op::VM_RESUME, [1, 0]).0, outcome::OK);
    simulation.world.borrow_mut().paused = 0;
    assert_eq!(held(&simulation), [2, 2, 0]);
    // Another life is not held.
    simulation.world.borrow_mut().paused = 1 << 1;
    assert_eq!(simulation.control(op::VM_PAUSE, [1, 0]).0, outcome::OK);
    let begun = simulation.control(op::VM_RESTART, [1, 0]).0;
    assert_eq!((begun, held(&simulation)), (outcome::STARTED, [3, 3, 0]));
    simulation.steps(1_000);
    simulation.world.borrow_mut().paused = 0;
    simulation.steps(5_000);
    assert_eq!(held(&simulation), [4, 4, 0]);
}

/// A VM that has suspended itself is shown so, and woken by a resume.
#[test]
fn a_vm_that_suspended_itself_is_woken() {
    let mut simulation = machine(&[guest(1, Guest::Works, &[0])], 5);
    simulation.world.borrow_mut().disorder = false;
    let flags = |simulation: &mut Simulation| simulation.control(op::VM_INFO, [1, 0]).1[4];
    let vcpu = 2;
    let mut shows = false;
    for _ in 0..10_000 {
        simulation.steps(1);
        let waits = simulation.vcpu_state(vcpu) == VcpuState::Wfi;
        if !waits {
            continue;
        }
        assert_eq!(flags(&mut simulation) & vm_flag::SUSPENDED, 0);
        // One that waits for an interrupt alone is not woken.
        let refused = simulation.control(op::VM_RESUME, [1, 0]).0;
        assert_eq!(refused, outcome::WRONG_STATE);
        if simulation.vcpu_state(vcpu) != VcpuState::Wfi {
            continue;
        }
        simulation.world.borrow_mut().powered_down = Some(vcpu);
        if flags(&mut simulation) & vm_flag::SUSPENDED != 0 {
            shows = true;
            break;
        }
        simulation.world.borrow_mut().powered_down = None;
    }
    assert!(shows, "no vCPU ever waited");
    assert_eq!(simulation.control(op::VM_RESUME, [1, 0]).0, outcome::OK);
    assert_eq!(flags(&mut simulation) & vm_flag::SUSPENDED, 0);
    let before = simulation.used()[vcpu];
    simulation.steps(5_000);
    assert!(simulation.used()[vcpu] > before);
}

/// The devices of a VM that has stopped rest if somebody asks for that alone, until its next start.
#[test]
fn devices_of_a_stopped_vm_are_held() {
    let plans = [guest(2, Guest::Works, &[0]), guest(1, Guest::Works, &[0])];
    let mut simulation = machine(&plans, 5);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(2_000);
    assert_eq!(simulation.control(op::VM_STOP, [1, 0]).0, outcome::STARTED);
    simulation.steps(2_000);
    let info = |simulation: &mut Simulation| simulation.control(op::VM_INFO, [1, 0]).1;
    assert_eq!(info(&mut simulation)[0], VmState::Stopped as u64);
    let refused = simulation.control(op::VM_PAUSE, [1, 0]).0;
    assert_eq!(refused, outcome::WRONG_STATE);
    simulation.world.borrow_mut().gdm.as_mut().unwrap().stalled = true;
    assert_eq!(simulation.control(op::VM_PAUSE, [1, 1]).0, outcome::OK);
    simulation.steps(2_000);
    let both = vm_flag::PAUSED | vm_flag::QUIET;
    assert_eq!(info(&mut simulation)[4] & both, vm_flag::PAUSED);
    simulation.world.borrow_mut().gdm.as_mut().unwrap().stalled = false;
    simulation.steps(2_000);
    assert_eq!(info(&mut simulation)[4] & both, both);
    assert_eq!(simulation.control(op::VM_RESUME, [1, 1]).0, outcome::OK);
    assert_eq!(info(&mut simulation)[4] & both, 0);
    // Nobody resumes the VM of a gearctl that was killed.
    assert_eq!(simulation.control(op::VM_PAUSE, [1, 1]).0, outcome::OK);
    assert_eq!(simulation.control(op::VM_START, [1, 0]).0, outcome::STARTED);
    simulation.steps(5_000);
    assert_eq!(info(&mut simulation)[0], VmState::Running as u64);
    assert_eq!(info(&mut simulation)[4] & both, 0);
}

/// Registers are told of a VM that is paused or stopped, and whose manifest says so.
#[test]
fn registers_of_a_paused_vm_are_told() {
    let dump = |dump, cpus: &[usize]| Plan {
        dump,
        ..guest(1, Guest::Works, cpus)
    };
    let mut simulation = machine(&[dump(true, &[0, 1]), dump(false, &[0])], 5);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(2_000);
    assert_ne!(
        simulation.control(op::VM_INFO, [1, 0]).1[4] & vm_flag::DUMP,
        0
    );
    assert_eq!(
        simulation.control(op::VM_INFO, [2, 0]).1[4] & vm_flag::DUMP,
        0
    );
    let ask = |simulation: &mut Simulation, vm, vcpu| {
        let answer = simulation.control(op::VCPU_REGISTERS, [vm, vcpu]);
        simulation.steps(1_000);
        answer
    };
    assert_eq!(ask(&mut simulation, 1, 0).0, outcome::WRONG_STATE);
    assert_eq!(ask(&mut simulation, 2, 0).0, outcome::FORBIDDEN);
    for vm in [1, 2] {
        simulation.world.borrow_mut().paused |= 1 << vm;
        assert_eq!(simulation.control(op::VM_PAUSE, [vm, 0]).0, outcome::OK);
        simulation.steps(1_000);
    }
    for vcpu in [0, 1] {
        let mut answers = (0..10).map(|_| ask(&mut simulation, 1, vcpu));
        // The other CPU may have them still, and lets go of them.
        let (_, words) = answers.find(|answer| answer.0 != outcome::BUSY).unwrap();
        assert_eq!(words, [0, 1, 2, 3, 4, 5].map(|n| 1_000 * (vcpu + 3) + n));
    }
    let from = |simulation: &mut Simulation, first: usize| {
        simulation.control_with(op::VCPU_REGISTERS, [1, 0, first as u64, 0])
    };
    let behind = vcpu_reg::FP + vcpu_reg::FP_COUNT;
    for first in [vcpu_reg::FP, behind - 6] {
        let words = [0, 1, 2, 3, 4, 5].map(|n| 3_000 + first as u64 + n);
        assert_eq!(from(&mut simulation, first), (outcome::OK, words));
    }
    assert_eq!(from(&mut simulation, behind).0, outcome::NOT_FOUND);
    assert_eq!(ask(&mut simulation, 1, 2).0, outcome::NOT_FOUND);
    assert_eq!(ask(&mut simulation, 2, 0).0, outcome::FORBIDDEN);
    assert_eq!(ask(&mut simulation, 0, 0).0, outcome::FORBIDDEN);
}

#[test]
fn run_time_is_accounted() {
    let mut simulation = machine(
        &[guest(0, Guest::Spins, &[1]), guest(1, Guest::Works, &[1])],
        17,
    );
    simulation.steps(20_000);
    let used = simulation.used();
    for (vcpu, &used) in used.iter().enumerate() {
        let (done, words) = simulation.control(op::VCPU_INFO, [vcpu as u64, 0]);
        assert_eq!(done, outcome::OK);
        // The way to Gear2 counts too.
        assert!(words[0] >= used, "{vcpu}: {} of {used}", words[0]);
        assert!(
            words[0] < used + used / 2 + 20_000,
            "{vcpu}: {} of {used}",
            words[0]
        );
        assert!(VcpuState::from_reg(words[2]).is_some());
        // Waited with the wait that lasts, stolen, preempted: as Gear1 has them.
        let vcpu = vcpu as u64;
        assert_eq!(words[3..], [200 + vcpu, 100 + vcpu, 300 + vcpu]);
    }
    assert_eq!(simulation.control(op::VCPU_INFO, [2, 0]).1[1], 1);
}

#[test]
fn loading_is_a_vms_own_time() {
    let mut simulation = machine(&[guest(1, Guest::Works, &[1])], 79);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(3_000);
    simulation.control(op::VM_STOP, [1, 0]);
    simulation.steps(1_000);
    let time = |simulation: &mut Simulation| simulation.control(op::VCPU_INFO, [2, 0]).1[0];
    let before = (time(&mut simulation), simulation.used()[2]);
    simulation.control(op::VM_START, [1, 0]);
    while simulation.starts()[1] != 2 {
        assert!(simulation.step());
    }
    let ran = simulation.used()[2] - before.1;
    let loading = time(&mut simulation) - before.0 - ran;
    assert!(loading >= LOAD_PIECES * LOAD_TICKS, "{loading}");
}
