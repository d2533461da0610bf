//! VMs that change their pools: whole, or not at all.

use gear1_abi::call::VcpuState;
use gear1_abi::id::VmId;
use gearv_manifest::{CpuSet, Supply};

use super::*;
use crate::config::PoolConfig;
use crate::machine::{Parameter, Stays};
use crate::scheduler::{Admission, Refused, Window};
use crate::simulator::Options;

/// Places of the pools.
const DEFAULT: usize = 0;
const OWN: usize = 1;

fn vm(index: usize) -> VmId {
    VmId::new(index).unwrap()
}

impl Simulation {
    fn change_pool(&self, index: usize, to: usize) -> Result<(), Stays> {
        self.by_hand(|gear1| self.machine.change_pool(gear1, vm(index), to))
    }

    fn set_share(&mut self, index: usize, parameter: Parameter) {
        let set = self.by_hand(|gear1| self.machine.change_share(gear1, vm(index), parameter));
        assert_eq!(set, Ok(()));
        self.steps(100);
    }

    /// Waits until a change has ended, and returns why the VM has stayed.
    fn ends(&mut self, index: usize) -> Option<Stays> {
        for _ in 0..2_000 {
            let shares = self.machine.shares.lock();
            if !shares.is_changing() {
                return shares.refusal(vm(index));
            }
            drop(shares);
            assert!(self.step(), "nothing happens");
        }
        panic!("the change does not end");
    }

    /// Tells whether a vCPU has run, or does not wait: what one alone used is known with its next
    /// exit.
    fn runs(&self, vcpu: usize, before: &[u64]) -> bool {
        self.used()[vcpu] > before[vcpu] || !self.is_in(vcpu, VcpuState::Ready)
    }

    /// Checks that all vCPUs of a VM are in the VM's pool, and returns the pool.
    fn pool_of(&self, index: usize) -> usize {
        let place = self.machine.pools.place(vm(index));
        for (vcpu, config) in self.machine.config.vcpus() {
            let cpu = self.machine.placement.cpu(vcpu);
            let pool = self.machine.config.pool_place(cpu);
            assert!(
                config.vm != vm(index) || pool == place,
                "{vcpu:?} is on {cpu:?}"
            );
        }
        place
    }
}

/// Makes a machine whose last CPUs are a pool of their own.
fn split(cpus: usize, own_pool: usize, own: fn(&mut PoolConfig), plans: &[Plan]) -> Simulation {
    let options = Options {
        own_pool,
        own: Some(own),
        ..Options::default()
    };
    let mut simulation = Simulation::plain(cpus, plans, 5, options);
    // Budgets and windows leave a CPU idle beside ready vCPUs.
    let policy = simulation.machine.config.pools[0].policy.name;
    simulation.world.borrow_mut().conserves = !matches!(policy, "edf" | "arinc653");
    simulation.steps(1_000);
    simulation
}

fn fair(pool: &mut PoolConfig) {
    pool.policy = PolicyKind::named("fair").unwrap();
}

fn null(pool: &mut PoolConfig) {
    pool.policy = PolicyKind::named("null").unwrap();
}

fn edf(pool: &mut PoolConfig) {
    pool.policy = PolicyKind::named("edf").unwrap();
    pool.plan.admission = Admission {
        counter_hz: 1_000_000,
        switch_ns: 2_000,
        supply: Supply::WHOLE,
    };
}

#[test]
fn a_vm_goes_to_another_pool_and_back() {
    for guest in [Guest::Spins, Guest::Works] {
        let plans = [plan(guest, &[0, 1]), plan(Guest::Spins, &[0])];
        let mut simulation = split(4, 2, fair, &plans);
        assert_eq!(simulation.change_pool(0, OWN), Ok(()));
        assert_eq!(simulation.ends(0), None);
        assert_eq!(simulation.pool_of(0), OWN);
        assert_eq!(simulation.counts(4), [1, 0, 1, 1], "each CPU has one");
        assert_eq!(simulation.want(0, 0), Err(Stays::Elsewhere));
        assert_eq!(simulation.pool_of(1), DEFAULT);
        simulation.steps(1_000);
        let before = simulation.used();
        simulation.steps(3_000);
        simulation.check_places(3);
        assert!((0..3).all(|vcpu| simulation.runs(vcpu, &before)));
        assert_eq!(simulation.change_pool(0, DEFAULT), Ok(()));
        assert_eq!(simulation.ends(0), None);
        assert_eq!(simulation.pool_of(0), DEFAULT);
    }
}

