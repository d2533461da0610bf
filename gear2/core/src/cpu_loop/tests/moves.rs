//! vCPUs that move between loops: by request, by the balancer, and away from CPUs that are closed.

use gear1_abi::call::VcpuState;
use gearv_manifest::{Balancer, CpuSet};

use super::*;
use crate::machine::{Place, Stage, Stays};
use crate::scheduler::Refused;
use crate::simulator::{Handle, Options};

fn cpu(index: usize) -> CpuIndex {
    CpuIndex::new(index).unwrap()
}

fn id(index: usize) -> VcpuId {
    VcpuId::new(index).unwrap()
}

impl Simulation {
    fn place(&self, vcpu: usize) -> Place {
        self.machine.placement.of(id(vcpu))
    }

    pub(super) fn want(&self, vcpu: usize, to: usize) -> Result<(), Stays> {
        self.by_hand(|gear1| self.machine.want(gear1, id(vcpu), cpu(to)))
    }

    pub(super) fn close(&self, index: usize, closed: bool) -> Result<(), Stays> {
        self.by_hand(|gear1| self.machine.set_closed(gear1, cpu(index), closed))
    }

    /// Does what a loop would do; the failure that Gear2 is to have waits for a loop.
    pub(super) fn by_hand<R>(&self, what: impl FnOnce(&mut Handle) -> R) -> R {
        let fails_in = self.world.borrow_mut().fails_in.take();
        let result = what(&mut self.handle(0));
        self.world.borrow_mut().fails_in = fails_in;
        result
    }

    fn moves(&self) -> u64 {
        self.machine.placement.moves()
    }

    /// Returns the number of vCPUs on each CPU, as Gear1 has it.
    pub(super) fn counts(&self, cpus: usize) -> Vec<usize> {
        let world = self.world.borrow();
        (0..cpus).map(|cpu| world.vcpus_on(cpu)).collect()
    }

    /// Checks that each vCPU is in one place, for both gears, and where nobody moves it.
    pub(super) fn check_places(&self, vcpus: usize) {
        for vcpu in 0..vcpus {
            let place = self.place(vcpu);
            assert!(place.stage.rests(), "{place:?}");
            assert_eq!(place.cpu.index(), self.world.borrow().cpu_of(vcpu));
        }
    }

    /// Lives until a time.
    fn until(&mut self, time: u64) {
        while self.world.borrow().now < time && self.step() {}
    }
}

#[test]
fn a_vcpu_moves_where_it_is_wanted() {
    for (seed, guest) in (0..40).zip([Guest::Spins, Guest::Works].into_iter().cycle()) {
        let plans = [plan(guest, &[0, 0]), plan(Guest::Spins, &[0])];
        let mut simulation = Simulation::new(2, &plans, seed);
        simulation.steps(1_000);
        simulation.want(0, 1).unwrap();
        simulation.steps(200);
        assert_eq!(simulation.place(0), Place::home(cpu(1)), "{guest:?}");
        assert_eq!(simulation.counts(2), [2, 1]);
        let before = simulation.used();
        assert!(guest == Guest::Works || simulation.is_in(0, VcpuState::Running));
        simulation.steps(500);
        assert!(guest == Guest::Spins || simulation.used()[0] > before[0]);
    }
}

#[test]
fn a_move_that_admission_refuses_changes_nothing() {
    let plans = [plan(Guest::Spins, &[0]), plan(Guest::Spins, &[1])];
    let options = Options {
        policy: PolicyKind::named("null"),
        ..Options::default()
    };
    let mut simulation = Simulation::plain(2, &plans, 3, options);
    simulation.steps(1_000);
    simulation.want(0, 1).unwrap();
    simulation.steps(100);
    let place = simulation.place(0);
    let why = Stays::Policy(Refused::Full);
    assert_eq!((place.cpu, place.stage), (cpu(0), Stage::Refused(why)));
    assert_eq!((simulation.counts(2), simulation.moves()), (vec![1, 1], 0));
    assert!(simulation.is_quiet(), "both run");
    assert!((0..2).all(|vcpu| simulation.is_in(vcpu, VcpuState::Running)));
}

