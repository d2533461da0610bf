//! Loops on a simulated machine: fairness, wake-ups, answers, lifecycles, consoles.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use gear1_abi::call::{Decision, VmState};
use gear1_abi::event::{Event, Mmio};
use gear1_abi::id::{CpuIndex, VcpuId};
use gear1_abi::regs::{NO_DEADLINE, Regs};
use gearv_manifest::Restart;
use proptest::prelude::*;

use crate::Kept;
use crate::config::SafeState;
use crate::console::tests::separate;
use crate::cpu_loop::CpuLoop;
use crate::gear1::{Conduit, Times};
use crate::machine::Machine;
use crate::scheduler::PolicyKind;
use crate::simulator::{AT_ONCE, Guest, Plan, SLICE, Simulated, Simulation, Wire, config};

fn plan(guest: Guest, cpus: &[usize]) -> Plan {
    Plan {
        guest,
        cpus: cpus.into(),
        restart: Restart::OnFailure,
        restarts: AT_ONCE,
        devices: 0,
        watchdog: 0,
        progress: 0,
        dma_fault_limit: 0,
        boot_order: 0,
        dump: false,
        safe_state: SafeState::Stop,
        tells: None,
        power_button: None,
        waits: false,
        real_time: false,
        affinity: None,
    }
}

fn assert_shares(simulation: &Simulation, before: &[u64], vcpus: &[usize], per_cent: u64) {
    let used: Vec<_> = simulation
        .used()
        .iter()
        .zip(before)
        .map(|(a, b)| a - b)
        .collect();
    let total: u64 = vcpus.iter().map(|&vcpu| used[vcpu]).sum();
    for &vcpu in vcpus {
        let share = used[vcpu] * 1000 / total;
        assert!(
            share.abs_diff(per_cent * 10) <= 50,
            "{share} per mille of {used:?}"
        );
    }
}

#[test]
fn spinning_vcpus_share_their_cpu_evenly() {
    for count in 2..=4_u64 {
        let plans: Vec<_> = (0..count).map(|_| plan(Guest::Spins, &[0])).collect();
        let mut simulation = Simulation::new(1, &plans, 7);
        simulation.steps(500);
        let before = simulation.used();
        simulation.steps(400);
        let all: Vec<_> = (0..plans.len()).collect();
        assert_shares(&simulation, &before, &all, 100 / count);
    }
}

#[test]
fn a_vcpu_that_is_alone_is_not_disturbed() {
    let mut simulation =
        Simulation::new(2, &[plan(Guest::Spins, &[0]), plan(Guest::Spins, &[1])], 7);
    simulation.steps(1000);
    assert_eq!(simulation.vm_states(), [VmState::Running; 2]);
    assert!(simulation.is_quiet(), "no deadline, no event");
}

#[test]
fn a_worker_beside_a_spinner_gets_its_turn() {
    let mut simulation =
        Simulation::new(1, &[plan(Guest::Spins, &[0]), plan(Guest::Works, &[0])], 7);
    simulation.steps(20_000);
    let used = simulation.used();
    assert!(used[0] >= used[1], "{used:?}");
    assert!(used[1] > used[0] / 100, "{used:?}");
}

#[test]
fn loading_a_vm_leaves_most_of_the_cpu_to_the_others() {
    let mut simulation =
        Simulation::new(1, &[plan(Guest::Spins, &[0]), plan(Guest::Spins, &[0])], 7);
    simulation.steps(1000);
    let (before, start) = (simulation.used(), simulation.starts());
    simulation.type_keys(b"\x071\x07r");
    while simulation.starts() == start {
        assert!(simulation.step());
    }
    let used = simulation.used()[0] - before[0];
    // 20 pieces with a pause after each.
    assert!(
        used >= 19 * 200,
        "{used} ticks while the other VM was loaded"
    );
    let text = simulation.shown();
    assert!(text.contains("gear2: guest1 restarted\r\n"), "{text}");
}

#[test]
fn announces_itself_and_what_happens() {
    let mut simulation = Simulation::new(1, &[plan(Guest::Spins, &[0])], 7);
    simulation.steps(100);
    simulation.type_keys(b"\x07s");
    simulation.steps(100);
    simulation.type_keys(b"\x07t");
    simulation.steps(100);
    simulation.type_keys(b"\x07l\x07p\x07L");
    simulation.steps(10);
    let version = env!("CARGO_PKG_VERSION");
    let abi = gear1_abi::ABI_VERSION;
    let (major, minor) = (abi >> 16, abi & 0xffff);
    let mut expected = alloc::format!("gear2: {version}, ABI {major}.{minor}");
    expected += ", 1 CPUs, scheduler round-robin\r\n\
        gear2: guest0 started\r\ngear2: guest0 stopped\r\ngear2: guest0 restarted\r\n\
        gear2: 0 guest0 running, vCPU 0 on CPU 0: ready\r\n\
        gear2: guest0 vCPU 0:\r\n";
    assert_eq!(simulation.shown(), expected);
}

