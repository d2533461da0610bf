//! Guarantees beside the work of the gears: a tick is an instruction, and ways are as long as on the
//! target.
//!
//! A deadline is counted from an event, and the work for another vCPU lies between the event and the
//! entry. Events about no vCPU are charged to the one that is chosen, whether it runs or an event is
//! pending. Neither takes anything from anybody beyond the price of a turn.

use alloc::vec::Vec;

use crate::scheduler::harness::{Harness, Load, share};
use crate::scheduler::virtual_cpu::{Costs, Way};
use crate::scheduler::{Budget, Plan, Share};

const MS: u64 = 1_000_000;
const SECONDS: u64 = 1_000 * MS;

/// The longest ways of `tests/bench-baseline.txt` and of `workbench::sched`, and more.
const COSTS: Costs = Costs {
    end: way(270, 1_050, 1_800),
    wake_up: way(286, 1_200, 2_100),
    block: way(123, 1_050, 1_800),
    late: 715,
    wake: 600,
};
/// The longest of them.
const LONGEST: u64 = 1_800 + 715;

const fn way(entry: u64, same: u64, other: u64) -> Way {
    Way { entry, same, other }
}

/// A guest that wakes often and works little.
const WAKER: Load = Load::Periodic {
    period: 970_000,
    work: 20_000,
    phase: 0,
};

/// Makes a CPU with a policy, beside whose vCPUs the gears work, also for events about no vCPU.
fn cpu(policy: &str, slice: u64, tasks: &[(Share, Load)]) -> Harness {
    let plan = Plan {
        slice,
        ..Plan::default()
    };
    let mut cpu = Harness::new(policy, &plan, tasks, 11);
    cpu.conserves = false;
    cpu.noise = 300_000;
    cpu.costs = COSTS;
    cpu
}

fn weighted(index: usize, weight: u64) -> Share {
    Share {
        weight,
        ..share(index)
    }
}

/// Returns what a vCPU is charged for.
fn charged(cpu: &Harness, task: usize) -> u64 {
    cpu.tasks[task].used + cpu.tasks[task].overhead
}

#[test]
fn weights_are_kept_within_a_slice() {
    const SLICE: u64 = 5 * MS / 2;
    const WEIGHTS: [u64; 3] = [100, 200, 400];
    for policy in ["fair", "bvt"] {
        let mut tasks: Vec<_> = (WEIGHTS.iter().enumerate())
            .map(|(index, weight)| (weighted(index, *weight), Load::Spins))
            .collect();
        tasks.push((weighted(3, 100), WAKER));
        let mut cpu = cpu(policy, SLICE, &tasks);
        cpu.run_until(5 * SECONDS);
        let all: u64 = (0..3).map(|task| charged(&cpu, task)).sum();
        for (task, weight) in WEIGHTS.iter().enumerate() {
            let apart = charged(&cpu, task).abs_diff(all * weight / 700);
            assert!(apart <= SLICE, "{policy}, weight {weight}: {apart} apart");
        }
        // All time but the waker's and idle time is theirs.
        assert!(all + charged(&cpu, 3) >= 5 * SECONDS - LONGEST, "{policy}");
    }
}

/// Beside a spinner: whoever else interrupted a run would delay it, and the ticks of its second part
/// would come back later by as much.
#[test]
fn a_cap_holds_over_any_period() {
    let budget = Budget {
        ticks: 5 * MS / 2,
        period: 10 * MS,
    };
    let capped = Share {
        cap: Some(budget),
        ..share(0)
    };
    let tasks = [(capped, Load::Spins), (share(1), Load::Spins)];
    let mut cpu = cpu("fair", 5 * MS / 2, &tasks);
    cpu.run_until(5 * SECONDS);
    let most = cpu.most_in(0, budget.period);
    assert!(most <= budget.ticks + 2_000, "{most}");
    let part = charged(&cpu, 0) as f64 / (5 * SECONDS) as f64;
    assert!((part - 0.25).abs() <= 0.000_5, "{part}");
}

/// Whoever is ready waits at most for a slice of each other one and the way to it.
#[test]
fn turns_have_their_lengths() {
    const SLICE: u64 = 5 * MS;
    let tasks = [0, 1, 2].map(|index| (share(index), Load::Spins));
    let mut all = tasks.to_vec();
    all.push((share(3), WAKER));
    for policy in ["round-robin", "priority"] {
        let mut cpu = cpu(policy, SLICE, &all);
        cpu.run_until(5 * SECONDS);
        for task in 0..3 {
            // Events about no vCPU lengthen a turn by what follows its end alone.
            let most = 3 * (SLICE + 2 * LONGEST);
            assert!(
                cpu.gap(task) <= most,
                "{policy}: {} of {most}",
                cpu.gap(task)
            );
            let part = charged(&cpu, task) as f64 / charged(&cpu, (task + 1) % 3) as f64;
            assert!((part - 1.0).abs() <= 0.02, "{policy}: {part}");
        }
    }
}

/// A higher priority waits for the way to it alone.
#[test]
fn the_highest_priority_never_waits_for_a_lower_one() {
    let high = Share {
        priority: 20,
        ..share(0)
    };
    let tasks = [
        (high, WAKER),
        (share(1), Load::Spins),
        (share(2), Load::Spins),
    ];
    let mut cpu = cpu("priority", 5 * MS, &tasks);
    cpu.run_until(5 * SECONDS);
    // A wake-up may come while the gears work for another event.
    let most = 2 * LONGEST;
    assert!(cpu.latency(0, 0) <= most, "{} of {most}", cpu.latency(0, 0));
    assert_eq!(cpu.tasks[0].late, 0);
}

/// Budgets with room for two switches of each job suffice, whatever is charged to whom.
#[test]
fn no_job_of_an_admitted_set_is_late() {
    const SERVERS: [(u64, u64); 3] = [(2, 5), (3, 10), (5, 20)];
    let mut tasks = Vec::new();
    for (index, (budget, period)) in SERVERS.into_iter().enumerate() {
        let (ticks, period) = (budget * MS, period * MS);
        let server = Some(Budget { ticks, period });
        let work = ticks - 10_000;
        let load = Load::Periodic {
            period,
            work,
            phase: 0,
        };
        tasks.push((
            Share {
                server,
                ..share(index)
            },
            load,
        ));
    }
    tasks.push((share(3), Load::Spins));
    let mut cpu = cpu("edf", 5 * MS / 2, &tasks);
    // An event about no vCPU is charged to whoever is chosen: 10 us are room for some.
    cpu.noise = 2 * MS;
    cpu.run_until(20 * SECONDS);
    let late: u64 = (0..3).map(|task| cpu.tasks[task].missed(cpu.now)).sum();
    assert_eq!(late, 0);
}
