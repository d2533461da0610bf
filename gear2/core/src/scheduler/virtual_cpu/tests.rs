//! Costs of a wake-up that preempts, and who is charged for which of them.

use alloc::vec;

use super::*;
use crate::scheduler::{Priority, RoundRobin};
use gear1_abi::id::VmId;

const COSTS: Costs = Costs {
    end: way(5, 11, 500),
    wake_up: way(10, 12, 30),
    block: way(3, 13, 20),
    late: 1_000,
    wake: 9,
};

const fn way(entry: u64, same: u64, other: u64) -> Way {
    Way { entry, same, other }
}

/// Runs a spinner, and a vCPU of a priority that wakes up twice.
fn beside_a_spinner(priority: u8) -> VirtualCpu {
    let mut cpu = VirtualCpu::new(Box::new(Priority::new(100_000, 0)), COSTS, 1);
    let share = |index: usize, priority| Share {
        priority,
        ..Share::of(VmId::new(index).unwrap())
    };
    let jobs = [1_000, 2_000].map(|release| Job {
        release,
        work: 100,
        due: NO_DEADLINE,
    });
    let vcpu = |index| VcpuId::new(index).unwrap();
    cpu.add(vcpu(0), &share(0, 16), Box::new(Spin)).unwrap();
    let jobs = Box::new(Recorded::new(jobs.into()));
    cpu.add(vcpu(1), &share(1, priority), jobs).unwrap();
    cpu.run_until(4_000).unwrap();
    cpu
}

#[test]
fn a_wake_up_that_preempts_has_its_own_ways() {
    let cpu = beside_a_spinner(20);
    let [spinner, waker] = &cpu.tasks[..] else {
        panic!("two tasks");
    };
    assert_eq!(waker.wakes, [(1_000, 30), (2_000, 30)]);
    // Away for the entry, the way to the handler, the job, and the way back.
    assert_eq!(spinner.waits[1..], [150, 150]);
    // The first instruction after an idle time, and two entries.
    assert_eq!(
        (spinner.overhead, waker.overhead),
        (9 + 2 * 10, 2 * (20 + 20))
    );
}

#[test]
fn a_wake_up_that_preempts_nobody_is_an_exit() {
    let cpu = beside_a_spinner(10);
    let [spinner, waker] = &cpu.tasks[..] else {
        panic!("two tasks");
    };
    assert_eq!((waker.wakes.len(), waker.switches), (0, 0));
    assert_eq!(spinner.waits, vec![9, 12]);
    // The rest of each exit is the waker's, as it causes the event.
    assert_eq!(spinner.overhead, 9 + COSTS.wake_up.entry);
}

/// The rest of a turn that a wake-up delayed is not worth another event, and the interrupt of the
/// one that woke is delivered at the end of the turn.
#[test]
fn a_turn_beside_a_wake_up_ends_with_one_event() {
    let mut cpu = VirtualCpu::new(Box::new(RoundRobin::new(10_000)), COSTS, 1);
    let share = Share::of(VmId::FIRST);
    let job = Job {
        release: 500,
        work: 100,
        due: NO_DEADLINE,
    };
    let vcpu = |index| VcpuId::new(index).unwrap();
    cpu.add(vcpu(0), &share, Box::new(Spin)).unwrap();
    let jobs = Box::new(Recorded::new([job].into()));
    cpu.add(vcpu(1), &share, jobs).unwrap();
    cpu.run_until(15_000).unwrap();
    assert_eq!(cpu.tasks[1].wakes, [(500, 10_000 + 500 + 1_000 - 500)]);
    // At the wake-up, and for the other one's turn.
    let away = 500 + 1_000 + 100 + COSTS.block.other;
    assert_eq!(cpu.tasks[0].waits, [9, COSTS.wake_up.same, away]);
}
