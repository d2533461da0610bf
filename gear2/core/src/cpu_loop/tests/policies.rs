//! Whole loops under policies other than round-robin.

use core::cell::RefCell;

use gear1_abi::id::MAX_VCPUS;

use super::*;
use crate::scheduler::{Choice, Policy, Refused, RoundRobin, Share};
use crate::simulator::Options;

fn machine(name: &str, cpu_count: usize, plans: &[Plan], options: Options) -> Simulation {
    let policy = PolicyKind::named(name);
    assert!(policy.is_some());
    let options = Options { policy, ..options };
    Simulation::plain(cpu_count, plans, 7, options)
}

#[test]
fn equal_spinners_share_evenly_under_every_policy() {
    for name in ["fair", "bvt", "edf", "priority"] {
        let plans = [plan(Guest::Spins, &[0]), plan(Guest::Spins, &[0])];
        let mut simulation = machine(name, 1, &plans, Options::default());
        simulation.steps(1_000);
        let before = simulation.used();
        simulation.steps(400);
        assert_shares(&simulation, &before, &[0, 1], 50);
    }
}

#[test]
fn null_runs_one_vcpu_a_cpu_without_a_deadline() {
    let plans = [plan(Guest::Spins, &[0]), plan(Guest::Spins, &[1])];
    let mut simulation = machine("null", 2, &plans, Options::default());
    simulation.steps(1_000);
    assert_eq!(simulation.vm_states(), [VmState::Running; 2]);
    assert!(simulation.is_quiet());
}

/// The window of VM 0 is a fifth of the frame: it has a fifth of the CPU, whatever the others do.
#[test]
fn a_window_holds_beside_guests_that_do_everything() {
    let options = Options {
        window: Some((5_000, 2_000, 1_000)),
        ..Options::default()
    };
    let plans = [
        plan(Guest::Spins, &[0]),
        plan(Guest::WorksAndEnds, &[0, 0]),
        plan(Guest::Spins, &[0]),
    ];
    let mut simulation = machine("arinc653", 1, &plans, options);
    simulation.steps(2_000);
    let (before, start) = (simulation.used(), simulation.world.borrow().now);
    simulation.steps(20_000);
    let used = simulation.used()[0] - before[0];
    let share = used * 1_000 / (simulation.world.borrow().now - start);
    assert!((185..=205).contains(&share), "{share} per mille");
    assert!(simulation.used()[3] > before[3], "the rest is the others'");
}

std::thread_local! {
    /// Time that loops told [`Recorder`] of each vCPU, and the time of the last call.
    static CHARGED: RefCell<([u64; MAX_VCPUS], u64)> = const { RefCell::new(([0; MAX_VCPUS], 0)) };
}

/// Round-robin that keeps what it is told, and checks that a charge comes before other calls.
struct Recorder(RoundRobin);

static RECORDER: PolicyKind = PolicyKind {
    name: "recorder",
    make: |plan| Box::new(Recorder(RoundRobin::new(plan.slice))),
};

impl Recorder {
    /// Checks that times never decrease.
    fn at(now: u64) {
        CHARGED.with_borrow_mut(|(_, last)| {
            assert!(now >= *last, "{now} after {last}");
            *last = now;
        });
    }
}

impl Policy for Recorder {
    fn add(&mut self, vcpu: VcpuId, share: &Share, now: u64) -> Result<(), Refused> {
        self.0.add(vcpu, share, now)
    }

    fn remove(&mut self, vcpu: VcpuId, now: u64) {
        self.0.remove(vcpu, now);
    }

    fn set(&mut self, vcpu: VcpuId, share: &Share, now: u64) -> Result<(), Refused> {
        self.0.set(vcpu, share, now)
    }

    fn wake(&mut self, vcpu: VcpuId, now: u64) {
        Self::at(now);
        self.0.wake(vcpu, now);
    }

    fn block(&mut self, vcpu: VcpuId, now: u64) {
        Self::at(now);
        self.0.block(vcpu, now);
    }

    fn give_way(&mut self, vcpu: VcpuId, now: u64) {
        Self::at(now);
        self.0.give_way(vcpu, now);
    }

