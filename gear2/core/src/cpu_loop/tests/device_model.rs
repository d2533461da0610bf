//! Loops with a device model: forwarded accesses; the rest has files of its own.

use alloc::string::ToString;

use gear2_protocol::{op, outcome};

use super::*;
use crate::simulator::Options;

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
}

mod boot_order;
mod consoles;
mod control;
mod ends;
mod memory;
mod sched;