#[test]
fn affinity_and_pins_are_kept() {
    let bound = Plan {
        affinity: Some(CpuSet::first(2)),
        ..plan(Guest::Spins, &[0])
    };
    let mut simulation = Simulation::new(3, &[bound, plan(Guest::Works, &[1])], 3);
    simulation.steps(500);
    assert_eq!(simulation.want(0, 2), Err(Stays::Elsewhere));
    simulation.machine.set_pin(id(1), Some(cpu(1)));
    assert_eq!(simulation.want(1, 2), Err(Stays::Pinned));
    assert_eq!(simulation.close(1, true), Err(Stays::Pinned));
    simulation.machine.set_pin(id(1), None);
    assert_eq!(simulation.close(1, true), Ok(()));
    simulation.steps(200);
    assert_eq!(simulation.want(0, 1), Err(Stays::CpuIsOff));
    assert_eq!(simulation.close(0, true), Err(Stays::Elsewhere));
    assert_eq!(simulation.close(1, false), Ok(()));
    assert_eq!(simulation.close(0, true), Ok(()));
    simulation.steps(200);
    assert_eq!(simulation.place(0), Place::home(cpu(1)));
}

#[test]
fn the_last_cpu_stays_on() {
    let mut simulation = Simulation::new(2, &[plan(Guest::Spins, &[0, 1])], 3);
    simulation.steps(500);
    assert_eq!(simulation.close(0, true), Ok(()));
    assert_eq!(simulation.close(1, true), Err(Stays::NoOther));
    simulation.steps(500);
    assert_eq!(simulation.counts(2), [0, 2]);
}

/// CPUs of other pools take none of a pool's vCPUs.
#[test]
fn the_last_cpu_of_each_pool_stays_on() {
    let plans = [plan(Guest::Spins, &[0, 1]), plan(Guest::Works, &[2])];
    let options = Options {
        own_pool: 1,
        ..Options::default()
    };
    let mut simulation = Simulation::plain(3, &plans, 3, options);
    simulation.steps(500);
    assert_eq!(simulation.close(2, true), Err(Stays::NoOther));
    assert_eq!(simulation.want(2, 0), Err(Stays::Elsewhere));
    assert_eq!(simulation.close(0, true), Ok(()));
    assert_eq!(simulation.close(1, true), Err(Stays::NoOther));
    simulation.steps(500);
    assert_eq!(simulation.counts(3), [0, 2, 1]);
}

/// A policy that takes nobody keeps the CPU on: what did not fit is where it was.
#[test]
fn a_cpu_whose_vcpus_fit_nowhere_stays_on() {
    let plans = [plan(Guest::Spins, &[0]), plan(Guest::Spins, &[1])];
    let options = Options {
        policy: PolicyKind::named("null"),
        ..Options::default()
    };
    let mut simulation = Simulation::plain(2, &plans, 3, options);
    simulation.steps(1_000);
    assert_eq!(simulation.close(0, true), Ok(()), "only the policy knows");
    simulation.steps(100);
    assert!(!simulation.machine.is_closed(cpu(0)));
    assert_eq!(simulation.counts(2), [1, 1]);
    let said = simulation.shown();
    let why =
        "CPU 0 stays on: no other CPU takes vCPU 0 of guest0: the policy takes one vCPU a CPU";
    assert!(said.contains(why), "{said}");
}

fn balanced(cpus: usize, plans: &[Plan], seed: u64, policy: &str) -> Simulation {
    clustered(&vec![0; cpus], plans, seed, policy)
}

/// A machine whose CPUs are in these clusters.
fn clustered(clusters: &[u8], plans: &[Plan], seed: u64, policy: &str) -> Simulation {
    let mut options = Options {
        policy: PolicyKind::named(policy),
        balancer: Some(Balancer::Load),
        ..Options::default()
    };
    options.clusters[..clusters.len()].copy_from_slice(clusters);
    Simulation::plain(clusters.len(), plans, seed, options)
}

/// Time is in microseconds.
#[test]
fn four_spinners_on_one_of_two_cpus_are_two_each_within_8_ms() {
    for policy in ["round-robin", "fair", "bvt", "edf", "priority"] {
        let plans: Vec<_> = (0..4).map(|_| plan(Guest::Spins, &[0])).collect();
        let mut simulation = balanced(2, &plans, 7, policy);
        while simulation.starts() != [1; 4] {
            assert!(simulation.step());
        }
        let start = simulation.world.borrow().now;
        while simulation.counts(2) != [2, 2] {
            assert!(simulation.step(), "nothing happens");
        }
        let took = simulation.world.borrow().now - start;
        assert!(took <= 8_000, "{policy}: {took} us");
        let moves = simulation.moves();
        simulation.until(start + 200_000);
        assert_eq!((simulation.moves(), moves), (2, 2), "{policy}");
    }
}

