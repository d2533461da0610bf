//! Waits of which Gear2 hears late or never: by decision, and in accounts.

use gear1_abi::call::Waits;
use gear2_protocol::{op, outcome};
use gearv_manifest::Balancer;

use super::*;
use crate::simulator::Options;

impl Simulation {
    /// Runs until CPU `cpu` has a vCPU that runs. Returns what its WFI does.
    fn waits_on(&mut self, cpu: usize) -> Waits {
        for _ in 0..1_000 {
            self.step();
            if let Some(waits) = self.waits(cpu) {
                return waits;
            }
        }
        panic!("nobody runs on CPU {cpu}");
    }

    /// Tells whether WFI of CPU `cpu` comes to do this.
    fn comes_to(&mut self, cpu: usize, waits: Waits) -> bool {
        (0..2_000).any(|_| self.waits_on(cpu) == waits)
    }
}

#[test]
fn the_only_vcpu_of_a_cpu_waits_inside_its_guest() {
    let plans = [plan(Guest::Works, &[0]), plan(Guest::Works, &[1, 1])];
    let mut simulation = Simulation::plain(2, &plans, 3, Options::default());
    for _ in 0..100 {
        assert_eq!(simulation.waits_on(0), Waits::Alone);
    }
    assert!(simulation.comes_to(1, Waits::Stays));
    assert!(simulation.comes_to(1, Waits::GivesWay));
    assert!(!simulation.comes_to(1, Waits::Alone));
}

/// Gear2 looks for how long such a vCPU runs.
#[test]
fn a_watched_vcpu_waits_inside_gear1() {
    let watched = Plan {
        progress: 1_000_000,
        ..plan(Guest::Works, &[0])
    };
    let mut simulation = Simulation::plain(1, &[watched], 3, Options::default());
    assert!(simulation.comes_to(0, Waits::Stays));
    assert!(!simulation.comes_to(0, Waits::Alone));
}

/// The balancer counts ready vCPUs.
#[test]
fn a_balancer_hears_of_all_waits() {
    let options = Options {
        balancer: Some(Balancer::Load),
        ..Options::default()
    };
    let plans = [plan(Guest::Works, &[0]), plan(Guest::Works, &[1, 1])];
    let mut simulation = Simulation::plain(2, &plans, 3, options);
    for cpu in [0, 1] {
        assert!(!simulation.comes_to(cpu, Waits::Stays));
        assert!(!simulation.comes_to(cpu, Waits::Alone));
    }
}

/// Whoever looks at an account gets a true one: WFI traps from then on, for a while.
#[test]
fn waits_are_seen_while_somebody_looks() {
    let plans = [plan(Guest::Works, &[0]), plan(Guest::Works, &[1])];
    let mut simulation = Simulation::with_device_model(2, &plans, 9);
    assert!(simulation.comes_to(1, Waits::Alone));
    let unseen = [1, 0, 0, 0, 0, 0];
    let asked = simulation.control(op::VCPU_UNSEEN, [1, 0]);
    assert_eq!(asked, (outcome::OK, unseen));
    assert_eq!(simulation.control(op::VCPU_INFO, [1, 0]).0, outcome::OK);
    assert!(simulation.comes_to(1, Waits::Stays));
    for _ in 0..50 {
        assert_ne!(simulation.waits_on(1), Waits::Alone);
    }
}
