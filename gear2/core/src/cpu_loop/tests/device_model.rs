//! Loops with a device model: forwarded accesses, console rings, the control mailbox.

use alloc::string::ToString;

use gear1_abi::call::VcpuState;
use gear2_protocol::offset::OUTPUT_SIZE;
use gear2_protocol::{PROTOCOL_VERSION, op, outcome};

use super::*;

fn guest(devices: u32, guest: Guest, cpus: &[usize]) -> Plan {
    Plan {
        devices,
        ..plan(guest, cpus)
    }
}

fn machine(plans: &[Plan], seed: u64) -> Simulation {
    let mut plans = plans.to_vec();
    plans.insert(0, plan(Guest::Works, &[0, 1]));
    Simulation::with_device_model(2, &plans, seed)
}

fn forwarded(simulation: &mut Simulation) -> u64 {
    let (done, words) = simulation.control(op::VERSION, [0; 2]);
    assert_eq!(done, outcome::OK);
    words[4]
}

/// Returns what the console of a VM showed, without Gear2's own lines, and those.
fn shown(simulation: &Simulation, vm: usize) -> (String, Vec<String>) {
    let world = simulation.world.borrow();
    let text = String::from_utf8(world.gdm.as_ref().unwrap().shown[vm].clone()).unwrap();
    let mut pieces = text.split("gear2: ");
    let mut guest = String::from(pieces.next().unwrap());
    let mut said = vec![];
    for piece in pieces {
        let (line, rest) = piece.split_once("\r\n").unwrap();
        said.push(line.into());
        guest += rest;
    }
    (guest, said)
}