/// A vCPU that wakes on a busy CPU does not wait while another CPU is idle.
#[test]
fn an_idle_cpu_takes_what_waits() {
    let plans = [plan(Guest::Spins, &[0]), plan(Guest::Works, &[0])];
    let mut simulation = balanced(2, &plans, 5, "fair");
    simulation.steps(3_000);
    assert_eq!(simulation.counts(2), [1, 1]);
    let moves = simulation.moves();
    simulation.steps(20_000);
    assert_eq!(simulation.moves(), moves, "and stays there");
}

/// An idle CPU of another cluster is left alone while the own one has another.
#[test]
fn vcpus_stay_in_their_cluster_while_it_has_room() {
    for clusters in [[0, 0, 1, 1], [1, 0, 1, 0]] {
        let near = (1..4).find(|cpu| clusters[*cpu] == clusters[0]).unwrap();
        let plans = [plan(Guest::Spins, &[0]), plan(Guest::Spins, &[0])];
        let mut simulation = clustered(&clusters, &plans, 5, "fair");
        simulation.until(200_000);
        let mut expected = vec![1, 0, 0, 0];
        expected[near] = 1;
        assert_eq!((simulation.counts(4), simulation.moves()), (expected, 1));
    }
}

/// A cluster with more than its part gives vCPUs to another one.
#[test]
fn clusters_become_equal() {
    let plans: Vec<_> = (0..4).map(|_| plan(Guest::Spins, &[0])).collect();
    let mut simulation = clustered(&[0, 0, 1, 1], &plans, 5, "fair");
    simulation.until(200_000);
    assert_eq!(simulation.counts(4), [1; 4]);
}

/// A closed CPU gives its vCPUs to its own cluster, if a CPU there has as few.
#[test]
fn vcpus_of_a_closed_cpu_stay_in_their_cluster() {
    for clusters in [[1, 0, 1], [1, 1, 0]] {
        let near = (1..3).find(|cpu| clusters[*cpu] == clusters[0]).unwrap();
        let mut simulation = clustered(&clusters, &[plan(Guest::Spins, &[0])], 5, "fair");
        simulation.steps(500);
        assert_eq!(simulation.close(0, true), Ok(()));
        simulation.steps(200);
        let place = simulation.place(0);
        assert_eq!((place.cpu, place.stage), (cpu(near), Stage::Ready));
    }
}

