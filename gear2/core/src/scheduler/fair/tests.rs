//! Shares, caps, and wake-ups of the fair policy.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::scheduler::harness::{Harness, Load, share};
use crate::scheduler::{Budget, Plan};

const SLICE: u64 = 2_500;

fn plan() -> Plan {
    Plan {
        slice: SLICE,
        ..Plan::default()
    }
}

fn weighted(index: usize, weight: u64) -> Share {
    Share {
        weight,
        ..share(index)
    }
}

fn capped(index: usize, ticks: u64, period: u64) -> Share {
    Share {
        cap: Some(Budget { ticks, period }),
        ..share(index)
    }
}

#[test]
fn weights_are_kept_within_a_slice_over_five_seconds() {
    let weights = [100, 200, 400];
    let tasks: Vec<_> = (0..3)
        .map(|i| (weighted(i, weights[i]), Load::Spins))
        .collect();
    let mut cpu = Harness::new("fair", &plan(), &tasks, 1);
    cpu.run_until(5_000_000);
    for (task, weight) in cpu.tasks.iter().zip(weights) {
        assert!(
            task.used.abs_diff(5_000_000 * weight / 700) <= SLICE,
            "{}",
            task.used
        );
    }
    assert!(cpu.switches <= 5_000_000 / SLICE + 3, "{}", cpu.switches);
}

/// A guest that uses less than its share runs at once, beside any number of spinners. In the first
/// round it waits for those that have not run at all, no longer than it has run itself.
#[test]
fn a_light_guest_never_waits() {
    for spinners in 1..8 {
        for period in [970, 1_000, 3_333] {
            let mut tasks: Vec<_> = (1..=spinners).map(|i| (share(i), Load::Spins)).collect();
            let load = Load::Periodic {
                period,
                work: 3,
                phase: 77,
            };
            tasks.insert(0, (share(0), load));
            let mut cpu = Harness::new("fair", &plan(), &tasks, 1);
            cpu.run_until(50_000);
            assert!(cpu.tasks[0].latency <= SLICE, "{}", cpu.tasks[0].latency);
            cpu.tasks[0].latency = 0;
            cpu.run_until(2_000_000);
            assert_eq!(
                cpu.tasks[0].latency, 0,
                "{spinners} spinners, period {period}"
            );
        }
    }
}

#[test]
fn a_long_sleep_earns_one_slice() {
    let sleeper = Load::Periodic {
        period: 1_000_000,
        work: 500_000,
        phase: 900_000,
    };
    let tasks = [(share(0), Load::Spins), (share(1), sleeper)];
    let mut cpu = Harness::new("fair", &plan(), &tasks, 1);
    cpu.run_until(1_000_000);
    assert!(
        cpu.tasks[1].used.abs_diff(50_000) <= 2 * SLICE,
        "{}",
        cpu.tasks[1].used
    );
}

#[test]
fn a_cap_bounds_each_run_and_the_share() {
    let tasks = [
        (capped(0, 2_500, 10_000), Load::Spins),
        (share(1), Load::Spins),
    ];
    let mut cpu = Harness::new("fair", &plan(), &tasks, 1);
    cpu.run_until(5_000_000);
    assert!(
        cpu.tasks[0].used.abs_diff(1_250_000) <= 2_500,
        "{}",
        cpu.tasks[0].used
    );
    assert!(cpu.most_in(0, 10_000) <= 2_500);
}

#[test]
fn a_capped_guest_leaves_the_cpu_idle() {
    let mut cpu = Harness::new(
        "fair",
        &plan(),
        &[(capped(0, 1_000, 4_000), Load::Spins)],
        1,
    );
    cpu.conserves = false;
    cpu.run_until(400_000);
    assert_eq!(cpu.tasks[0].used, 100_000);
}

#[test]
fn virtual_time_is_set_back_and_nobody_notices() {
    let mut policy = Fair::new(SLICE);
    for index in 0..3 {
        let vcpu = VcpuId::from_low_bits(index);
        policy.add(vcpu, &weighted(index, 1), 0).unwrap();
        policy.wake(vcpu, 0);
    }
    let (mut now, mut used) = (0, [0_u64; 3]);
    for _ in 0..9_000 {
        let Choice::Run(run) = policy.pick(now) else {
            panic!("three are ready");
        };
        // Turns of minutes: the loop was not asked for long.
        policy.ran(run.vcpu, 1 << 40, now);
        used[run.vcpu.index()] += 1;
        now += 1 << 40;
    }
    assert_eq!(used, [3_000; 3]);
}

