//! Console rings: typed input and guests' output, whole and in order.

use gear1_abi::id::MAX_VMS;
use gear2_protocol::offset::OUTPUT_SIZE;

use super::*;

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

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
