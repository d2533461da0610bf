//! The device VM's restarts and silence, and who uses the memory of a guest meanwhile.

use gear2_protocol::vm_flag;

use super::*;

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
