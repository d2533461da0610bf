//! Deadlines, budgets and admission of the earliest-deadline-first policy.

use alloc::vec::Vec;

use gear1_abi::id::VmId;
use proptest::prelude::*;

use super::*;
use crate::scheduler::harness::{Harness, Load, share, vcpu};
use crate::scheduler::virtual_cpu::Costs;
use crate::scheduler::{Fair, Plan};

fn plan() -> Plan {
    Plan {
        slice: 2_500,
        ..Plan::default()
    }
}

/// The plan of a CPU whose switches take up to 20 ticks.
fn plan_with_switches() -> Plan {
    let admission = Admission {
        switch_ns: 20_000,
        ..Admission::default()
    };
    Plan {
        admission,
        ..plan()
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
    let mut policy = Edf::new(Fair::new(2_500), Admission::default());
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

/// A server that has used its whole budget early in its period, and leaves, has used time that
/// belongs to the others. Its part of the CPU is free when its deadline has come.
#[test]
fn a_part_that_was_used_in_advance_is_not_given_away() {
    let mut policy = Edf::new(Fair::new(2_500), Admission::default());
    policy.add(vcpu(0), &server(0, 500, 1_000), 0).unwrap();
    policy.add(vcpu(1), &server(1, 500, 1_001), 0).unwrap();
    policy.wake(vcpu(0), 0);
    policy.wake(vcpu(1), 0);
    policy.pick(0);
    policy.ran(vcpu(0), 500, 500);
    policy.remove(vcpu(0), 500);
    // vCPU 1 needs all of the CPU until 1,000.
    let added = policy.add(vcpu(2), &server(2, 100, 400), 500);
    assert_eq!(added, Err(Refused::Overload));
    policy.add(vcpu(2), &server(2, 100, 400), 1_000).unwrap();
}

#[test]
fn calls_about_a_stranger_are_ignored() {
    let mut policy = Edf::new(Fair::new(2_500), Admission::default());
    policy.set(vcpu(0), &server(0, 500, 1_000), 0).unwrap();
    policy.wake(vcpu(0), 0);
    assert_eq!(policy.pick(0), Choice::Idle { until: NO_DEADLINE });
    policy.add(vcpu(1), &server(1, 1_000, 1_000), 0).unwrap();
}

#[test]
fn a_debt_is_paid_from_the_next_periods() {
    let mut policy = Edf::new(Fair::new(2_500), Admission::default());
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
    let mut policy = Edf::new(Fair::new(2_500), Admission::default());
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

/// A server that preempts, uses its budget up and is preempted in turn costs the job that it
/// interrupted nothing: it pays the way to itself and the way back.
#[test]
fn the_way_back_from_a_spent_server_is_the_spent_server_s() {
    let costs = Costs::new(20, 6, 7);
    let job = Load::Periodic {
        period: 10_000,
        work: 3_000 - 2 * costs.end.other - costs.end.same,
        phase: 0,
    };
    let greedy = Load::Random {
        work: 400,
        sleep: 1,
    };
    let tasks = [
        (server(0, 3_000, 10_000), job),
        (server(1, 200, 1_000), greedy),
    ];
    let mut cpu = Harness::new("edf", &plan(), &tasks, 0);
    cpu.conserves = false;
    cpu.costs = costs;
    cpu.run_until(200_000);
    assert_eq!(cpu.tasks[0].missed(cpu.now), 0);
}

/// A job that begins 25 ticks before its server's deadline finds 12 ticks of budget, less than the way
/// to it takes: the server waits for its deadline, and the job has the whole budget.
#[test]
fn a_rest_that_a_switch_would_take_is_not_run() {
    let plan = plan_with_switches();
    let mut policy = Edf::new(Fair::new(2_500), plan.admission);
    policy.add(vcpu(0), &server(0, 500, 1_000), 0).unwrap();
    policy.add(vcpu(1), &server(1, 100, 5_000), 0).unwrap();
    policy.wake(vcpu(0), 0);
    policy.wake(vcpu(1), 0);
    policy.ran(vcpu(0), 488, 488);
    policy.block(vcpu(0), 488);
    policy.wake(vcpu(0), 975);
    let Choice::Run(run) = policy.pick(975) else {
        panic!("nobody runs");
    };
    assert_eq!((run.vcpu, run.until), (vcpu(1), 1_000));
    let Choice::Run(run) = policy.pick(1_000) else {
        panic!("nobody runs");
    };
    assert_eq!((run.vcpu, run.until), (vcpu(0), 1_500));
}

/// The end of a wait for the deadline ends no turn of a server whose own deadline is earlier.
#[test]
fn a_budget_that_comes_back_ends_no_turn_that_stays_first() {
    let mut policy = Edf::new(Fair::new(2_500), Admission::default());
    policy.add(vcpu(0), &server(0, 300, 1_000), 0).unwrap();
    policy.add(vcpu(1), &server(1, 100, 5_000), 0).unwrap();
    policy.wake(vcpu(1), 0);
    policy.ran(vcpu(1), 100, 100);
    policy.wake(vcpu(0), 4_500);
    let Choice::Run(run) = policy.pick(4_900) else {
        panic!("nobody runs");
    };
    // The other server's budget comes back at 5,000, with the deadline 10,000.
    assert_eq!((run.vcpu, run.until), (vcpu(0), 5_200));
}

/// A change of the servers while they run.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// A server whose guest has a job in each period, in its budget.
    Honest {
        period: u64,
        work: u64,
    },
    /// A server whose guest takes what it gets.
    Greedy {
        period: u64,
        ticks: u64,
        load: Load,
    },
    /// Another budget for a greedy one.
    Set {
        which: usize,
        period: u64,
        ticks: u64,
    },
    Remove {
        which: usize,
    },
}

fn change() -> impl Strategy<Value = Change> {
    let budget = (500..6_000_u64, 1..1_000_u64)
        .prop_map(|(period, part)| (period, (period * part / 1_000).max(1)));
    let load = prop_oneof![
        Just(Load::Spins),
        (1..9_000_u64, 1..9_000_u64).prop_map(|(work, sleep)| Load::Random { work, sleep }),
    ];
    prop_oneof![
        budget
            .clone()
            .prop_map(|(period, work)| Change::Honest { period, work }),
        (budget.clone(), load).prop_map(|((period, ticks), load)| Change::Greedy {
            period,
            ticks,
            load
        }),
        (0..16_usize, budget).prop_map(|(which, (period, ticks))| Change::Set {
            which,
            period,
            ticks
        }),
        (0..16_usize).prop_map(|which| Change::Remove { which }),
    ]
}

fn pause() -> impl Strategy<Value = u64> {
    prop_oneof![1..4_000_u64, 1..100_u64]
}

fn jobs() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    proptest::collection::vec((500..20_000_u64, 1..1_000_u64, 0..20_000_u64), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever was admitted holds its promise, whoever comes, leaves or changes meanwhile, and
    /// however greedy they are.
    #[test]
    fn no_admitted_job_is_late_while_servers_change(
        changes in proptest::collection::vec((change(), pause()), 2..60),
        seed in any::<u64>(),
    ) {
        let mut cpu = Harness::new("edf", &plan(), &[(share(0), Load::Spins)], seed);
        cpu.conserves = false;
        cpu.noise = 900;
        let (mut honest, mut greedy) = (Vec::new(), Vec::new());
        for (change, pause) in changes {
            let next = cpu.tasks.len();
            match change {
                Change::Honest { period, work } => {
                    let load = Load::Periodic { period, work, phase: 0 };
                    honest.extend(cpu.add(&server(next, work, period), load));
                }
                Change::Greedy { period, ticks, load } => {
                    greedy.extend(cpu.add(&server(next, ticks, period), load));
                }
                Change::Set { which, period, ticks } if which < greedy.len() => {
                    // A refusal changes nothing.
                    let _ = cpu.set(greedy[which], &server(greedy[which], ticks, period));
                }
                Change::Remove { which } => {
                    let from = if which % 2 == 0 { &mut honest } else { &mut greedy };
                    if which / 2 < from.len() {
                        cpu.remove(from.swap_remove(which / 2));
                    }
                }
                Change::Set { .. } => {}
            }
            let end = cpu.now + pause;
            cpu.run_until(end);
        }
        let end = cpu.now + 100_000;
        cpu.run_until(end);
        for task in honest {
            prop_assert_eq!(cpu.tasks[task].missed(cpu.now), 0, "vCPU {}", task);
        }
    }

    /// No job is late beside the work of the gears either, if each budget has room for three ways
    /// through them a job, and the CPU for the switch that is under way when a job begins. The ways
    /// are those of its wake-up, which may come before the server's deadline and while another vCPU
    /// leaves, to it, and back.
    #[test]
    fn no_job_is_late_beside_switches(jobs in jobs(), seed in any::<u64>()) {
        let costs = Costs::new(20, 6, 7);
        let parts: u64 = jobs.iter().map(|(_, part, _)| part).sum();
        let mut tasks: Vec<_> = jobs.iter().enumerate().map(|(index, (period, part, phase))| {
            // Nine tenths of the CPU, in periods that are long beside a switch.
            let period = period + 5_000;
            let budget = (period * 9 * part / (10 * parts)).max(80);
            let work = budget - 3 * costs.end.other;
            (server(index, budget, period), Load::Periodic { period, work, phase: *phase })
        }).collect();
        tasks.push((share(tasks.len()), Load::Spins));
        let mut cpu = Harness::new("edf", &plan_with_switches(), &tasks, seed);
        cpu.costs = costs;
        cpu.run_until(1_000_000);
        for index in 0..jobs.len() {
            prop_assert_eq!(cpu.tasks[index].missed(cpu.now), 0, "vCPU {}", index);
        }
    }

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
        // Admission rounds each demand up to a millionth: a set that fills the CPU may not fit.
        let admission = Admission::default();
        let budgets = tasks.iter().map(|(share, _)| share.server.unwrap());
        let demand = budgets.map(|budget| admission.demand(budget).unwrap()).sum();
        prop_assume!(admission.has_room(demand));
        for _ in 0..spinners {
            tasks.push((share(tasks.len()), Load::Spins));
        }
        let mut cpu = Harness::new("edf", &plan(), &tasks, seed);
        cpu.noise = 900;
        cpu.run_until(1_000_000);
        for (index, task) in cpu.tasks.iter().enumerate() {
            prop_assert_eq!(task.missed(cpu.now), 0, "vCPU {}", index);
            if let Some(budget) = tasks[index].0.server {
                prop_assert!(cpu.most_in(index, budget.period) <= 2 * budget.ticks);
            }
        }
    }
}
