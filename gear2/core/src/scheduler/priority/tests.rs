//! Order, turns and the ceiling of the priority policy.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::scheduler::Plan;
use crate::scheduler::harness::{Harness, Load, any_load, share};

const SLICE: u64 = 1_000;

fn plan(ceiling: u64) -> Plan {
    Plan {
        slice: SLICE,
        ceiling,
        ..Plan::default()
    }
}

fn at(index: usize, priority: u8) -> Share {
    Share {
        priority,
        ..share(index)
    }
}

#[test]
fn a_burst_runs_as_if_alone() {
    let burst = Load::Periodic {
        period: 6_000,
        work: 3_000,
        phase: 0,
    };
    let tasks = [(at(0, 20), burst), (at(1, 10), Load::Spins)];
    let mut cpu = Harness::new("priority", &plan(0), &tasks, 1);
    cpu.noise = 100;
    cpu.run_until(600_000);
    assert_eq!((cpu.gap(0), cpu.tasks[0].late), (0, 0));
    assert_eq!(cpu.tasks[1].used, 300_000);
}

#[test]
fn equals_take_turns_although_they_are_preempted() {
    let often = Load::Periodic {
        period: 300,
        work: 10,
        phase: 0,
    };
    let tasks = [
        (at(0, 20), often),
        (at(1, 10), Load::Spins),
        (at(2, 10), Load::Spins),
    ];
    let mut cpu = Harness::new("priority", &plan(0), &tasks, 1);
    cpu.run_until(300_000);
    let (a, b) = (cpu.tasks[1].used, cpu.tasks[2].used);
    assert!(a.abs_diff(b) <= SLICE, "{a} {b}");
}

#[test]
fn without_a_ceiling_the_lowest_starves() {
    let tasks = [(at(0, 20), Load::Spins), (at(1, 10), Load::Spins)];
    let mut cpu = Harness::new("priority", &plan(0), &tasks, 1);
    cpu.run_until(300_000);
    assert_eq!(cpu.tasks[1].used, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Without a ceiling, nobody runs while a higher priority is ready.
    #[test]
    fn the_highest_ready_priority_runs(
        tasks in proptest::collection::vec((0..4_u8, 1..3_000_u64, 1..3_000_u64), 1..8),
        seed in any::<u64>(),
    ) {
        let tasks: Vec<_> = tasks.iter().enumerate().map(|(index, &(priority, work, sleep))| {
            (at(index, priority), Load::Random { work, sleep })
        }).collect();
        let mut cpu = Harness::new("priority", &plan(0), &tasks, seed);
        cpu.noise = 300;
        cpu.run_until(300_000);
        let top = tasks.iter().map(|(share, _)| share.priority).max().unwrap();
        let mut alone = tasks.iter().zip(&cpu.tasks).filter(|(task, _)| task.0.priority == top);
        if let (Some((_, task)), None) = (alone.next(), alone.next()) {
            prop_assert_eq!(task.longest_wait(cpu.now), 0, "the highest priority never waits");
        }
    }

    /// With a ceiling nobody waits longer than it and, for each other one, two slices: the slice
    /// out of order of one that waits longer, and the slice of the priorities between two of them.
    #[test]
    fn nobody_starves_below_a_ceiling(
        tasks in proptest::collection::vec((0..32_u8, any_load()), 2..8),
        ceiling in 1_000..50_000_u64,
        seed in any::<u64>(),
    ) {
        let tasks: Vec<_> = tasks.iter().enumerate()
            .map(|(index, (priority, load))| (at(index, *priority), *load)).collect();
        let mut cpu = Harness::new("priority", &plan(ceiling), &tasks, seed);
        cpu.noise = 300;
        cpu.run_until(600_000);
        let bound = ceiling + 2 * SLICE * tasks.len() as u64;
        for (index, task) in cpu.tasks.iter().enumerate() {
            prop_assert!(cpu.gap(index) <= bound, "{} of {bound}", cpu.gap(index));
            prop_assert!(task.used > 0);
        }
    }

    /// The highest priority never waits longer than one slice, however many have come to the
    /// ceiling.
    #[test]
    fn a_ceiling_costs_one_slice_at_a_time(
        loads in proptest::collection::vec(any_load(), 1..8),
        highest in any_load(),
        ceiling in 1_000..50_000_u64,
        seed in any::<u64>(),
    ) {
        let mut tasks: Vec<_> = loads.iter().enumerate()
            .map(|(index, load)| (at(index, 10), *load)).collect();
        tasks.push((at(tasks.len(), 20), highest));
        let mut cpu = Harness::new("priority", &plan(ceiling), &tasks, seed);
        cpu.noise = 300;
        cpu.run_until(600_000);
        let gap = cpu.gap(loads.len());
        prop_assert!(gap <= SLICE, "{gap}");
    }
}
