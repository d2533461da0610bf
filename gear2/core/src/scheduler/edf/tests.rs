//! Deadlines, budgets and admission of the earliest-deadline-first policy.

use alloc::vec::Vec;

use gear1_abi::id::VmId;
use proptest::prelude::*;

use super::*;
use crate::scheduler::harness::{Harness, Load, share, vcpu};
use crate::scheduler::{Fair, Plan};

fn plan() -> Plan {
    Plan {
        slice: 2_500,
        ..Plan::default()
    }
}

fn server(index: usize, ticks: u64, period: u64) -> Share {
    Share {
        server: Some(Budget { ticks, period }),
        ..share(index)
    }
}

#[test]
fn overload_is_refused_and_changes_nothing() {
    let mut policy = Edf::new(Fair::new(2_500));
    policy.add(vcpu(0), &server(0, 500, 1_000), 0).unwrap();
    policy.add(vcpu(1), &server(1, 250, 500), 0).unwrap();
    let refused = policy.add(vcpu(2), &server(2, 1, 1_000), 0);
    assert_eq!(refused, Err(Refused::Overload));
    assert_eq!(
        policy.set(vcpu(0), &server(0, 501, 1_000), 0),
        Err(Refused::Overload)
    );
    policy.set(vcpu(0), &server(0, 400, 1_000), 0).unwrap();
    policy.add(vcpu(2), &server(2, 100, 1_000), 0).unwrap();
    policy.remove(vcpu(1), 0);
    policy.add(vcpu(3), &server(3, 500, 1_000), 0).unwrap();
    let bad = policy.add(vcpu(4), &server(4, 0, 1_000), 0);
    assert_eq!(bad, Err(Refused::BadBudget));
}

#[test]
fn a_hundred_thousand_jobs_at_95_per_cent_beside_a_spinner() {
    let load = |work, period, phase| Load::Periodic {
        period,
        work,
        phase,
    };
    let tasks = [
        (server(0, 250, 1_000), load(250, 1_000, 13)),
        (server(1, 970, 9_700), load(970, 9_700, 501)),
        (server(2, 1_800, 3_000), load(1_800, 3_000, 0)),
        (Share::of(VmId::FIRST), Load::Spins),
    ];
    let mut cpu = Harness::new("edf", &plan(), &tasks, 5);
    cpu.noise = 400;
    cpu.run_until(70_000_000);
    let jobs: u64 = cpu.tasks.iter().map(|task| task.jobs).sum();
    let late: u64 = cpu.tasks.iter().map(|task| task.late).sum();
    assert!(jobs >= 100_000, "{jobs}");
    assert_eq!(late, 0);
    // The rest of the CPU is the spinner's.
    assert!(
        cpu.tasks[3].used >= 70_000_000 / 100 * 4,
        "{}",
        cpu.tasks[3].used
    );
}

/// A server that wants more than its budget delays nobody, and is not run beyond it.
#[test]
fn an_overrun_is_its_own() {
    let job = Load::Periodic {
        period: 1_000,
        work: 300,
        phase: 0,
    };
    let tasks = [
        (server(0, 700, 1_000), Load::Spins),
        (server(1, 300, 1_000), job),
    ];
    let mut cpu = Harness::new("edf", &plan(), &tasks, 5);
    cpu.conserves = false;
    cpu.run_until(1_000_000);
    assert_eq!(cpu.tasks[1].late, 0);
    assert!(cpu.tasks[0].used <= 700_000, "{}", cpu.tasks[0].used);
}

#[test]
fn a_debt_is_paid_from_the_next_periods() {
    let mut policy = Edf::new(Fair::new(2_500));
    policy.add(vcpu(0), &server(0, 100, 1_000), 0).unwrap();
    policy.wake(vcpu(0), 0);
    policy.pick(0);
    policy.ran(vcpu(0), 250, 250);
    assert_eq!(policy.pick(250), Choice::Idle { until: 1_000 });
    assert_eq!(policy.pick(1_000), Choice::Idle { until: 2_000 });
    let Choice::Run(run) = policy.pick(2_000) else {
        panic!("50 ticks are left");
    };
    assert_eq!(run.until, 2_050);
}

/// A budget that was not used does not pile up before an old deadline.
#[test]
fn who_wakes_late_in_its_period_begins_anew() {
    let mut policy = Edf::new(Fair::new(2_500));
    for index in 0..2 {
        policy
            .add(vcpu(index), &server(index, 500, 1_000), 0)
            .unwrap();
    }
    policy.wake(vcpu(0), 0);
    policy.ran(vcpu(0), 100, 100);
    policy.block(vcpu(0), 100);
    policy.wake(vcpu(1), 940);
    // 400 ticks in 60 would be more than half of the CPU.
    policy.wake(vcpu(0), 940);
    let Choice::Run(run) = policy.pick(940) else {
        panic!("two are ready");
    };
    assert_eq!((run.vcpu, run.until), (vcpu(1), 1_440));
    policy.ran(vcpu(1), 500, 1_440);
    let Choice::Run(run) = policy.pick(1_440) else {
        panic!("one is ready");
    };
    assert_eq!((run.vcpu, run.until), (vcpu(0), 1_940));
}

fn jobs() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    proptest::collection::vec((500..20_000_u64, 1..1_000_u64, 0..20_000_u64), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No job of an admitted set is late, and no server exceeds its budget in two of its periods,
    /// beside vCPUs without a server.
    #[test]
    fn no_job_of_an_admitted_set_is_late(jobs in jobs(), spinners in 0..3_usize, seed in any::<u64>()) {
        let parts: u64 = jobs.iter().map(|(_, part, _)| part).sum();
        let mut tasks: Vec<_> = jobs.iter().enumerate().map(|(index, (period, part, phase))| {
            // The budgets fill the CPU whatever the parts are.
            let work = (period * part / parts).max(1).min(period - 1);
            (server(index, work, *period), Load::Periodic { period: *period, work, phase: *phase })
        }).collect();
        let sum: f64 = tasks.iter().map(|(share, _)| share.server.unwrap())
            .map(|budget| budget.ticks as f64 / budget.period as f64).sum();
        prop_assume!(sum <= 1.0);
        for _ in 0..spinners {
            tasks.push((share(tasks.len()), Load::Spins));
        }
        let mut cpu = Harness::new("edf", &plan(), &tasks, seed);
        cpu.noise = 900;
        cpu.run_until(1_000_000);
        for (index, task) in cpu.tasks.iter().enumerate() {
            prop_assert_eq!(task.late, 0, "vCPU {}", index);
            if let Some(budget) = tasks[index].0.server {
                prop_assert!(cpu.most_in(index, budget.period) <= 2 * budget.ticks);
            }
        }
    }
}