    fn ran(&mut self, vcpu: VcpuId, ticks: u64, now: u64) {
        Self::at(now);
        CHARGED.with_borrow_mut(|(charged, _)| charged[vcpu.index()] += ticks);
        self.0.ran(vcpu, ticks, now);
    }

    fn pick(&mut self, now: u64) -> Choice {
        Self::at(now);
        self.0.pick(now)
    }
}

fn charged() -> [u64; MAX_VCPUS] {
    CHARGED.with_borrow(|(charged, _)| *charged)
}

fn recorded(plans: &[Plan]) -> Simulation {
    CHARGED.set(([0; MAX_VCPUS], 0));
    Simulation::with_policy(1, plans, 7, &RECORDER)
}

/// Every tick is charged once: a guest's run to its vCPU, the work of both gears to the vCPU that
/// caused it, a load to the VM's first vCPU; the rest is idle time.
#[test]
fn all_time_is_charged_to_its_cause() {
    for guest in [Guest::Works, Guest::WorksAndEnds] {
        let plans = [plan(guest, &[0, 0]), plan(Guest::Spins, &[0])];
        let mut simulation = recorded(&plans);
        for _ in 0..20_000 {
            simulation.step();
            let world = simulation.world.borrow();
            if !world.ledger.settled {
                // An access or a call that Gear2 answers at once is charged later.
                continue;
            }
            let charged = charged();
            assert_eq!(charged, world.ledger.charges);
            let all: u64 = charged.iter().sum();
            assert_eq!(all + world.ledger.idle, world.ledger.elapsed(0));
        }
    }
}

/// Time for which a vCPU waits inside Gear1 is nobody's, although Gear2 hears of it late.
#[test]
fn waits_without_gear2_are_charged_to_nobody() {
    for seed in 1..5 {
        CHARGED.set(([0; MAX_VCPUS], 0));
        let plans = [plan(Guest::Works, &[0, 0])];
        let mut simulation = Simulation::with_policy(1, &plans, seed, &RECORDER);
        for _ in 0..5_000 {
            simulation.step();
            let world = simulation.world.borrow();
            if world.ledger.settled {
                assert_eq!(charged(), world.ledger.charges);
            }
        }
        let world = simulation.world.borrow();
        let waited = world.waited_on(0);
        assert!(waited > 10_000, "{waited}");
        assert_eq!(world.refused, 0, "a vCPU that waits was to run");
    }
}

/// Wake-ups without end for a vCPU cost that vCPU, not the one that runs.
#[test]
fn a_storm_of_wake_ups_is_charged_to_who_wakes() {
    let plans = [plan(Guest::Spins, &[0]), plan(Guest::Spins, &[0])];
    let mut simulation = recorded(&plans);
    simulation.steps(1_000);
    let (before, ran) = (charged(), simulation.world.borrow().ledger.ran);
    for _ in 0..20_000 {
        simulation.wake_again(1);
        simulation.step();
    }
    let world = simulation.world.borrow();
    let work = |vcpu: usize| {
        let ran = world.ledger.ran[vcpu] - ran[vcpu];
        charged()[vcpu] - before[vcpu] - ran
    };
    assert!(work(1) > 100_000, "{}", work(1));
    assert!(work(0) < work(1) / 10, "{} of {}", work(0), work(1));
}

/// A load is charged to the VM that is loaded, not to the one that runs between its pieces.
#[test]
fn a_load_is_charged_to_its_vm() {
    let plans = [plan(Guest::Spins, &[0]), plan(Guest::Spins, &[0])];
    let mut simulation = recorded(&plans);
    simulation.steps(1_000);
    simulation.type_keys(b"\x071\x07r");
    while simulation.vm_states()[1] == VmState::Running {
        assert!(simulation.step());
    }
    let (before, starts) = (charged(), simulation.starts());
    while simulation.starts() == starts {
        assert!(simulation.step());
    }
    let load = charged()[1] - before[1];
    assert!((1_000..1_100).contains(&load), "{load}");
}
