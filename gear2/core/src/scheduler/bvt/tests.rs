//! Shares and warps of the borrowed-virtual-time policy.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::scheduler::Plan;
use crate::scheduler::harness::{Harness, Load, share};

const SLICE: u64 = 2_500;

fn plan() -> Plan {
    Plan {
        slice: SLICE,
        ..Plan::default()
    }
}

fn with(index: usize, weight: u64, latency: u64) -> Share {
    Share {
        weight,
        latency,
        ..share(index)
    }
}

#[test]
fn a_light_guest_with_a_warp_never_waits() {
    for spinners in 1..8 {
        for period in [970, 1_000, 3_333] {
            let mut tasks: Vec<_> = (1..=spinners).map(|i| (share(i), Load::Spins)).collect();
            let load = Load::Periodic {
                period,
                work: 3,
                phase: 77,
            };
            tasks.insert(0, (with(0, 100, 10 * SLICE), load));
            let mut cpu = Harness::new("bvt", &plan(), &tasks, 1);
            cpu.run_until(2_000_000);
            assert_eq!(
                cpu.tasks[0].latency, 0,
                "{spinners} spinners, period {period}"
            );
        }
    }
}

/// A warp changes when a vCPU runs, not how much.
#[test]
fn a_warp_earns_no_share() {
    let tasks = [(with(0, 100, 50_000), Load::Spins), (share(1), Load::Spins)];
    let mut cpu = Harness::new("bvt", &plan(), &tasks, 1);
    cpu.run_until(5_000_000);
    assert!(
        cpu.tasks[0].used.abs_diff(2_500_000) <= 2 * SLICE,
        "{}",
        cpu.tasks[0].used
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Two vCPUs that are always ready differ by at most two allowances of each, divided by weight.
    #[test]
    fn spinners_share_by_weight(
        weights in proptest::collection::vec(1..=1000_u64, 2..6),
        sleepers in 0..3_usize,
        seed in any::<u64>(),
    ) {
        let mut tasks: Vec<_> = weights.iter().enumerate()
            .map(|(index, weight)| (with(index, *weight, 0), Load::Spins)).collect();
        for _ in 0..sleepers {
            let load = Load::Random { work: 2_000, sleep: 9_000 };
            tasks.push((with(tasks.len(), 100, SLICE), load));
        }
        let mut cpu = Harness::new("bvt", &plan(), &tasks, seed);
        cpu.noise = 700;
        cpu.run_until(1_000_000);
        let service = |index: usize| cpu.tasks[index].used * 1_000 / weights[index];
        let slice = |index: usize| SLICE * 1_000 / weights[index];
        for a in 0..weights.len() {
            for b in 0..a {
                let bound = 2 * (slice(a) + slice(b));
                prop_assert!(service(a).abs_diff(service(b)) <= bound + bound / 20);
            }
        }
    }
}