#[test]
fn accesses_reach_the_device_model_and_are_answered() {
    let plans = [
        guest(3, Guest::Works, &[0, 1]),
        guest(2, Guest::Works, &[1]),
    ];
    let mut simulation = machine(&plans, 3);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(20_000);
    let count = simulation.world.borrow().forwarded;
    assert!(count > 300, "{count}");
    assert!(forwarded(&mut simulation) >= count);
    let (restarts, text) = (simulation.starts(), shown(&simulation, 1));
    assert_eq!(
        (restarts, text.1),
        (vec![1; 3], vec!["guest1 started".to_string()])
    );
}

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
fn control_refuses_what_does_not_exist() {
    let mut simulation = machine(&[guest(1, Guest::Spins, &[1])], 9);
    simulation.steps(2_000);
    let refusals = [
        (op::VM_INFO, [2, 0], outcome::NOT_FOUND),
        (op::VM_NAME, [u64::MAX, 0], outcome::NOT_FOUND),
        (op::VM_STOP, [16, 0], outcome::NOT_FOUND),
        (op::VM_PAUSE, [0, 0], outcome::WRONG_STATE),
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

#[test]
fn a_restart_of_the_device_vm_disturbs_nobody() {
    let plans = [guest(2, Guest::Works, &[0]), guest(0, Guest::Spins, &[1])];
    let mut simulation = machine(&plans, 31);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(5_000);
    for round in 1..4 {
        let before = simulation.used();
        assert_eq!(
            simulation.control(op::VM_RESTART, [0, 0]).0,
            outcome::STARTED
        );
        simulation.steps(5_000);
        assert_eq!(simulation.starts(), [1 + round, 1, 1]);
        let after = simulation.used();
        assert!(before[3] < after[3], "who uses no device goes on");
    }
    simulation.world.borrow_mut().frozen = true;
    simulation.steps(2_000);
    assert_eq!(simulation.unanswered(), 0);
}

#[test]
fn a_bus_master_that_does_not_stop_holds_nobody_else_up() {
    let plans = [guest(2, Guest::Works, &[0]), guest(0, Guest::Works, &[1])];
    let mut simulation = machine(&plans, 37);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(5_000);
    simulation.world.borrow_mut().masters_stuck = true;
    simulation.control(op::VM_RESTART, [0, 0]);
    let before = (simulation.used(), simulation.lines());
    simulation.steps(60_000);
    assert_eq!(simulation.vm_states()[0], VmState::Stopping);
    assert!(before.0[3] < simulation.used()[3] && before.1[2] < simulation.lines()[2]);
    // It is said once, however long it takes.
    simulation.world.borrow_mut().masters_stuck = false;
    simulation.steps(10_000);
    let said = shown(&simulation, 0).1;
    let stuck = "guest0 does not stop: a vCPU or a bus master of its is at work";
    assert_eq!(
        said.iter().filter(|line| *line == stuck).count(),
        1,
        "{said:?}"
    );
    assert_eq!(said.last().unwrap(), "guest0 restarted");
    assert_eq!(simulation.vm_states()[0], VmState::Running);
}

#[test]
fn a_device_model_without_a_sign_of_life_has_its_vm_restarted() {
    const WATCHDOG: u64 = 10_000;
    let always = |plan| Plan {
        restart: Restart::Always,
        ..plan
    };
    let plans = [
        always(plan(Guest::Works, &[0, 1])),
        guest(2, Guest::Works, &[1]),
    ];
    let mut simulation = Simulation::watched(2, &plans, 43, WATCHDOG);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(20_000);
    let now = simulation.world.borrow().now;
    assert!(now > 10 * WATCHDOG, "{now}");
    assert_eq!(simulation.starts(), [1, 1], "as long as it lives");
    let restarted = |simulation: &mut Simulation, starts: u64| {
        let begin = simulation.world.borrow().now;
        while simulation.starts()[0] != starts {
            assert!(simulation.step());
        }
        simulation.world.borrow().now - begin
    };
    let silence = |simulation: &Simulation, silent: bool| {
        let beats = if silent {
            None
        } else {
            Some((WATCHDOG / 2, 0))
        };
        simulation.world.borrow_mut().gdm.as_mut().unwrap().beats = beats;
    };
    // A Gear2 that is started anew watches as well.
    simulation.restart(0);
    simulation.steps(20_000);
    silence(&simulation, true);
    let first = restarted(&mut simulation, 2);
    assert!((WATCHDOG / 2..2 * WATCHDOG).contains(&first), "{first}");
    // It has longer for its first sign.
    let second = restarted(&mut simulation, 3);
    assert!((4 * WATCHDOG..6 * WATCHDOG).contains(&second), "{second}");
    silence(&simulation, false);
    simulation.steps(20_000);
    assert_eq!(simulation.starts(), [3, 1]);
    let said = shown(&simulation, 0).1;
    let gone = "guest0: the device model shows no sign of life";
    assert_eq!(
        said.iter().filter(|line| *line == gone).count(),
        2,
        "{said:?}"
    );
    // One that is stopped on purpose is not expected to.
    silence(&simulation, true);
    simulation.control(op::VM_STOP, [0, 0]);
    simulation.steps(20_000);
    assert_eq!(simulation.vm_states()[0], VmState::Stopped);
}

#[test]
fn a_guest_is_restarted_while_the_device_vm_is_stopped() {
    // The simulated Gear1 checks that the next device model will know.
    let mut simulation = machine(&[guest(2, Guest::Works, &[1])], 41);
    simulation.steps(2_000);
    assert_eq!(simulation.control(op::VM_STOP, [0, 0]).0, outcome::STARTED);
    while simulation.vm_states()[0] != VmState::Stopped {
        assert!(simulation.step());
    }
    for start in 2..5 {
        assert_eq!(
            simulation.control(op::VM_RESTART, [1, 0]).0,
            outcome::STARTED
        );
        simulation.steps(3_000);
        assert_eq!(simulation.starts(), [1, start]);
    }
    assert_eq!(simulation.control(op::VM_START, [0, 0]).0, outcome::STARTED);
    simulation.steps(3_000);
    simulation.world.borrow_mut().frozen = true;
    simulation.steps(1_000);
    assert_eq!(simulation.unanswered(), 0);
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
    assert_eq!(simulation.control(op::VM_PAUSE, [1, 0]).0, outcome::OK);
    simulation.world.borrow_mut().paused = 1 << 1;
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
    simulation.world.borrow_mut().paused = 0;
    assert_eq!(simulation.control(op::VM_RESUME, [1, 0]).0, outcome::OK);
    simulation.steps(5_000);
    assert!(after[2] < simulation.used()[2]);
    // A paused VM can be stopped, and is not paused when it is started again.
    assert_eq!(simulation.control(op::VM_PAUSE, [1, 0]).0, outcome::OK);
    simulation.world.borrow_mut().paused = 1 << 1;
    assert_eq!(
        simulation.control(op::VM_RESTART, [1, 0]).0,
        outcome::STARTED
    );
    simulation.steps(1_000);
    simulation.world.borrow_mut().paused = 0;
    simulation.steps(5_000);
    assert_eq!(simulation.control(op::VM_INFO, [1, 0]).1[3..5], [1, 0]);
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
    }
    assert_eq!(simulation.control(op::VCPU_INFO, [2, 0]).1[1], 1);
}

#[test]
fn what_is_typed_arrives_whole_and_in_order() {
    // The simulated guest knows which byte comes next. More is typed than the ring holds.
    let mut simulation = machine(&[guest(1, Guest::Works, &[1])], 23);
    simulation.steps(2_000);
    simulation.world.borrow_mut().gdm.as_mut().unwrap().to_type[1] = 6_000;
    simulation.steps(120_000);
    assert_eq!(simulation.read()[1], 6_000);
}

#[test]
fn a_console_keeps_the_newest_output() {
    let mut simulation = machine(&[guest(0, Guest::Works, &[1])], 23);
    simulation.world.borrow_mut().gdm.as_mut().unwrap().deaf = true;
    while simulation.lines()[1] < 15_000 {
        assert!(simulation.step());
    }
    simulation.world.borrow_mut().frozen = true;
    simulation.world.borrow_mut().gdm.as_mut().unwrap().deaf = false;
    simulation.control(op::NONE, [0; 2]);
    simulation.steps(500);
    let lines = simulation.lines()[1];
    let all: String = (0..lines).map(|line| alloc::format!("{line}\n")).collect();
    let world = simulation.world.borrow();
    let shown = &world.gdm.as_ref().unwrap().shown[1];
    assert_eq!(shown.len(), OUTPUT_SIZE);
    let shown = core::str::from_utf8(shown).unwrap();
    let end = shown.rfind('\n').unwrap() + 1;
    assert!(all.ends_with(&shown[..end]));
    assert!(lines.to_string().starts_with(&shown[end..]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// GDM dies in the middle of requests, guests and the device VM restart, VMs are stopped and
    /// started by the mailbox: each access is answered once, by its own answer, and none is lost.
    #[test]
    fn accesses_are_answered_once_whatever_dies(
        seed in any::<u64>(),
        device_vm in prop_oneof![Just(Guest::Works), Just(Guest::WorksAndEnds)],
        guests in proptest::collection::vec(
            (1..4_u32, proptest::collection::vec(0..2_usize, 1..4)), 1..4),
        ops in proptest::collection::vec((op::VM_START..=op::VM_RESTART, 0..5_u64), 12),
    ) {
        let mut plans = vec![Plan { restart: Restart::Always, ..plan(device_vm, &[0, 1]) }];
        plans.extend(guests.iter().map(|(devices, cpus)| Plan {
            restart: Restart::Always,
            ..guest(*devices, Guest::WorksAndEnds, cpus)
        }));
        let mut simulation = Simulation::with_device_model(2, &plans, seed);
        for (op, vm) in ops {
            simulation.steps(2_000);
            let vm = vm % plans.len() as u64;
            simulation.control(if vm == 0 { op::VM_RESTART } else { op }, [vm, 0]);
        }
        simulation.world.borrow_mut().disorder = false;
        for vm in 0..plans.len() as u64 {
            simulation.steps(2_000);
            simulation.control(op::VM_START, [vm, 0]);
        }
        simulation.steps(5_000);
        prop_assert_eq!(simulation.vm_states(), vec![VmState::Running; plans.len()]);
        simulation.world.borrow_mut().frozen = true;
        simulation.steps(5_000);
        prop_assert_eq!(simulation.unanswered(), 0);
        let count = simulation.world.borrow().forwarded;
        prop_assert_eq!(forwarded(&mut simulation), count);
    }

    /// What guests send reaches the device model whole and in order, over its restarts.
    #[test]
    fn output_arrives_whole(seed in any::<u64>(), cpus in proptest::collection::vec(0..2_usize, 1..4)) {
        let mut simulation = machine(&[guest(1, Guest::WorksAndEnds, &cpus), guest(2, Guest::Works, &[0])], seed);
        simulation.steps(20_000);
        simulation.world.borrow_mut().disorder = false;
        simulation.world.borrow_mut().frozen = true;
        simulation.steps(5_000);
        for vm in 1..3 {
            let lines = simulation.lines()[vm];
            let expected: String = (0..lines).map(|line| alloc::format!("{line}\n")).collect();
            let text = shown(&simulation, vm).0;
            let (whole, begun) = text.split_at(text.rfind('\n').map_or(0, |end| end + 1));
            prop_assert_eq!(whole, expected);
            prop_assert!(lines.to_string().starts_with(begun));
        }
    }
}

#[test]
fn a_later_vm_waits_for_the_device_model() {
    let later = Plan {
        boot_order: 1,
        ..guest(1, Guest::Works, &[1])
    };
    let mut simulation = machine(&[later], 5);
    simulation.steps(3000);
    assert_eq!(
        simulation.vm_states(),
        [VmState::Running, VmState::Stopped],
        "no sign of life yet"
    );
    let now = simulation.world.borrow().now;
    simulation.world.borrow_mut().gdm.as_mut().unwrap().beats = Some((1000, now + 1000));
    simulation.steps(3000);
    assert_eq!(simulation.vm_states(), [VmState::Running; 2]);
}
