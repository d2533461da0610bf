//! Every start and every end of a VM is said once and in order, whatever coalesces.

use gear1_abi::event::Ended;

use super::*;
use crate::simulator::Lived;

/// Returns what Gear2 said of a VM's starts and ends by itself.
fn said(text: &str, vm: usize) -> Vec<Lived> {
    let name = alloc::format!("guest{vm} ");
    let lines = text.split("gear2: ").skip(1);
    let lines = lines.filter_map(|line| line.split("\r\n").next()?.strip_prefix(name.as_str()));
    let meanings = lines.filter_map(|line| match line {
        "started" | "restarted" | "restarted by Gear1" => Some(Lived::Started),
        "turned itself off" => Some(Lived::Ended(Ended::Off)),
        "resets itself" => Some(Lived::Ended(Ended::Reset)),
        line if line.contains("cannot go on") => Some(Lived::Ended(Ended::Fault)),
        "stopped" => None,
        line => panic!("{line}"),
    });
    meanings.collect()
}

fn real_time() -> Plan {
    Plan {
        real_time: true,
        ..plan(Guest::Spins, &[1])
    }
}

/// A machine with an ordinary VM and a real-time VM, which has been started.
fn machine() -> Simulation {
    let mut simulation = Simulation::new(1, &[plan(Guest::Spins, &[0]), real_time()], 3);
    simulation.real_time_starts(1);
    simulation.steps(300);
    simulation
}

#[test]
fn a_restart_and_an_end_between_two_looks_are_both_said() {
    let mut simulation = machine();
    simulation.real_time_ends(1, Ended::Reset, true);
    simulation.real_time_ends(1, Ended::Off, false);
    simulation.steps(300);
    let text = simulation.shown();
    let lines = ["resets itself", "restarted by Gear1", "turned itself off"];
    let expected: String = lines
        .map(|line| alloc::format!("gear2: guest1 {line}\r\n"))
        .concat();
    assert!(text.ends_with(&expected), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Real-time VMs live as they like between two looks of Gear2, which fails now and then.
    #[test]
    fn a_real_time_vm_is_described_whole(
        lives in proptest::collection::vec((1..4_u64, any::<bool>(), 0..40_usize), 1..100),
        restart in 0..100_usize,
    ) {
        let mut simulation = machine();
        let mut unseen = 0;
        for (count, &(how, restarts, pause)) in lives.iter().enumerate() {
            let running = simulation.vm_states()[1] == VmState::Running;
            if !running {
                // A user starts the VM by the keyboard.
                simulation.type_keys(b"\x071\x07t");
                while simulation.vm_states()[1] != VmState::Running {
                    assert!(simulation.step());
                }
                unseen = 0;
            }
            simulation.real_time_ends(1, Ended::from_reg(how).unwrap(), restarts);
            unseen += 1;
            // No more than Gear1 keeps.
            simulation.steps(if unseen < 31 { pause.saturating_sub(35) } else { 100 });
            unseen = if unseen < 31 && pause < 36 { unseen } else { 0 };
            if count == restart {
                simulation.restart(0);
            }
        }
        simulation.steps(300);
        let happened = simulation.lived(1);
        let text = simulation.shown();
        // Nobody is told of the first start, Gear1's at boot.
        prop_assert_eq!(said(&text, 1), &happened[1..], "{}", text);
    }

    /// Two vCPUs ask for the end at once, somebody restarts the VM meanwhile: one end is one
    /// report.
    #[test]
    fn an_ordinary_vm_is_described_whole(
        seed in any::<u64>(),
        restart in prop_oneof![Just(Restart::OnFailure), Just(Restart::Always)],
        keys in proptest::collection::vec((0..2_u8, proptest::sample::select(b"srt".to_vec())), 10),
    ) {
        let plans = [[0, 1, 0], [1, 0, 1]].map(|cpus| Plan {
            restart,
            ..plan(Guest::WorksAndEnds, &cpus)
        });
        let mut simulation = Simulation::new(2, &plans, seed);
        let mut text = String::new();
        for (vm, key) in keys {
            live(&mut simulation, plans.len(), &[(vm, key)]);
            simulation.restart(usize::from(vm));
            text += &simulation.shown();
        }
        simulation.world.borrow_mut().disorder = false;
        simulation.type_keys(b"\x07a");
        simulation.steps(3_000);
        text += &simulation.shown();
        for vm in 0..plans.len() {
            prop_assert_eq!(said(&text, vm), simulation.lived(vm), "{}", text);
        }
    }
}