/// In the manifest's pool, the manifest's CPUs count; in another one, all of its CPUs.
#[test]
fn a_vm_comes_back_to_its_own_cpus() {
    let bound = Plan {
        affinity: Some(CpuSet::first(1)),
        ..plan(Guest::Spins, &[0, 0])
    };
    let mut simulation = split(4, 2, fair, &[bound, plan(Guest::Spins, &[1])]);
    for _ in 0..3 {
        assert_eq!(simulation.change_pool(0, OWN), Ok(()));
        assert_eq!(simulation.ends(0), None);
        assert_eq!(simulation.counts(4), [0, 1, 1, 1]);
        assert_eq!(simulation.change_pool(0, DEFAULT), Ok(()));
        assert_eq!(simulation.ends(0), None);
        assert_eq!(simulation.counts(4), [2, 1, 0, 0]);
    }
}

/// The agreement for the other vCPU is called off: its room is free for another VM.
#[test]
fn a_pool_that_refuses_one_vcpu_gets_none() {
    let plans = [
        plan(Guest::Spins, &[0, 1]),
        plan(Guest::Works, &[0]),
        plan(Guest::Spins, &[1]),
    ];
    let mut simulation = split(3, 1, null, &plans);
    let full = Some(Stays::Policy(Refused::Full));
    assert_eq!(simulation.change_pool(0, OWN), Ok(()));
    assert_eq!(simulation.ends(0), full);
    assert_eq!(simulation.counts(3), [2, 2, 0]);
    assert_eq!(simulation.pool_of(0), DEFAULT);
    assert_eq!(simulation.want(0, 2), Err(Stays::Elsewhere));
    assert_eq!(simulation.want(0, 1), Ok(()));
    assert_eq!(simulation.change_pool(1, OWN), Ok(()));
    assert_eq!(simulation.ends(1), None);
    assert_eq!(simulation.change_pool(2, OWN), Ok(()));
    assert_eq!(simulation.ends(2), full);
    assert_eq!(
        (simulation.pool_of(1), simulation.pool_of(2)),
        (OWN, DEFAULT)
    );
    simulation.steps(3_000);
    simulation.check_places(4);
}

/// A CPU that has no room leaves a vCPU to the next one.
#[test]
fn each_cpu_of_the_pool_is_asked() {
    let plans = [
        plan(Guest::Spins, &[2]),
        plan(Guest::Works, &[0, 1, 0]),
        plan(Guest::Spins, &[0]),
    ];
    let mut simulation = split(6, 4, null, &plans);
    assert_eq!(simulation.change_pool(1, OWN), Ok(()));
    assert_eq!(simulation.ends(1), None);
    assert_eq!(simulation.counts(6), [1, 0, 1, 1, 1, 1]);
    assert_eq!(simulation.change_pool(2, OWN), Ok(()));
    assert_eq!(simulation.ends(2), Some(Stays::Policy(Refused::Full)));
}

#[test]
fn budgets_are_admitted_by_the_pool() {
    let plans = [
        plan(Guest::Spins, &[0]),
        plan(Guest::Spins, &[0]),
        plan(Guest::Spins, &[0]),
    ];
    let mut simulation = split(2, 1, edf, &plans);
    for (index, us) in [600, 500, 300].into_iter().enumerate() {
        // Round-robin reads no budgets: 1.4 CPUs fit there.
        simulation.set_share(index, Parameter::Server(us, 1_000));
    }
    let overload = Some(Stays::Policy(Refused::Overload));
    for (index, why) in [(0, None), (1, overload), (2, None)] {
        assert_eq!(simulation.change_pool(index, OWN), Ok(()));
        assert_eq!(simulation.ends(index), why, "VM {index}");
    }
    assert_eq!(simulation.counts(2), [1, 2]);
    // A smaller budget fits.
    simulation.set_share(1, Parameter::Server(50, 1_000));
    assert_eq!(
        simulation.machine.share(vm(1)).server.map(|b| b.ticks),
        Some(50)
    );
    assert_eq!(simulation.change_pool(1, OWN), Ok(()));
    assert_eq!(simulation.ends(1), None);
    assert_eq!(simulation.counts(2), [0, 3]);
}

