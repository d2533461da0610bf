//! The null policy.

use super::*;
use crate::scheduler::Plan;
use crate::scheduler::harness::{Harness, Load, share, vcpu};

#[test]
fn one_vcpu_has_the_cpu_without_a_timer() {
    let mut policy = Null::default();
    policy.add(vcpu(3), &share(3), 0).unwrap();
    assert_eq!(policy.pick(0), Choice::Idle { until: NO_DEADLINE });
    policy.wake(vcpu(2), 0);
    assert_eq!(policy.pick(0), Choice::Idle { until: NO_DEADLINE });
    policy.wake(vcpu(3), 0);
    let run = Run {
        vcpu: vcpu(3),
        until: NO_DEADLINE,
        contended: false,
        alone: true,
    };
    assert_eq!(policy.pick(0), Choice::Run(run));
}

#[test]
fn a_second_vcpu_is_refused_until_the_first_has_gone() {
    let mut policy = Null::default();
    policy.add(vcpu(3), &share(3), 0).unwrap();
    assert_eq!(policy.add(vcpu(4), &share(4), 0), Err(Refused::Full));
    policy.remove(vcpu(3), 0);
    policy.add(vcpu(4), &share(4), 0).unwrap();
}

#[test]
fn a_periodic_guest_never_waits() {
    let load = Load::Periodic {
        period: 1_000,
        work: 999,
        phase: 5,
    };
    let mut cpu = Harness::new("null", &Plan::default(), &[(share(0), load)], 1);
    cpu.noise = 100;
    cpu.run_until(1_000_000);
    assert_eq!((cpu.tasks[0].late, cpu.latency(0, 0)), (0, 0));
}