#[test]
fn vms_start_in_their_order() {
    for seed in 0..20 {
        let orders = [2, 7, 0, 1];
        let plans = orders.map(|boot_order| Plan {
            boot_order,
            ..plan(Guest::Works, &[boot_order as usize % 2])
        });
        let mut simulation = Simulation::new(2, &plans, seed);
        simulation.steps(3000);
        let text = simulation.shown();
        let place = |vm: usize| text.find(&alloc::format!("gear2: guest{vm} started"));
        let places = [2, 3, 0, 1].map(|vm| place(vm).expect("all start"));
        assert!(places.is_sorted(), "{text}");
    }
}

#[test]
fn what_is_typed_reaches_the_guest() {
    let plans = [plan(Guest::Works, &[0, 1]), plan(Guest::Works, &[1, 0])];
    let mut simulation = Simulation::new(2, &plans, 5);
    simulation.steps(1000);
    simulation.type_keys(&[b'x'; 100]);
    simulation.type_keys(b"\x071xxx");
    simulation.steps(10_000);
    assert_eq!(simulation.read(), [100, 3]);
}

#[test]
fn powers_off_on_demand() {
    let mut simulation = Simulation::new(1, &[plan(Guest::Spins, &[0])], 7);
    simulation.steps(100);
    simulation.type_keys(b"\x07q");
    simulation.steps(10);
    assert!(simulation.world.borrow().powered_off);
}

/// A real-time VM runs: Gear1 refuses, the VM that was in focus runs on, and can be asked again.
#[test]
fn a_refused_power_off_changes_nothing() {
    let mut simulation = Simulation::new(1, &[plan(Guest::Spins, &[0])], 7);
    simulation.world.borrow_mut().keeps_power_on = true;
    simulation.steps(2_000);
    simulation.type_keys(b"\x07q");
    simulation.steps(2_000);
    assert!(!simulation.world.borrow().powered_off);
    assert_eq!(simulation.vm_states(), [VmState::Running]);
    let said = simulation.shown();
    assert_eq!(said.matches("no power off").count(), 1, "{said}");
    simulation.world.borrow_mut().keeps_power_on = false;
    simulation.type_keys(b"\x07q");
    simulation.steps(10);
    assert!(simulation.world.borrow().powered_off);
}

#[test]
fn guests_reboot_again_and_again() {
    let plans = [Plan {
        restart: Restart::Always,
        ..plan(Guest::WorksAndEnds, &[0, 1])
    }];
    let mut simulation = Simulation::new(2, &plans, 11);
    let mut steps = 0;
    while simulation.starts()[0] < 6 {
        assert!(simulation.step(), "it stopped for good");
        steps += 1;
        assert!(steps < 1_000_000);
    }
}

fn plans() -> impl Strategy<Value = (usize, Vec<Plan>)> {
    (1..4_usize).prop_flat_map(|cpu_count| {
        let guest = prop_oneof![
            1 => Just(Guest::Spins),
            2 => Just(Guest::Works),
            3 => Just(Guest::WorksAndEnds),
        ];
        let restart = prop_oneof![
            Just(Restart::Never),
            Just(Restart::OnFailure),
            Just(Restart::Always),
        ];
        let cpus = proptest::collection::vec(0..cpu_count, 1..4);
        let plan = (guest, cpus, restart).prop_map(|(guest, cpus, restart)| Plan {
            guest,
            cpus,
            restart,
            restarts: AT_ONCE,
            devices: 0,
            watchdog: 0,
            progress: 0,
            dma_fault_limit: 0,
            boot_order: 0,
            dump: false,
            safe_state: SafeState::Stop,
            tells: None,
            power_button: None,
            waits: false,
            real_time: false,
            affinity: None,
        });
        (Just(cpu_count), proptest::collection::vec(plan, 1..5))
    })
}

/// Returns a policy that lets every ready vCPU run at some time, whatever the plan.
fn policy() -> impl Strategy<Value = &'static PolicyKind> {
    let names = ["round-robin", "fair", "bvt", "edf", "priority"];
    proptest::sample::select(names.to_vec()).prop_map(|name| PolicyKind::named(name).unwrap())
}