/// Windows are parts of one pool's frame.
#[test]
fn windows_keep_a_vm_in_its_pool_and_others_out() {
    let full = |pool: &mut PoolConfig| {
        pool.policy = PolicyKind::named("arinc653").unwrap();
        pool.plan.frame = 2_000;
        pool.plan.windows = vec![
            Window {
                start: 0,
                length: 1_000,
                vm: VmId::new(1),
            },
            Window {
                start: 1_000,
                length: 1_000,
                vm: VmId::new(2),
            },
        ];
    };
    let plans = [0, 1, 1].map(|cpu| plan(Guest::Spins, &[cpu]));
    let mut simulation = split(2, 1, full, &plans);
    assert_eq!(simulation.change_pool(0, OWN), Err(Stays::NoWindow));
    assert_eq!(simulation.change_pool(1, DEFAULT), Err(Stays::Window));
    simulation.steps(100);
    assert_eq!(simulation.counts(2), [1, 2]);
}

#[test]
fn pins_closed_cpus_and_other_changes_keep_a_vm_in_its_pool() {
    let plans = [plan(Guest::Spins, &[0, 1]), plan(Guest::Works, &[0])];
    let mut simulation = split(4, 2, fair, &plans);
    let pin = VcpuId::new(1).unwrap();
    simulation.machine.set_pin(pin, CpuIndex::new(1));
    assert_eq!(simulation.change_pool(0, OWN), Err(Stays::Pinned));
    simulation.machine.set_pin(pin, None);
    assert_eq!(simulation.change_pool(0, 2), Err(Stays::NoOther));
    // Parameters, moves out of the pool and closed CPUs wait for the change.
    assert_eq!(simulation.change_pool(0, OWN), Ok(()));
    assert_eq!(simulation.change_pool(1, OWN), Err(Stays::Changes));
    assert_eq!(simulation.close(0, true), Err(Stays::Changes));
    let weight = Parameter::Weight(200);
    let set = simulation.by_hand(|gear1| simulation.machine.change_share(gear1, vm(0), weight));
    assert_eq!(set, Err(Stays::Changes));
    assert_eq!(simulation.ends(0), None);
    // Both CPUs of the pool cannot be closed, and one that is takes nobody.
    assert_eq!(simulation.close(3, true), Ok(()));
    simulation.steps(300);
    assert_eq!(simulation.change_pool(1, OWN), Ok(()));
    assert_eq!(simulation.ends(1), None);
    assert_eq!(simulation.counts(4), [0, 0, 3, 0]);
}

/// A priority that was harmless in another pool.
#[test]
fn a_vm_that_would_starve_the_device_vm_stays() {
    let priority = |pool: &mut PoolConfig| pool.policy = PolicyKind::named("priority").unwrap();
    let options = Options {
        own_pool: 1,
        own: Some(priority),
        ..Options::default()
    };
    let plans = [
        plan(Guest::Works, &[1]),
        plan(Guest::Works, &[0]),
        plan(Guest::Works, &[0]),
    ];
    let mut simulation = Simulation::with_options(2, &plans, 3, options);
    simulation.steps(1_000);
    simulation.set_share(1, Parameter::Priority(17));
    let starves = Err(Stays::Policy(Refused::Starves));
    assert_eq!(simulation.change_pool(1, OWN), starves);
    assert_eq!(simulation.change_pool(2, OWN), Ok(()));
    assert_eq!(simulation.ends(2), None);
    // Nor does the device VM go where it would starve.
    assert_eq!(simulation.change_pool(0, DEFAULT), Ok(()));
    assert_eq!(simulation.ends(0), None);
    assert_eq!(simulation.change_pool(1, OWN), Ok(()));
    assert_eq!(simulation.ends(1), None);
    assert_eq!(simulation.change_pool(0, OWN), starves);
}