#[test]
fn vcpus_with_one_cpu_are_not_moved() {
    let alone = |cpus: usize| Plan {
        affinity: Some(CpuSet::first(cpus)),
        ..plan(Guest::Spins, &[0])
    };
    let mut simulation = balanced(2, &[alone(1), alone(1), alone(1)], 5, "fair");
    simulation.steps(5_000);
    assert_eq!((simulation.counts(2), simulation.moves()), (vec![3, 0], 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A balancer ends: with a constant load, no vCPU moves once the CPUs have equally many,
    /// whatever clusters they are in.
    #[test]
    fn the_balancer_ends(
        (clusters, places) in (2..5_usize).prop_flat_map(|cpus| (
            proptest::collection::vec(0..2_u8, cpus),
            proptest::collection::vec(0..cpus, 1..10),
        )),
        policy in policy(),
        seed in any::<u64>(),
    ) {
        let plans: Vec<_> = places.iter().map(|&cpu| plan(Guest::Spins, &[cpu])).collect();
        let cpus = clusters.len();
        let mut simulation = clustered(&clusters, &plans, seed, policy.name);
        simulation.until(100_000);
        let (counts, moves) = (simulation.counts(cpus), simulation.moves());
        let (most, least) = (counts.iter().max().unwrap(), counts.iter().min().unwrap());
        prop_assert!(most - least <= 1, "{counts:?}");
        prop_assert!(moves <= places.len() as u64, "{moves} moves");
        simulation.until(400_000);
        prop_assert_eq!(simulation.moves(), moves);
        simulation.check_places(plans.len());
    }

    /// Guests that do everything, moves that cross them, restarts of Gear2 in the middle: no vCPU
    /// is lost or on two CPUs. The simulator checks each decision.
    #[test]
    fn moves_lose_and_double_no_vcpu(
        (cpus, plans) in plans(),
        policy in policy(),
        seed in any::<u64>(),
        wishes in proptest::collection::vec((any::<u8>(), any::<u8>(), 0..8_u8, 1..200_usize), 120),
    ) {
        let mut simulation = balanced(cpus, &plans, seed, policy.name);
        let vcpus: usize = plans.iter().map(|plan| plan.cpus.len()).sum();
        for (vcpu, to, what, steps) in wishes {
            let (vcpu, to) = (usize::from(vcpu) % vcpus, usize::from(to) % cpus);
            match what {
                0 if simulation.restarts().0 < 12 => simulation.fail_in(u64::from(steps as u8)),
                1 => {
                    let _ = simulation.close(to, !simulation.machine.is_closed(cpu(to)));
                }
                2 => simulation.type_keys(&[7, b'0' + (vcpu % plans.len()) as u8, b'x', 7, b'r']),
                _ => {
                    let _ = simulation.want(vcpu, to);
                }
            }
            simulation.steps(steps);
        }
        simulation.world.borrow_mut().fails_in = None;
        simulation.world.borrow_mut().disorder = false;
        let all: Vec<_> = (0..plans.len()).map(|vm| (vm as u8, b't')).collect();
        live(&mut simulation, plans.len(), &all);
        simulation.world.borrow_mut().frozen = true;
        for index in 0..cpus {
            let _ = simulation.close(index, false);
        }
        simulation.steps(6_000);
        simulation.check_places(vcpus);
        prop_assert_eq!(simulation.vm_states(), vec![VmState::Running; plans.len()]);
        // Under `fair`, a vCPU that has used much waits for the others as long.
        let before = simulation.used();
        let waits = |simulation: &Simulation, vcpu: usize| {
            let ran = simulation.used()[vcpu] > before[vcpu];
            !ran && simulation.is_in(vcpu, VcpuState::Ready)
        };
        let mut steps = 0;
        while steps < 60_000 && (0..vcpus).any(|vcpu| waits(&simulation, vcpu)) {
            simulation.steps(1_000);
            steps += 1_000;
        }
        let waiting: Vec<_> = (0..vcpus).filter(|vcpu| waits(&simulation, *vcpu)).collect();
        prop_assert!(waiting.is_empty(), "{:?} never run", waiting);
    }
}

/// A CPU leaves and comes back 1,000 times, under guests that sleep and wake all the time.
#[test]
fn a_cpu_goes_and_comes_1000_times_without_a_lost_wake_up() {
    let plans = [
        plan(Guest::Works, &[0, 1, 2]),
        plan(Guest::Works, &[2, 1]),
        plan(Guest::Spins, &[0]),
        plan(Guest::Works, &[1]),
    ];
    let mut simulation = balanced(3, &plans, 77, "fair");
    simulation.world.borrow_mut().disorder = false;
    simulation.steps(2_000);
    for time in 0..1_000 {
        let index = time % 3;
        assert_eq!(simulation.close(index, true), Ok(()));
        let mut steps = 0;
        while simulation.counts(3)[index] != 0 {
            assert!(simulation.step(), "nothing happens");
            steps += 1;
            assert!(
                steps < 5_000,
                "CPU {index} keeps {:?}",
                simulation.counts(3)
            );
        }
        let before = simulation.used();
        simulation.steps(60);
        assert_eq!(simulation.close(index, false), Ok(()));
        simulation.steps(60);
        if time % 50 == 0 {
            simulation.steps(3_000);
            let used = simulation.used();
            let still = (0..used.len()).filter(|vcpu| used[*vcpu] == before[*vcpu]);
            let still: Vec<_> = still
                .filter(|vcpu| !simulation.is_in(*vcpu, VcpuState::Off))
                .collect();
            assert!(still.is_empty(), "{still:?} never ran");
        }
    }
}

#[test]
fn a_restarted_gear2_finds_every_vcpu_where_it_was() {
    let plans = [plan(Guest::Works, &[0, 0]), plan(Guest::Spins, &[0])];
    let mut simulation = Simulation::new(3, &plans, 9);
    simulation.steps(1_000);
    simulation.want(0, 1).unwrap();
    simulation.want(2, 2).unwrap();
    simulation.steps(300);
    assert_eq!(simulation.counts(3), [1, 1, 1]);
    simulation.restart(1);
    simulation.steps(1_000);
    assert_eq!(simulation.counts(3), [1, 1, 1]);
    simulation.check_places(3);
    assert_eq!(simulation.starts(), [1, 1], "not from the beginning");
    let before = simulation.used();
    simulation.steps(2_000);
    assert!(simulation.used()[0] > before[0]);
}
