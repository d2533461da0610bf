//! Windows of the ARINC 653 policy.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::scheduler::Budget;
use crate::scheduler::harness::{Harness, Load, share, vcpu};

fn plan(frame: u64, windows: &[(u64, u64, Option<usize>)]) -> Plan {
    Plan {
        slice: 100,
        frame,
        windows: windows
            .iter()
            .map(|&(start, length, vm)| Window {
                start,
                length,
                vm: vm.map(VmId::from_low_bits),
            })
            .collect(),
        ..Plan::default()
    }
}

#[test]
fn windows_begin_at_their_times_over_100_000_frames() {
    let plan = plan(
        1_000,
        &[(0, 200, Some(0)), (300, 400, Some(1)), (800, 200, None)],
    );
    let tasks: Vec<_> = (0..3).map(|index| (share(index), Load::Spins)).collect();
    let mut cpu = Harness::new("arinc653", &plan, &tasks, 1);
    cpu.conserves = false;
    cpu.noise = 300;
    cpu.run_until(100_000_000);
    assert_eq!(cpu.stretches.len(), 300_000);
    for (index, stretch) in cpu.stretches.iter().enumerate() {
        let (frame, vcpu) = (index as u64 / 3 * 1_000, index % 3);
        let window = plan.windows[vcpu];
        let (start, end) = (frame + window.start, frame + window.start + window.length);
        assert_eq!(
            (stretch.task, stretch.start, stretch.end),
            (vcpu, start, end)
        );
    }
}

#[test]
fn an_idle_window_is_nobody_elses() {
    let plan = plan(1_000, &[(0, 500, Some(0)), (500, 500, None)]);
    let sleeps = Load::Periodic {
        period: 10_000,
        work: 100,
        phase: 0,
    };
    let tasks = [(share(0), sleeps), (share(1), Load::Spins)];
    let mut cpu = Harness::new("arinc653", &plan, &tasks, 1);
    cpu.conserves = false;
    cpu.run_until(10_000);
    assert_eq!((cpu.tasks[0].used, cpu.tasks[1].used), (100, 5_000));
}

/// A server has its deadlines inside the windows left to the inner policy.
#[test]
fn a_server_runs_inside_the_inner_windows() {
    let plan = plan(1_000, &[(0, 500, Some(0)), (500, 500, None)]);
    let server = Share {
        server: Some(Budget {
            ticks: 200,
            period: 1_000,
        }),
        ..share(1)
    };
    let job = Load::Periodic {
        period: 1_000,
        work: 200,
        phase: 500,
    };
    let tasks = [
        (share(0), Load::Spins),
        (server, job),
        (share(2), Load::Spins),
    ];
    let mut cpu = Harness::new("arinc653", &plan, &tasks, 1);
    cpu.conserves = false;
    cpu.run_until(1_000_000);
    assert_eq!((cpu.tasks[1].late, cpu.latency(1, 0)), (0, 0));
    assert_eq!(cpu.tasks[2].used, 300_000);
}

#[test]
fn other_windows_begin_with_a_frame() {
    let mut policy = Arinc653::new(
        &plan(1_000, &[(0, 1_000, Some(0))]),
        crate::scheduler::Null::default(),
    );
    policy.add(vcpu(0), &share(0), 0).unwrap();
    policy.wake(vcpu(0), 0);
    policy.change(&plan(700, &[(600, 100, Some(0))]), 2_300);
    let run = |vcpu, until| {
        Choice::Run(Run {
            vcpu,
            until,
            contended: false,
            alone: true,
        })
    };
    assert_eq!(policy.pick(2_300), run(vcpu(0), 3_000));
    assert_eq!(policy.pick(3_000), Choice::Idle { until: 3_600 });
    assert_eq!(policy.pick(3_600), run(vcpu(0), 3_700));
    assert_eq!(policy.pick(3_700), Choice::Idle { until: 4_300 });
}

#[test]
fn siblings_take_turns_in_their_window() {
    let plan = plan(1_000, &[(0, 1_000, Some(0))]);
    let tasks = vec![(share(0), Load::Spins); 4];
    let mut cpu = Harness::new("arinc653", &plan, &tasks, 1);
    cpu.run_until(40_000);
    assert!(cpu.tasks.iter().all(|task| task.used == 10_000));
}

