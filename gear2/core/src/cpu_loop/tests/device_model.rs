//! Loops with a device model: forwarded accesses, console rings, the control mailbox.

use alloc::string::ToString;

use gear1_abi::call::VcpuState;
use gear1_abi::event::Ended;
use gear1_abi::id::MAX_VMS;
use gear2_protocol::offset::OUTPUT_SIZE;
use gear2_protocol::{PROTOCOL_VERSION, op, outcome, vm_flag};

use super::*;
use crate::restarts::RestartPolicy;
use crate::simulator::{LOAD_PIECES, LOAD_TICKS, Options};

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

/// Returns a simulation with Gear2's own console beside the device model: the device VM can be
/// stopped.
fn machine_with_terminal(plans: &[Plan], seed: u64) -> Simulation {
    let mut plans = plans.to_vec();
    plans.insert(0, plan(Guest::Works, &[0, 1]));
    let options = Options {
        terminal: true,
        ..Options::default()
    };
    Simulation::with_options(2, &plans, seed, options)
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
    // The message comes once, however long the stop takes.
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

/// A machine whose guest 1 is to restart while the device model still uses its memory, 3 s later.
fn stalled() -> Simulation {
    let plans = [guest(2, Guest::Works, &[1]), guest(1, Guest::Works, &[0])];
    let mut simulation = machine(&plans, 47);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(5_000);
    simulation.world.borrow_mut().gdm.as_mut().unwrap().stalled = true;
    let begin = simulation.world.borrow().now;
    let done = simulation.control(op::VM_RESTART, [1, 0]).0;
    assert_eq!(done, outcome::STARTED);
    let lines = simulation.lines()[2];
    while simulation.world.borrow().now < begin + 3_000_000 {
        assert!(simulation.step());
    }
    assert_eq!(simulation.vm_states()[1], VmState::Stopped);
    assert!(simulation.lines()[2] > lines, "the others go on");
    simulation
}

#[test]
fn a_guest_waits_for_the_device_model_that_uses_its_memory() {
    let mut simulation = stalled();
    // The message comes once, and the state is shown.
    let waits = "guest1 waits: the device model in guest0 still uses its memory";
    let said = shown(&simulation, 1).1;
    assert_eq!(said, ["guest1 started", waits]);
    let flags = |simulation: &mut Simulation| simulation.control(op::VM_INFO, [1, 0]).1[4];
    assert_eq!(flags(&mut simulation), vm_flag::WAITS);
    simulation.world.borrow_mut().gdm.as_mut().unwrap().stalled = false;
    simulation.steps(5_000);
    assert_eq!(simulation.starts(), [1, 2, 1]);
    assert_eq!(
        shown(&simulation, 1).1,
        ["guest1 started", waits, "guest1 restarted"]
    );
    assert_eq!(flags(&mut simulation), 0);
}

#[test]
fn a_restart_of_the_device_vm_frees_the_memory_that_it_uses() {
    // The next device model comes, or does not.
    for dead in [false, true] {
        let mut simulation = stalled();
        simulation.control(op::VM_RESTART, [0, 0]);
        simulation.world.borrow_mut().gdm.as_mut().unwrap().dead = dead;
        simulation.steps(10_000);
        assert_eq!(simulation.starts(), [2, 2, 1]);
    }
}

#[test]
fn a_guest_that_waits_for_the_device_model_can_be_stopped() {
    let mut simulation = stalled();
    simulation.control(op::VM_STOP, [1, 0]);
    simulation.steps(3_000);
    assert_eq!(simulation.starts(), [1, 1, 1]);
    assert_eq!(shown(&simulation, 1).1.last().unwrap(), "guest1 stopped");
    assert_eq!(simulation.control(op::VM_INFO, [1, 0]).1[4], 0);
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
    let options = Options {
        watchdog: WATCHDOG,
        terminal: true,
        ..Options::default()
    };
    let mut simulation = Simulation::with_options(2, &plans, 43, options);
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
    // The watchdog allows a longer time for the first heartbeat.
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
    // A device VM that was stopped on purpose needs no heartbeat.
    silence(&simulation, true);
    simulation.control(op::VM_STOP, [0, 0]);
    simulation.steps(20_000);
    assert_eq!(simulation.vm_states()[0], VmState::Stopped);
}

#[test]
fn a_guest_is_restarted_while_the_device_vm_is_stopped() {
    // The simulated Gear1 checks that the next device model will know.
    let mut simulation = machine_with_terminal(&[guest(2, Guest::Works, &[1])], 41);
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

    /// Output of guests reaches the device model whole and in order, over its restarts.
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

/// A machine whose guest waits for a device model that shows no sign of life.
fn waits_at_boot(boot_order_timeout: u64) -> Simulation {
    let later = Plan {
        boot_order: 1,
        ..guest(1, Guest::Spins, &[1])
    };
    let options = Options {
        boot_order_timeout,
        ..Options::default()
    };
    Simulation::with_options(2, &[plan(Guest::Spins, &[0]), later], 5, options)
}

/// Lives on until this many microseconds have passed, and returns how many events there were.
fn live_for(simulation: &mut Simulation, time: u64) -> u32 {
    let end = simulation.world.borrow().now + time;
    let mut events = 0;
    while simulation.world.borrow().now < end && simulation.step() {
        events += 1;
    }
    events
}

#[test]
fn a_wait_at_boot_is_said_and_takes_no_time() {
    let mut simulation = waits_at_boot(0);
    let events = live_for(&mut simulation, 60_000_000);
    assert_eq!(simulation.vm_states(), [VmState::Running, VmState::Stopped]);
    assert!(events < 2_000, "{events}");
    let waits = "guest1 waits for the device model in guest0";
    assert_eq!(shown(&simulation, 1).1, [waits]);
    assert_eq!(simulation.control(op::VM_INFO, [1, 0]).1[4], vm_flag::WAITS);
    // Somebody who cannot wait any longer stops it, or has it served.
    simulation.world.borrow_mut().gdm.as_mut().unwrap().beats = Some((1000, 0));
    simulation.control(op::NONE, [0; 2]);
    live_for(&mut simulation, 1_000_000);
    assert_eq!(simulation.vm_states(), [VmState::Running; 2]);
    assert_eq!(simulation.control(op::VM_INFO, [1, 0]).1[4], 0);
}

#[test]
fn a_wait_at_boot_ends_in_time() {
    let mut simulation = waits_at_boot(30_000_000);
    live_for(&mut simulation, 29_000_000);
    assert_eq!(simulation.vm_states()[1], VmState::Stopped);
    live_for(&mut simulation, 2_000_000);
    assert_eq!(simulation.vm_states()[1], VmState::Running);
    let lines = [
        "guest1 waits for the device model in guest0",
        "guest1 starts without the device model in guest0",
        "guest1 started",
    ];
    assert_eq!(shown(&simulation, 1).1, lines);
}

/// A device VM, guests that it serves, and perhaps one that it does not.
fn way_back(restart: Restart, unserved: bool) -> Simulation {
    let device_vm = Plan {
        restart,
        ..plan(Guest::Works, &[0])
    };
    let mut plans = vec![device_vm, guest(2, Guest::Works, &[1])];
    plans.extend(unserved.then(|| plan(Guest::Works, &[1])));
    let mut simulation = Simulation::with_device_model(2, &plans, 61);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(3_000);
    simulation
}

/// Nobody could start the device VM again: it never stays stopped.
#[test]
fn the_device_vm_is_never_left_stopped() {
    use Restart::{Always, Never, OnFailure};
    let ends = [
        // Ends how, with which policy: is the machine powered off, if only served guests are left?
        (Ended::Off, Never, true),
        (Ended::Off, OnFailure, true),
        (Ended::Off, Always, false),
        (Ended::Fault, Never, true),
        (Ended::Fault, OnFailure, false),
        (Ended::Reset, Never, false),
    ];
    for (how, restart, powers_off) in ends {
        for unserved in [false, true] {
            let mut simulation = way_back(restart, unserved);
            simulation.end(0, how);
            simulation.steps(5_000);
            let off = simulation.world.borrow().powered_off;
            assert_eq!(
                off,
                powers_off && !unserved,
                "{how:?} {restart:?} {unserved}"
            );
            let starts = simulation.starts();
            assert_eq!(
                starts[0],
                if off { 1 } else { 2 },
                "{how:?} {restart:?} {unserved}"
            );
            assert!(starts[1..].iter().all(|starts| *starts == 1));
        }
    }
}

#[test]
fn a_forced_stop_of_the_device_vm_is_as_if_it_turned_itself_off() {
    for (unserved, starts) in [(false, 1), (true, 2)] {
        let mut simulation = way_back(Restart::Never, unserved);
        assert_eq!(simulation.control(op::VM_STOP, [0, 0]).0, outcome::NEEDED);
        simulation.steps(1_000);
        assert_eq!(simulation.starts()[0], 1);
        assert_eq!(simulation.vm_states()[0], VmState::Running);
        assert_eq!(simulation.control(op::VM_STOP, [0, 1]).0, outcome::STARTED);
        simulation.steps(5_000);
        assert_eq!(simulation.world.borrow().powered_off, !unserved);
        assert_eq!(simulation.starts()[0], starts);
    }
}

#[test]
fn a_device_vm_that_is_not_the_only_way_can_be_stopped() {
    let mut simulation = machine_with_terminal(&[guest(2, Guest::Works, &[1])], 67);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(3_000);
    simulation.end(0, Ended::Off);
    simulation.steps(3_000);
    assert_eq!(simulation.vm_states()[0], VmState::Stopped);
    assert!(!simulation.world.borrow().powered_off);
    simulation.type_keys(b"\x070\x07t");
    simulation.steps(3_000);
    assert_eq!(simulation.starts(), [2, 1]);
}

/// A machine whose guest 1 ends as soon as it can.
fn crash_loop(simulation: &mut Simulation) {
    for _ in 0..3 {
        let starts = simulation.starts()[1];
        simulation.end(1, Ended::Fault);
        while simulation.starts()[1] == starts {
            assert!(simulation.step());
        }
    }
    simulation.end(1, Ended::Reset);
    simulation.steps(3_000);
}

#[test]
fn a_guest_that_ends_again_and_again_is_given_up() {
    let limited = Plan {
        restarts: RestartPolicy {
            limit: 3,
            window: 60_000_000,
            backoff: 1_000_000,
        },
        ..guest(1, Guest::Works, &[1])
    };
    let mut simulation = machine(&[limited], 71);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(3_000);
    let begin = simulation.world.borrow().now;
    crash_loop(&mut simulation);
    let took = simulation.world.borrow().now - begin;
    assert!(took > 3_000_000, "pauses of 0, 1 and 2 s: {took}");
    let flags = |simulation: &mut Simulation| simulation.control(op::VM_INFO, [1, 0]).1[4];
    let given_up = |simulation: &mut Simulation| {
        assert_eq!(simulation.vm_states()[1], VmState::Stopped);
        assert_eq!(flags(simulation), vm_flag::GIVEN_UP);
    };
    given_up(&mut simulation);
    assert_eq!(simulation.starts(), [1, 4]);
    let said = shown(&simulation, 1).1;
    let last = [
        "guest1 resets itself",
        "guest1 is given up: it was restarted 3 times already",
    ];
    assert_eq!(said[said.len() - 2..], last, "{said:?}");
    assert!(
        said.contains(&"guest1 is started again in 2 s".into())
            || said.contains(&"guest1 is started again in 1 s".into())
    );
    // A Gear2 that is started anew knows it.
    simulation.restart(0);
    simulation.steps(3_000);
    given_up(&mut simulation);
    // A start by the user resets the count.
    assert_eq!(simulation.control(op::VM_START, [1, 0]).0, outcome::STARTED);
    simulation.steps(3_000);
    assert_eq!((simulation.starts()[1], flags(&mut simulation)), (5, 0));
    crash_loop(&mut simulation);
    given_up(&mut simulation);
    assert_eq!(simulation.starts(), [1, 8]);
}

#[test]
fn a_pause_before_a_restart_ends_when_somebody_asks() {
    let slow = Plan {
        restarts: RestartPolicy {
            limit: 0,
            window: 60_000_000,
            backoff: 50_000_000,
        },
        ..guest(1, Guest::Works, &[1])
    };
    let mut simulation = machine(&[slow], 73);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(3_000);
    for (op, state) in [
        (op::VM_START, VmState::Running),
        (op::VM_RESTART, VmState::Running),
        (op::VM_STOP, VmState::Stopped),
    ] {
        simulation.end(1, Ended::Reset);
        simulation.steps(3_000);
        simulation.end(1, Ended::Reset);
        simulation.steps(3_000);
        assert_eq!(simulation.vm_states()[1], VmState::Stopped);
        assert_eq!(simulation.control(op::VM_INFO, [1, 0]).1[4], vm_flag::WAITS);
        assert_eq!(simulation.control(op, [1, 0]).0, outcome::STARTED);
        simulation.steps(3_000);
        assert_eq!(simulation.vm_states()[1], state);
        assert_eq!(simulation.control(op::VM_INFO, [1, 0]).1[4], 0);
    }
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

#[test]
fn every_vm_has_a_console_that_the_device_model_serves() {
    let plans: Vec<_> = (1..MAX_VMS)
        .map(|vm| guest(u32::from(vm % 2 == 0), Guest::Works, &[vm % 2]))
        .collect();
    let mut simulation = machine(&plans, 83);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(20_000);
    assert_eq!(simulation.starts(), [1; MAX_VMS]);
    simulation.world.borrow_mut().gdm.as_mut().unwrap().to_type = vec![20; MAX_VMS];
    simulation.steps(60_000);
    assert_eq!(simulation.read(), [20; MAX_VMS]);
    for vm in 0..MAX_VMS {
        let (text, said) = shown(&simulation, vm);
        assert!(text.starts_with("0\n1\n2\n"), "{vm}: {text}");
        assert_eq!(said.last(), Some(&alloc::format!("guest{vm} started")));
    }
}
