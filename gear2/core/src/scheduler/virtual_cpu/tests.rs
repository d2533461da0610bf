//! Costs of a wake-up that preempts, and who is charged for which of them.

use alloc::vec;

use super::*;
use crate::scheduler::Priority;
use gear1_abi::id::VmId;

const COSTS: Costs = Costs {
    switch: 500,
    preempt: 30,
    entry: 10,
    resume: 20,
    exit: 12,
    wake: 9,
};

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
    assert_eq!(spinner.overhead, 9 + COSTS.entry);
}
