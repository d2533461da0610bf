//! Last words of VMs: why a life ended, where its vCPUs were, what it said last.

use gear1_abi::call::vcpu_reg;
use gear1_abi::event::Ended;
use gear1_abi::id::VmId;
use gear2_protocol::{cause, op, outcome};

use super::*;
use crate::restarts::RestartPolicy;

/// Events after which all that follows from an end has been done.
const LONG: usize = 4_000;

/// Returns the cause, the life and the vCPUs whose registers are known.
fn kept(simulation: &Simulation, vm: usize) -> (u64, u32, u64) {
    let (_, shared) = simulation.machine.vm(VmId::new(vm).unwrap()).unwrap();
    let words = shared.last_words.lock();
    (words.cause.number(), words.life, words.known())
}

/// A VM of two vCPUs on two CPUs, of which one alone collects the words.
fn vm_on_two_cpus() -> Vec<Plan> {
    vec![plan(Guest::Works, &[0, 1]), plan(Guest::Spins, &[0])]
}

#[test]
fn each_end_leaves_the_registers_of_all_vcpus() {
    for seed in 0..20 {
        let mut simulation = Simulation::new(2, &vm_on_two_cpus(), seed);
        simulation.steps(LONG);
        assert_eq!(kept(&simulation, 0), (cause::STOPPED, 0, 0));
        for life in 1..4 {
            simulation.end(0, Ended::Fault);
            simulation.steps(LONG);
            assert_eq!(kept(&simulation, 0), (cause::CRASH, life, 0b11), "{seed}");
            assert_eq!(simulation.starts()[0], u64::from(life) + 1);
        }
        let (_, shared) = simulation.machine.vm(VmId::new(0).unwrap()).unwrap();
        let words = shared.last_words.lock();
        let registers = words.vcpus[1].unwrap();
        // The simulated Gear1's registers tell the vCPU and the register.
        assert_eq!(registers[vcpu_reg::PC], 2_000 + vcpu_reg::PC as u64);
        assert_eq!(kept(&simulation, 1), (cause::STOPPED, 0, 0));
    }
}

/// A VM that is stopped has no next life that they would have to be kept over.
#[test]
fn a_vm_that_somebody_stops_has_last_words_too() {
    for seed in 0..10 {
        let mut simulation = Simulation::new(2, &vm_on_two_cpus(), seed);
        simulation.steps(LONG);
        simulation.world.borrow_mut().disorder = false;
        simulation.type_keys(b"\x070\x07s");
        simulation.steps(LONG);
        assert_eq!(simulation.vm_states()[0], VmState::Stopped);
        assert_eq!(kept(&simulation, 0), (cause::STOPPED, 1, 0b11), "{seed}");
        simulation.shown();
        simulation.type_keys(b"\x07w");
        simulation.steps(LONG);
        let text = simulation.shown();
        let said = "gear2: guest0 was stopped in its life 1, at ";
        assert!(text.contains(said), "{text}");
        assert!(
            text.contains("guest0 vCPU 1: PC 0x7f0 SPSR 0x7f1 "),
            "{text}"
        );
    }
}

#[test]
fn a_vm_that_is_given_up_has_last_words() {
    let limited = Plan {
        restarts: RestartPolicy {
            limit: 1,
            window: 1_000_000_000,
            backoff: 0,
        },
        ..plan(Guest::Works, &[0, 1])
    };
    let mut simulation = Simulation::new(2, &[limited, plan(Guest::Spins, &[0])], 3);
    for _ in 0..2 {
        simulation.steps(LONG);
        simulation.end(0, Ended::Fault);
    }
    simulation.steps(LONG);
    assert_eq!(simulation.vm_states()[0], VmState::Stopped);
    assert_eq!(kept(&simulation, 0), (cause::CRASH, 2, 0b11));
}

/// Gear1 starts a real-time VM again at once, and tells afterwards whether its heartbeat stopped.
#[test]
fn a_real_time_vm_that_hangs_is_told_from_one_that_crashes() {
    let real_time = Plan {
        real_time: true,
        ..plan(Guest::Spins, &[0])
    };
    let mut simulation = Simulation::new(1, &[plan(Guest::Spins, &[0]), real_time], 3);
    simulation.real_time_starts(1);
    simulation.steps(300);
    simulation.real_time_ends(1, Ended::Fault, true);
    simulation.steps(300);
    assert_eq!(kept(&simulation, 1).0, cause::CRASH);
    simulation.shown();
    simulation.world.borrow_mut().silent = Some((1, 2));
    simulation.real_time_ends(1, Ended::Fault, true);
    simulation.steps(300);
    let (cause, life, _) = kept(&simulation, 1);
    assert_eq!((cause, life), (cause::HANG, 2));
    let text = simulation.shown();
    let said = "guest1 hangs: its heartbeat has stopped\r\ngear2: guest1 restarted by Gear1";
    assert!(text.contains(said), "{text}");
    let (_, shared) = simulation.machine.vm(VmId::new(1).unwrap()).unwrap();
    assert_eq!(shared.watchdog.lock().counts(), [1, 0, 0]);
}

/// GDM gets the words by parts.
#[test]
fn control_tells_last_words() {
    let plans = [plan(Guest::Works, &[0]), plan(Guest::Works, &[0, 1])];
    let mut simulation = Simulation::with_device_model(2, &plans, 7);
    simulation.steps(LONG);
    let nothing = simulation.control(op::LAST_WORDS, [1, 0]);
    assert_eq!(nothing.0, outcome::NOT_FOUND);
    simulation.end(1, Ended::Fault);
    simulation.steps(LONG);
    simulation.world.borrow_mut().disorder = false;
    let (done, words) = simulation.control(op::LAST_WORDS, [1, 0]);
    let [life, why, _, console, known, _] = words;
    assert_eq!((done, why, known), (outcome::OK, cause::CRASH, 0b11));
    assert_eq!(life, simulation.starts()[1] - 1);
    let (done, registers) = simulation.control(op::LAST_REGISTERS, [1, 1]);
    // The vCPU is the third of the machine, and X0 to X5 are asked for.
    assert_eq!(
        (done, registers),
        (outcome::OK, [0, 1, 2, 3, 4, 5].map(|n| 3_000 + n))
    );
    let mut text = Vec::new();
    for offset in (0..console).step_by(48) {
        let (done, words) = simulation.control(op::LAST_CONSOLE, [1, offset]);
        assert_eq!(done, outcome::OK);
        text.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
    text.truncate(usize::try_from(console).unwrap());
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("guest1 vCPU "), "{text}");
    let behind = simulation.control(op::LAST_CONSOLE, [1, console + 1]);
    assert_eq!(behind.0, outcome::NOT_FOUND);
    let nobody = simulation.control(op::LAST_REGISTERS, [1, 2]);
    assert_eq!(nobody.0, outcome::NOT_FOUND);
}