/// A Gear2 that fails anywhere in a change forgets or ends it: the VM is in one pool.
#[test]
fn a_restarted_gear2_finds_a_vm_in_one_pool() {
    let (mut forgotten, mut ended) = (0, 0);
    for calls in 0..40 {
        let plans = [plan(Guest::Spins, &[0, 1, 0]), plan(Guest::Works, &[1])];
        let mut simulation = split(4, 2, fair, &plans);
        simulation.world.borrow_mut().disorder = false;
        assert_eq!(simulation.change_pool(0, OWN), Ok(()));
        simulation.fail_in(calls);
        simulation.steps(1_500);
        simulation.world.borrow_mut().fails_in = None;
        assert_eq!(simulation.ends(0), None);
        assert!(simulation.restarts().0 <= 1);
        match simulation.pool_of(0) {
            OWN => ended += 1,
            _ => forgotten += 1,
        }
        assert_eq!(simulation.pool_of(1), DEFAULT);
        simulation.check_places(4);
        let before = simulation.used();
        simulation.steps(2_000);
        assert!((0..3).all(|vcpu| simulation.runs(vcpu, &before)));
        assert_eq!(simulation.starts(), [1, 1], "not from the beginning");
    }
    assert!(
        forgotten >= 3 && ended >= 3,
        "{forgotten} forgotten, {ended} ended"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Guests that do everything, moves, closed CPUs, a balancer and restarts of Gear2 beside changes
    /// of pools: each VM is in one pool, and each of its vCPUs runs.
    #[test]
    fn changes_of_pools_lose_no_vcpu(
        guests in proptest::collection::vec((any::<bool>(), 1..4_usize), 1..4),
        seed in any::<u64>(),
        null_pool in any::<bool>(),
        wishes in proptest::collection::vec((any::<u8>(), any::<u8>(), 0..8_u8, 1..200_usize), 80),
    ) {
        let plans: Vec<_> = guests
            .iter()
            .map(|&(spins, count)| {
                let guest = if spins { Guest::Spins } else { Guest::Works };
                plan(guest, &[0, 1, 0][..count])
            })
            .collect();
        let options = Options {
            own_pool: 2,
            own: Some(if null_pool { null } else { fair }),
            balancer: Some(gearv_manifest::Balancer::Load),
            ..Options::default()
        };
        let mut simulation = Simulation::plain(4, &plans, seed, options);
        simulation.world.borrow_mut().disorder = false;
        simulation.steps(500);
        let vcpus: usize = plans.iter().map(|plan| plan.cpus.len()).sum();
        for (which, to, what, steps) in wishes {
            let (which, to) = (usize::from(which), usize::from(to));
            match what {
                0 if simulation.restarts().0 < 6 => simulation.fail_in(u64::from(steps as u8)),
                1 => {
                    let closed = simulation.machine.is_closed(CpuIndex::new(to % 4).unwrap());
                    let _ = simulation.close(to % 4, !closed);
                }
                2 => {
                    let _ = simulation.want(which % vcpus, to % 4);
                }
                _ => {
                    let _ = simulation.change_pool(which % plans.len(), to % 2);
                }
            }
            simulation.steps(steps);
        }
        simulation.world.borrow_mut().fails_in = None;
        for index in 0..4 {
            let _ = simulation.close(index, false);
        }
        simulation.ends(0);
        simulation.steps(3_000);
        for index in 0..plans.len() {
            simulation.pool_of(index);
        }
        let before = simulation.used();
        let mut steps = 0;
        let waits = |simulation: &Simulation, vcpu: usize| {
            simulation.used()[vcpu] == before[vcpu] && simulation.is_in(vcpu, VcpuState::Ready)
        };
        while steps < 60_000 && (0..vcpus).any(|vcpu| waits(&simulation, vcpu)) {
            simulation.steps(1_000);
            steps += 1_000;
        }
        let waiting: Vec<_> = (0..vcpus).filter(|vcpu| waits(&simulation, *vcpu)).collect();
        prop_assert!(waiting.is_empty(), "{:?} never run", waiting);
    }
}