/// Returns windows of two VMs and of nobody, from gaps, lengths and owners.
fn windows(lengths: &[(u64, u64, usize)]) -> Plan {
    let mut frame = 0;
    let windows: Vec<_> = lengths
        .iter()
        .map(|&(gap, length, vm)| {
            let start = frame + gap;
            frame = start + length;
            (start, length, (vm != 2).then_some(vm))
        })
        .collect();
    plan(frame, &windows)
}

fn lengths() -> impl Strategy<Value = Vec<(u64, u64, usize)>> {
    // The first one is nobody's, so that each VM's having windows does not depend on the change.
    let both = |mut windows: Vec<_>| {
        windows.extend([(1, 50, 0), (2, 60, 1), (0, 70, 2)]);
        windows
    };
    proptest::collection::vec((0..300_u64, 1..300_u64, 0..3_usize), 0..6).prop_map(both)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Other windows begin exactly with the frame after the change, and no window of the old frame
    /// is cut. Of several changes in one frame the last one counts.
    #[test]
    fn changes_take_effect_between_two_frames(
        tables in proptest::collection::vec((lengths(), 1..4_000_u64), 2..8),
        steps in proptest::collection::vec(1..400_u64, 1..60),
    ) {
        let first = windows(&tables[0].0);
        let mut policy = Arinc653::new(&first, crate::scheduler::Fair::new(100));
        for index in 0..3 {
            policy.add(vcpu(index), &share(index), 0).unwrap();
            policy.wake(vcpu(index), 0);
        }
        // The reference: the windows in effect, the beginning of their frame, and those that
        // follow.
        let (mut table, mut start, mut next) = (first, 0, None::<Plan>);
        let mut now = 0;
        for (lengths, pause) in &tables[1..] {
            let change = windows(lengths);
            let end = now + pause;
            let mut steps = steps.iter().cycle();
            while now < end {
                let place = now - start;
                let open = table.windows.iter().find(|w| w.start <= place && place < w.start + w.length);
                let begins = table.windows.iter().map(|window| window.start);
                let change = begins.filter(|begin| *begin > place).min().unwrap_or(table.frame);
                let until = start + open.map_or(change, |window| window.start + window.length);
                let choice = policy.pick(now);
                let run = open.map(|window| Choice::Run(Run {
                    vcpu: vcpu(window.vm.map_or(2, VmId::index)),
                    until,
                    contended: false,
                    alone: true,
                }));
                prop_assert_eq!(choice, run.unwrap_or(Choice::Idle { until }));
                now = until.min(now + steps.next().unwrap());
                if now == start + table.frame {
                    start = now;
                    table = next.take().unwrap_or(table);
                }
            }
            policy.change(&change, now);
            next = Some(change);
        }
    }

    /// A vCPU with windows runs in them only, and a spinner fills them.
    #[test]
    fn windows_are_exact(
        lengths in proptest::collection::vec((0..500_u64, 1..500_u64, 0..4_usize), 1..12),
        sleepers in proptest::collection::vec((1..900_u64, 1..900_u64), 0..3),
        seed in any::<u64>(),
    ) {
        let mut frame = 0;
        let windows: Vec<_> = lengths.iter().map(|&(gap, length, vm)| {
            let start = frame + gap;
            frame = start + length;
            (start, length, (vm != 3).then_some(vm))
        }).collect();
        let plan = plan(frame, &windows);
        let mut tasks: Vec<_> = (0..4).map(|index| (share(index), Load::Spins)).collect();
        for (work, sleep) in sleepers {
            tasks.push((share(5), Load::Random { work, sleep }));
        }
        let mut cpu = Harness::new("arinc653", &plan, &tasks, seed);
        cpu.conserves = false;
        cpu.noise = 150;
        let frames = 20;
        cpu.run_until(frames * frame);
        let table = Table::new(&plan, 0);
        for stretch in &cpu.stretches {
            let (window, end) = table.at(stretch.start);
            let owner = window.unwrap().vm.map(VmId::index);
            prop_assert!(stretch.end <= end || table.at(end).0.is_some_and(|next| next.vm.map(VmId::index) == owner));
            if stretch.task < 3 && table.has(VmId::from_low_bits(stretch.task)) {
                prop_assert_eq!(owner, Some(stretch.task));
            } else {
                prop_assert_eq!(owner, None);
            }
        }
        for vm in (0..3).filter(|vm| table.has(VmId::from_low_bits(*vm))) {
            let own = windows.iter().filter(|window| window.2 == Some(vm));
            prop_assert_eq!(cpu.tasks[vm].used, frames * own.map(|window| window.1).sum::<u64>());
        }
    }
}