/// Lets the machine live, with somebody at the keyboard.
fn live(simulation: &mut Simulation, vm_count: usize, keys: &[(u8, u8)]) {
    for &(vm, key) in keys {
        let digit = b'0' + vm % u8::try_from(vm_count).unwrap();
        simulation.type_keys(&[7, digit, b'x', 7, key]);
        simulation.steps(2_000);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The simulator checks the contract at every one of about 600,000 events. In the end, order
    /// returns: every VM can be started, and stopped for good.
    #[test]
    fn a_random_machine_keeps_the_contract(
        (cpu_count, plans) in plans(),
        seed in any::<u64>(),
        policy in policy(),
        keys in proptest::collection::vec((any::<u8>(), proptest::sample::select(b"srtlna".to_vec())), 10),
    ) {
        let mut simulation = Simulation::with_policy(cpu_count, &plans, seed, policy);
        simulation.steps(5_000);
        live(&mut simulation, plans.len(), &keys);
        simulation.world.borrow_mut().disorder = false;
        let wake_all: Vec<_> = (0..plans.len()).map(|vm| (u8::try_from(vm).unwrap(), b't')).collect();
        live(&mut simulation, plans.len(), &wake_all);
        simulation.steps(3_000);
        prop_assert_eq!(simulation.vm_states(), vec![VmState::Running; plans.len()]);
        let stop_all: Vec<_> = wake_all.iter().map(|&(vm, _)| (vm, b's')).collect();
        live(&mut simulation, plans.len(), &stop_all);
        prop_assert_eq!(simulation.vm_states(), vec![VmState::Stopped; plans.len()]);
        prop_assert!(simulation.is_quiet());
        let (refused, starts) = (simulation.world.borrow().refused, simulation.starts());
        // A refusal is the price of a stop by another loop, at most one per vCPU.
        prop_assert!(refused <= (starts.iter().sum::<u64>() + 10) * 4, "{} refusals", refused);
    }

    /// Lines from guests reach the terminal whole and in order, over restarts.
    #[test]
    fn console_lines_arrive_whole((cpu_count, plans) in plans(), seed in any::<u64>()) {
        prop_assume!(plans.len() > 1);
        let mut simulation = Simulation::new(cpu_count, &plans, seed);
        simulation.steps(20_000);
        simulation.world.borrow_mut().frozen = true;
        simulation.steps(5_000);
        let names: Vec<_> = (0..plans.len()).map(|vm| alloc::format!("guest{vm}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let streams = separate(&simulation.shown(), &names);
        for (stream, line_count) in streams.iter().zip(simulation.lines()) {
            let expected: String = (0..line_count).map(|line| alloc::format!("{line}\n")).collect();
            let (whole, begun) = stream.split_at(stream.rfind('\n').map_or(0, |end| end + 1));
            prop_assert_eq!(whole, expected);
            let next = alloc::format!("{line_count}\n");
            prop_assert!(next.starts_with(begun));
        }
    }
}

#[test]
fn slices_are_not_shortened_by_exits() {
    // A worker's exits do not end its slice: two of them share evenly although both exit often.
    let mut simulation = Simulation::new(
        1,
        &[plan(Guest::Spins, &[0, 0]), plan(Guest::Spins, &[0])],
        3,
    );
    simulation.steps(1000);
    let before = simulation.used();
    simulation.steps(200);
    assert_shares(&simulation, &before, &[0, 2], 50);
    assert!(simulation.used()[0] - before[0] >= 90 * SLICE);
}

/// A Gear1 that agrees with everything.
struct Agrees;

impl Conduit for Agrees {
    fn svc<const NUMBER: u16>(&mut self, _: Regs) -> Regs {
        [0; 8]
    }
}

const AT: Times = Times {
    began: 0,
    now: 1000,
    waited: 0,
};

#[test]
fn what_the_console_holds_back_ends_the_turn_in_time() {
    let plans = [plan(Guest::Works, &[0]), plan(Guest::Works, &[1])];
    let kept = Box::leak(Box::new(Kept::new()));
    let wire = Some(Wire::default());
    let machine = Machine::<Simulated>::new(config(2, &plans), wire, None, kept, &mut Agrees);
    let mut last = None;
    for (vcpu, text) in [(0, "~ #"), (1, "x\n")] {
        let vcpu = VcpuId::new(vcpu).unwrap();
        let mut cpu_loop = CpuLoop::new(&machine, CpuIndex::new(vcpu.index()).unwrap());
        let decision = cpu_loop.on_event(&mut Agrees, Event::Wake(vcpu), AT);
        assert_eq!(deadline(decision), NO_DEADLINE);
        for byte in text.bytes() {
            let store = Some(u64::from(byte));
            let access = Mmio {
                ipa: 0x0900_0000,
                size_log2: 0,
                store,
            };
            last = Some(cpu_loop.on_event(&mut Agrees, Event::Mmio(vcpu, access), AT));
        }
    }
    assert_eq!(last.map(deadline), Some(1000 + 100_000));
}

fn deadline(decision: Decision) -> u64 {
    match decision {
        Decision::Run { deadline, .. } | Decision::Idle { deadline } => deadline,
    }
}

mod device_model;
mod dma;
mod give_up;
mod last_words;
mod lives;
mod moves;
mod policies;
mod pools;
mod restart;
mod tracing;
mod waits;
mod watchdogs;
