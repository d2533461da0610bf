//! Gear2 fails anywhere in its work on an event, and the next instance continues.

use gear1_abi::call::VcpuState;

use super::*;

fn guest(devices: u32, guest: Guest, cpus: &[usize]) -> Plan {
    Plan {
        devices,
        ..plan(guest, cpus)
    }
}

/// Fails `times` times, each within the next calls, and lives on in between.
fn fail(simulation: &mut Simulation, times: u64, calls: impl Fn(u64) -> u64) {
    for time in 0..times {
        let (before, _) = simulation.restarts();
        simulation.fail_in(calls(time));
        while simulation.restarts().0 == before {
            assert!(simulation.step(), "nothing happens");
        }
        simulation.steps(300);
    }
}

#[test]
fn vms_go_on_where_they_were() {
    let plans = [plan(Guest::Works, &[0, 1]), plan(Guest::Spins, &[1])];
    let mut simulation = Simulation::new(2, &plans, 9);
    simulation.steps(1_000);
    simulation.shown();
    simulation.restart(1);
    simulation.steps(1_000);
    assert_eq!(simulation.vm_states(), [VmState::Running; 2]);
    assert_eq!(simulation.starts(), [1, 1], "not from the beginning");
    let text = simulation.shown();
    let said = "gear2: restarted, 1 in all: CPU 1 did not come back at 0x10000000\r\n";
    assert!(text.contains(said), "{text}");
    assert!(!text.contains(" started\r\n"), "{text}");
}

#[test]
fn a_vm_that_was_stopped_stays_stopped_and_what_was_begun_is_ended() {
    let plans = [plan(Guest::Spins, &[0]), plan(Guest::Spins, &[1])];
    let mut simulation = Simulation::new(2, &plans, 4);
    simulation.steps(300);
    simulation.type_keys(b"\x071\x07s");
    simulation.steps(100);
    // In the middle of loading.
    simulation.type_keys(b"\x070\x07r");
    while simulation.vm_states()[0] != VmState::Loading {
        assert!(simulation.step());
    }
    simulation.restart(0);
    simulation.steps(500);
    let states = [VmState::Running, VmState::Stopped];
    assert_eq!(simulation.vm_states(), states);
    assert_eq!(simulation.starts(), [2, 1]);
}

#[test]
fn a_uart_interrupts_still() {
    let mut simulation = Simulation::new(1, &[plan(Guest::Works, &[0])], 5);
    simulation.steps(2_000);
    simulation.type_keys(b"xxx");
    simulation.steps(2_000);
    assert_eq!(simulation.read(), [3]);
    simulation.restart(0);
    simulation.steps(2_000);
    let before = simulation.read()[0];
    simulation.type_keys(b"xxxx");
    simulation.steps(2_000);
    assert_eq!(simulation.read(), [before + 4]);
}

#[test]
fn accesses_of_the_device_model_are_answered_over_failures() {
    let plans = [
        plan(Guest::Works, &[0, 1]),
        guest(3, Guest::Works, &[0, 1]),
        guest(2, Guest::Works, &[1]),
    ];
    let mut simulation = Simulation::with_device_model(2, &plans, 3);
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(5_000);
    fail(&mut simulation, 60, |time| 1 + time % 17);
    let before = simulation.world.borrow().forwarded;
    simulation.steps(10_000);
    assert!(simulation.world.borrow().forwarded > before + 100);
    assert_eq!(simulation.starts(), [1; 3]);
    simulation.world.borrow_mut().frozen = true;
    simulation.steps(5_000);
    assert_eq!(simulation.unanswered(), 0);
}

#[test]
fn posted_accesses_are_taken_over() {
    let plans = [plan(Guest::Spins, &[0]), guest(1, Guest::Works, &[1])];
    let mut simulation = Simulation::with_device_model(2, &plans, 8);
    simulation.world.borrow_mut().disorder = false;
    let mut taken = 0;
    while taken < 50 {
        assert!(simulation.step());
        if simulation.unanswered() == 1 {
            taken += 1;
            simulation.restart(0);
        }
    }
    simulation.steps(5_000);
    assert_eq!(simulation.starts(), [1, 1]);
    assert_eq!(simulation.restarts(), (50, 0));
}

#[test]
fn what_gear2_fails_at_is_refused_the_second_time() {
    let mut simulation = Simulation::new(1, &[plan(Guest::Works, &[0])], 5);
    simulation.steps(2_000);
    for blamed in [0, 1] {
        // The event is lost with the loop that got it.
        while !simulation.is_in(0, VcpuState::AwaitsHypercall) {
            assert!(simulation.lose_call());
        }
        simulation.restart(0);
        assert_eq!(simulation.restarts().1, blamed);
    }
    simulation.steps(2_000);
    assert_eq!(simulation.starts(), [1]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// The contract holds over failures anywhere, guests that end and people who type.
    #[test]
    fn a_random_machine_survives_failures(
        (cpu_count, plans) in plans(),
        seed in any::<u64>(),
        keys in proptest::collection::vec((any::<u8>(), proptest::sample::select(b"srtln".to_vec())), 5),
    ) {
        let mut simulation = Simulation::new(cpu_count, &plans, seed);
        simulation.steps(1_000);
        for (time, key) in keys.iter().enumerate() {
            simulation.fail_in(seed % 13 + time as u64 * 3);
            live(&mut simulation, plans.len(), &[*key]);
        }
        simulation.world.borrow_mut().fails_in = None;
        simulation.world.borrow_mut().disorder = false;
        let wake_all: Vec<_> = (0..plans.len()).map(|vm| (u8::try_from(vm).unwrap(), b't')).collect();
        live(&mut simulation, plans.len(), &wake_all);
        simulation.steps(3_000);
        prop_assert_eq!(simulation.vm_states(), vec![VmState::Running; plans.len()]);
        let stop_all: Vec<_> = wake_all.iter().map(|&(vm, _)| (vm, b's')).collect();
        live(&mut simulation, plans.len(), &stop_all);
        prop_assert_eq!(simulation.vm_states(), vec![VmState::Stopped; plans.len()]);
        prop_assert!(simulation.is_quiet());
    }
}