/// What the gears spend for a vCPU that is blocked is its own.
#[test]
fn a_charge_while_blocked_counts() {
    let mut policy = Fair::new(SLICE);
    for index in 0..2 {
        policy
            .add(VcpuId::from_low_bits(index), &share(index), 0)
            .unwrap();
        policy.wake(VcpuId::from_low_bits(index), 0);
    }
    let [spinner, loaded] = [0, 1].map(VcpuId::from_low_bits);
    policy.block(loaded, 0);
    policy.ran(loaded, 10 * SLICE, 0);
    policy.wake(loaded, 0);
    let (mut now, mut alone) = (0, 0);
    while let Choice::Run(run) = policy.pick(now)
        && run.vcpu == spinner
    {
        alone += SLICE;
        now += SLICE;
        policy.ran(spinner, SLICE, now);
    }
    assert_eq!(alone, 10 * SLICE);
}

#[test]
fn a_bad_cap_is_refused() {
    let mut policy = Fair::new(SLICE);
    for (ticks, period) in [(0, 10), (11, 10)] {
        let refused = policy.add(VcpuId::FIRST, &capped(0, ticks, period), 0);
        assert_eq!(refused, Err(Refused::BadBudget));
    }
}

fn load() -> impl Strategy<Value = Load> {
    let random = |(work, sleep)| Load::Random { work, sleep };
    prop_oneof![
        Just(Load::Spins),
        (1..9_000_u64, 1..9_000_u64).prop_map(random),
        // More runs in a period than a cap remembers.
        (1..200_u64, 1..200_u64).prop_map(random),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Between two vCPUs that are always ready, the service divided by the weight differs by at
    /// most a slice of each, over any window and beside any load.
    #[test]
    fn spinners_share_by_weight(
        weights in proptest::collection::vec(1..=1000_u64, 2..6),
        others in proptest::collection::vec((1..=1000_u64, load()), 0..4),
        seed in any::<u64>(),
    ) {
        let mut tasks: Vec<_> = weights.iter().enumerate()
            .map(|(index, weight)| (weighted(index, *weight), Load::Spins)).collect();
        for (weight, load) in &others {
            tasks.push((weighted(tasks.len(), *weight), *load));
        }
        let mut cpu = Harness::new("fair", &plan(), &tasks, seed);
        cpu.noise = 700;
        cpu.run_until(300_000);
        let before: Vec<_> = cpu.tasks.iter().map(|task| task.used).collect();
        cpu.run_until(1_000_000);
        let service = |index: usize| {
            u128::from(cpu.tasks[index].used - before[index]) * 1_000_000 / u128::from(weights[index])
        };
        let slice = |index: usize| u128::from(SLICE) * 1_000_000 / u128::from(weights[index]);
        for a in 0..weights.len() {
            for b in 0..a {
                let bound = slice(a) + slice(b);
                // Virtual time is a whole number after each charge.
                let rounding = bound / 20;
                prop_assert!(service(a).abs_diff(service(b)) <= bound + rounding);
            }
        }
    }

    /// No window as long as the period holds more than the cap, wherever it begins.
    #[test]
    fn no_window_exceeds_a_cap(
        caps in proptest::collection::vec((1..100_u64, 1_000..20_000_u64, load()), 1..5),
        others in proptest::collection::vec(load(), 0..3),
        noise in 0..3_000_u64,
        seed in any::<u64>(),
    ) {
        let budget = |percent: u64, period: u64| (period * percent / 100).max(1);
        let mut tasks: Vec<_> = caps.iter().enumerate().map(|(index, (percent, period, load))| {
            (capped(index, budget(*percent, *period), *period), *load)
        }).collect();
        for load in others {
            tasks.push((share(tasks.len()), load));
        }
        let mut cpu = Harness::new("fair", &plan(), &tasks, seed);
        cpu.conserves = false;
        cpu.noise = noise;
        cpu.run_until(100_000);
        for (index, (percent, period, _)) in caps.iter().enumerate() {
            prop_assert!(cpu.most_in(index, *period) <= budget(*percent, *period));
        }
    }

    /// Nobody waits longer than a bound: a slice of each other one, by weight, and their credits.
    #[test]
    fn nobody_waits_for_ever(count in 2..10_usize, load in load(), seed in any::<u64>()) {
        let mut tasks: Vec<_> = (0..count).map(|index| (share(index), load)).collect();
        tasks[0].1 = Load::Spins;
        let mut cpu = Harness::new("fair", &plan(), &tasks, seed);
        cpu.run_until(500_000);
        let bound = 3 * SLICE * count as u64;
        prop_assert!(cpu.tasks.iter().all(|task| task.gap <= bound));
    }
}
