//! Shares and warps of the borrowed-virtual-time policy.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::scheduler::harness::{Harness, Load, share};
use crate::scheduler::{Plan, Weight};

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
    for spinners in [1, 2, 7, 31] {
        for period in [970, 1_000, 3_333] {
            let mut cpu =
                Harness::light_beside("bvt", &plan(), with(0, 100, 10 * SLICE), period, spinners);
            cpu.run_until(2_000_000);
            assert_eq!(cpu.latency(0, 0), 0, "{spinners} spinners, period {period}");
        }
    }
}

/// One of three equal spinners waits for a turn of each other one, and no longer: nobody runs for
/// two slices to get ahead of those that are ahead of it.
#[test]
fn equal_spinners_take_turns_of_a_slice() {
    let tasks: Vec<_> = (0..3).map(|i| (share(i), Load::Spins)).collect();
    let mut cpu = Harness::new("bvt", &plan(), &tasks, 1);
    cpu.run_until(1_000_000);
    for index in 0..3 {
        assert!(cpu.gap(index) <= 2 * SLICE, "{}", cpu.gap(index));
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

    /// Between two vCPUs that are always ready, the service divided by the weight differs by at
    /// most an allowance of each, over any window and beside any load. A vCPU that sleeps and wakes
    /// gets no more than one that is always ready, but for its warp and the use that ends it.
    #[test]
    fn shares_follow_weights(
        weights in proptest::collection::vec(1..=1000_u64, 2..6),
        sleepers in proptest::collection::vec(
            (1..=1000_u64, 0..100_000_u64, 1..9_000_u64, 1..9_000_u64), 0..4),
        seed in any::<u64>(),
    ) {
        let mut tasks: Vec<_> = weights.iter().enumerate()
            .map(|(index, weight)| (with(index, *weight, 0), Load::Spins)).collect();
        for (weight, latency, work, sleep) in sleepers {
            tasks.push((with(tasks.len(), weight, latency), Load::Random { work, sleep }));
        }
        let mut cpu = Harness::new("bvt", &plan(), &tasks, seed);
        cpu.noise = 700;
        let virtual_ticks = |index: usize, ticks: u64| ticks * 1_000_000 / tasks[index].0.weight;
        let mut samples: Vec<Vec<u64>> = Vec::new();
        for sample in 1..=20 {
            cpu.run_until(sample * 50_000);
            let services = cpu.tasks.iter().enumerate();
            samples.push(services.map(|(index, task)| virtual_ticks(index, task.used)).collect());
        }
        let slice = |index: usize| virtual_ticks(index, SLICE + 1);
        let windows = samples.iter().enumerate();
        let windows = windows.flat_map(|(end, last)| samples[..end].iter().map(move |first| (first, last)));
        for (first, last) in windows {
            for a in 0..weights.len() {
                for b in (0..tasks.len()).filter(|b| *b != a) {
                    let warp = tasks[b].0.latency * 10_000;
                    let bound = last[a] - first[a] + slice(a) + slice(b) + warp + 2;
                    prop_assert!(last[b] - first[b] <= bound, "{b} beside {a}");
                }
            }
        }
    }

    /// Nobody waits longer than a bound: until all others have caught up with its own turn and its
    /// warp, each with a warp of its own, and an allowance of each.
    #[test]
    fn nobody_waits_for_ever(
        tasks in proptest::collection::vec(
            (1..=1000_u64, prop_oneof![Just(0), 0..20_000_u64], 1..9_000_u64, 0..9_000_u64), 2..8),
        seed in any::<u64>(),
    ) {
        let tasks: Vec<_> = tasks.iter().enumerate().map(|(index, &(weight, latency, work, sleep))| {
            let load = if sleep < 1_000 { Load::Spins } else { Load::Random { work, sleep } };
            (with(index, weight, latency), load)
        }).collect();
        let mut cpu = Harness::new("bvt", &plan(), &tasks, seed);
        cpu.noise = 900;
        cpu.run_until(500_000);
        let warp = |index: usize| Weight::DEFAULT.virtual_time(tasks[index].0.latency);
        for (index, (own, _)) in tasks.iter().enumerate() {
            let ahead = Weight::of(own).virtual_time(SLICE + 1) + warp(index);
            let bound: u64 = (0..tasks.len()).filter(|other| *other != index)
                .map(|other| Weight::of(&tasks[other].0).ticks(ahead + warp(other)) + 2 * SLICE).sum();
            prop_assert!(cpu.gap(index) <= bound, "{index}: {} of {bound}", cpu.gap(index));
        }
    }
}
