//! Shares, caps, and wake-ups of the fair policy.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::scheduler::harness::{Harness, Load, any_load, share};
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
    assert!(
        cpu.stretches.len() as u64 <= 5_000_000 / SLICE + 3,
        "{}",
        cpu.stretches.len()
    );
}

/// A guest that uses less than its share runs at once, beside any number of spinners. When all wake
/// up together, those that woke before it keep the CPU for a grain each.
#[test]
fn a_light_guest_never_waits() {
    for spinners in [1, 2, 7, 31] {
        for period in [970, 1_000, 3_333] {
            let mut cpu = Harness::light_beside("fair", &plan(), share(0), period, spinners);
            cpu.run_until(2_000_000);
            let (first, most) = (cpu.latency(0, 0), spinners as u64 * (SLICE / 32 + 1) + 3);
            assert!(first <= most, "{first}: {spinners} spinners");
            let then = cpu.latency(0, SLICE);
            assert_eq!(then, 0, "{spinners} spinners, period {period}");
        }
    }
}

/// All wake up together after an idle time, as after the boot of a machine. The light guest has
/// used a little before; 31 spinners have not, and most of them have not run at all when it wakes
/// again.
#[test]
fn a_light_guest_does_not_wait_for_those_that_have_not_run() {
    let mut policy = Fair::new(SLICE);
    let light = VcpuId::from_low_bits(0);
    for index in 0..32 {
        let vcpu = VcpuId::from_low_bits(index);
        policy.add(vcpu, &share(index), 0).unwrap();
    }
    assert!(matches!(policy.pick(0), Choice::Idle { .. }));
    for index in 0..32 {
        policy.wake(VcpuId::from_low_bits(index), 100_000);
    }
    let (mut now, mut turns) = (100_000, Vec::new());
    while now < 101_000 {
        let Choice::Run(run) = policy.pick(now) else {
            panic!("all are ready");
        };
        let end = if run.vcpu == light {
            now + 3
        } else {
            run.until.min(101_000)
        };
        policy.ran(run.vcpu, end - now, end);
        if run.vcpu == light {
            policy.block(light, end);
        }
        now = end;
        turns.push(run.vcpu);
    }
    assert!(turns.len() < 20, "most have not run");
    policy.wake(light, now);
    assert!(matches!(policy.pick(now), Choice::Run(run) if run.vcpu == light));
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

/// A vCPU that is blocked pays for what the gears spend on it.
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

/// The rest of a division is not lost: a vCPU that exits after every few ticks pays for all.
#[test]
fn short_charges_are_as_dear_as_long_ones() {
    let mut policy = Fair::new(SLICE);
    let [short, long] = [0, 1].map(VcpuId::from_low_bits);
    for vcpu in [short, long] {
        policy.add(vcpu, &weighted(0, 667), 0).unwrap();
        policy.wake(vcpu, 0);
    }
    let (mut now, mut used) = (0, [0; 2]);
    while now < 1_000 * SLICE {
        let Choice::Run(run) = policy.pick(now) else {
            panic!("two are ready");
        };
        let ticks = if run.vcpu == short {
            10
        } else {
            run.until - now
        };
        now += ticks;
        used[run.vcpu.index()] += ticks;
        policy.ran(run.vcpu, ticks, now);
    }
    assert!(used[0].abs_diff(used[1]) <= 2 * SLICE, "{used:?}");
}

/// Time beyond a cap is paid later, so the share holds although each run is too long.
#[test]
fn an_overrun_of_a_cap_is_a_debt() {
    let mut policy = Fair::new(SLICE);
    policy
        .add(VcpuId::FIRST, &capped(0, 1_000, 4_000), 0)
        .unwrap();
    policy.wake(VcpuId::FIRST, 0);
    let (mut now, mut used) = (0, 0);
    while now < 4_000_000 {
        match policy.pick(now) {
            Choice::Run(run) => {
                let ticks = run.until - now + 100;
                now += ticks;
                used += ticks;
                policy.ran(run.vcpu, ticks, now);
            }
            Choice::Idle { until } => now = until,
        }
    }
    assert!((990_000..=1_001_100).contains(&used), "{used}");
}

/// A charge of many periods takes as many to come back.
#[test]
fn a_charge_longer_than_the_period_is_paid_in_full() {
    let mut policy = Fair::new(SLICE);
    policy
        .add(VcpuId::FIRST, &capped(0, 1_000, 4_000), 0)
        .unwrap();
    policy.ran(VcpuId::FIRST, 10_500, 10_500);
    policy.wake(VcpuId::FIRST, 10_500);
    let Choice::Idle { until } = policy.pick(10_500) else {
        panic!("in debt");
    };
    let mut now = until;
    while let Choice::Idle { until } = policy.pick(now) {
        assert!(until > now);
        now = until;
    }
    // The charge gives 1,000 ticks back at 4,000, at 8,000 and so on.
    assert_eq!(now, 40_000);
}

#[test]
fn a_bad_cap_is_refused() {
    let mut policy = Fair::new(SLICE);
    for (ticks, period) in [(0, 10), (11, 10)] {
        let refused = policy.add(VcpuId::FIRST, &capped(0, ticks, period), 0);
        assert_eq!(refused, Err(Refused::BadBudget));
    }
}

/// Returns the virtual time of ticks, a thousand times finer than the policy's.
fn virtual_ticks(share: &Share, ticks: u64) -> u64 {
    ticks * 1_000_000 / share.weight
}

/// Runs a CPU, and returns what each vCPU has got from time to time, divided by its weight.
fn services(cpu: &mut Harness, shares: &[Share]) -> Vec<Vec<u64>> {
    let mut samples = Vec::new();
    for sample in 1..=20 {
        cpu.run_until(sample * 50_000);
        let services = cpu.tasks.iter().zip(shares);
        samples.push(
            services
                .map(|(task, share)| virtual_ticks(share, task.used))
                .collect(),
        );
    }
    samples
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Between two vCPUs that are always ready, the service divided by the weight differs by at
    /// most a slice of each, over any window and beside any load. A vCPU that sleeps and wakes gets
    /// no more than one that is always ready, but for its credit.
    #[test]
    fn shares_follow_weights(
        weights in proptest::collection::vec(1..=1000_u64, 2..6),
        others in proptest::collection::vec((1..=1000_u64, any_load()), 0..4),
        seed in any::<u64>(),
    ) {
        let mut tasks: Vec<_> = weights.iter().enumerate()
            .map(|(index, weight)| (weighted(index, *weight), Load::Spins)).collect();
        for (weight, load) in &others {
            tasks.push((weighted(tasks.len(), *weight), *load));
        }
        let mut cpu = Harness::new("fair", &plan(), &tasks, seed);
        cpu.noise = 700;
        let shares: Vec<_> = tasks.iter().map(|(share, _)| *share).collect();
        let samples = services(&mut cpu, &shares);
        let slice = |index: usize| virtual_ticks(&shares[index], SLICE + 1);
        let windows = samples.iter().enumerate();
        let windows = windows.flat_map(|(end, last)| samples[..end].iter().map(move |first| (first, last)));
        for (first, last) in windows {
            for a in 0..weights.len() {
                for b in (0..tasks.len()).filter(|b| *b != a) {
                    let credit = if b < weights.len() { 0 } else { virtual_ticks(&share(0), SLICE) };
                    let bound = last[a] - first[a] + slice(a) + slice(b) + credit + 2;
                    prop_assert!(last[b] - first[b] <= bound, "{b} beside {a}");
                }
            }
        }
    }

    /// As many caps as there are changes hold, each in the windows after its change.
    #[test]
    fn a_cap_that_changes_holds_from_then_on(
        caps in proptest::collection::vec((1..=100_u64, 1_000..20_000_u64, 1..30_000_u64), 2..8),
        load in any_load(),
        seed in any::<u64>(),
    ) {
        let budget = |percent: u64, period: u64| (period * percent / 100).max(1);
        let (percent, period, _) = caps[0];
        let tasks = [(capped(0, budget(percent, period), period), load), (share(1), Load::Spins)];
        let mut cpu = Harness::new("fair", &plan(), &tasks, seed);
        cpu.noise = 900;
        for (percent, period, length) in caps {
            let (ticks, from) = (budget(percent, period), cpu.now);
            cpu.set(0, &capped(0, ticks, period)).unwrap();
            cpu.run_until(from + length);
            prop_assert!(cpu.most_in_after(0, period, from) <= ticks);
        }
    }

    /// No window as long as the period holds more than the cap, wherever it begins.
    #[test]
    fn no_window_exceeds_a_cap(
        caps in proptest::collection::vec((1..100_u64, 1_000..20_000_u64, any_load()), 1..5),
        others in proptest::collection::vec(any_load(), 0..3),
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

    /// Nobody waits longer than a bound: until all others have caught up with its own turn, from
    /// their credits on, and a slice of each.
    #[test]
    fn nobody_waits_for_ever(
        tasks in proptest::collection::vec((1..=1000_u64, any_load()), 2..10),
        seed in any::<u64>(),
    ) {
        let tasks: Vec<_> = tasks.iter().enumerate()
            .map(|(index, (weight, load))| (weighted(index, *weight), *load)).collect();
        let mut cpu = Harness::new("fair", &plan(), &tasks, seed);
        cpu.noise = 900;
        cpu.run_until(500_000);
        for (index, (own, _)) in tasks.iter().enumerate() {
            let ahead = Weight::of(own).virtual_time(SLICE + 1)
                + Weight::DEFAULT.virtual_time(SLICE) * 33 / 32;
            let bound: u64 = (0..tasks.len()).filter(|other| *other != index)
                .map(|other| Weight::of(&tasks[other].0).ticks(ahead) + SLICE).sum();
            prop_assert!(cpu.gap(index) <= bound, "{index}: {} of {bound}", cpu.gap(index));
        }
    }
}

/// Idle time is nobody's, and sleep beside an idle CPU is lag all the same: a guest that wakes
/// often and works little does not wait for others that come after a rest.
#[test]
fn a_light_guest_does_not_wait_for_those_that_come_after_an_idle_time() {
    let bursts = |phase| Load::Periodic {
        period: 400_000,
        work: 5_000,
        phase,
    };
    let light = Load::Periodic {
        period: 1_000,
        work: 30,
        phase: 77,
    };
    let tasks = [
        (share(0), light),
        (share(1), bursts(300_000)),
        (share(2), bursts(300_500)),
    ];
    let mut cpu = Harness::new("fair", &plan(), &tasks, 1);
    cpu.run_until(1_000_000);
    let grain = SLICE / 32 + 1;
    assert!(
        cpu.latency(0, 10_000) <= grain,
        "{}",
        cpu.latency(0, 10_000)
    );
}

/// A job of a guest that lags behind is preempted by another one that lags further behind. The job
/// goes on after a grain or two, and not after the other's whole slice.
#[test]
fn a_preempted_job_of_a_light_guest_goes_on_soon() {
    let mut policy = Fair::new(SLICE);
    let vcpu = VcpuId::from_low_bits;
    let (spinner, guest, other) = (vcpu(0), vcpu(1), vcpu(2));
    for index in 0..3 {
        policy.add(vcpu(index), &share(index), 0).unwrap();
    }
    policy.wake(spinner, 0);
    let mut now = 0;
    let mut step = |policy: &mut Fair, until: u64| {
        let Choice::Run(run) = policy.pick(now) else {
            panic!("one is ready");
        };
        let end = run.until.min(until);
        policy.ran(run.vcpu, end - now, end);
        now = end;
        (run.vcpu, end)
    };
    while step(&mut policy, 100_000).1 < 100_000 {}
    policy.wake(guest, 100_000);
    assert_eq!(step(&mut policy, 100_010), (guest, 100_010));
    policy.wake(other, 100_010);
    let mut turns = Vec::new();
    while turns.last().is_none_or(|(_, end)| *end < 102_000) {
        turns.push(step(&mut policy, 102_000));
    }
    let grain = SLICE / 32 + 1;
    let mut before = 100_010;
    for (vcpu, end) in turns {
        assert_ne!(vcpu, spinner, "two that lag behind are ready");
        assert!(
            end - before <= 2 * grain,
            "{vcpu:?} ran {} ticks",
            end - before
        );
        before = end;
    }
}

/// After an idle time all vCPUs lag behind. They share the CPU by slices and not by grains: what a
/// cap gives back comes in the pieces in which it was used.
#[test]
fn those_that_wake_on_an_idle_cpu_run_whole_slices() {
    let mut policy = Fair::new(SLICE);
    let vcpu = VcpuId::from_low_bits;
    for index in 0..2 {
        policy.add(vcpu(index), &share(index), 0).unwrap();
    }
    assert!(matches!(policy.pick(0), Choice::Idle { .. }));
    policy.wake(vcpu(0), 100_000);
    let (mut now, mut turns) = (100_000, Vec::new());
    while now < 120_000 {
        let Choice::Run(run) = policy.pick(now) else {
            panic!("one is ready");
        };
        let end = run
            .until
            .min(if now == 100_000 { 100_010 } else { 120_000 });
        policy.ran(run.vcpu, end - now, end);
        if turns.last() != Some(&run.vcpu) {
            turns.push(run.vcpu);
        }
        now = end;
        policy.wake(vcpu(1), now);
    }
    assert!(turns.len() <= 10, "{turns:?}");
}
