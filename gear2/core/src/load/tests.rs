//! Averages over time, and a measured policy that is the policy.

use super::*;
use crate::scheduler::{RoundRobin, Run};
use gear1_abi::id::VmId;

const PERIOD: u64 = 4_000;

#[test]
fn an_average_reaches_its_value_after_a_period() {
    let load = Load::default();
    load.publish(0b111, 1_000, PERIOD);
    let seen = |now| load.read(now, PERIOD);
    let at = |ready, average| Seen { ready, average };
    assert_eq!(seen(1_000), at(3, 0));
    assert_eq!(seen(3_000), at(3, 3 * ONE / 2));
    assert_eq!(seen(5_000), at(3, 3 * ONE));
    assert_eq!(seen(900_000), at(3, 3 * ONE));
    load.publish(0, 901_000, PERIOD);
    assert_eq!(seen(901_000), at(0, 3 * ONE));
    assert_eq!(seen(902_000), at(0, 9 * ONE / 4));
    assert_eq!(seen(905_000), at(0, 0));
    assert_eq!(load.ready(), 0);
}

/// A vCPU that runs a tenth of the time counts as a tenth, however short its runs are.
#[test]
fn short_runs_are_averaged() {
    let load = Load::default();
    let mut now = 0;
    for _ in 0..10_000 {
        load.publish(1, now, PERIOD * 1_000);
        load.publish(0, now + 10_000, PERIOD * 1_000);
        now += 100_000;
    }
    let average = load.read(now, PERIOD * 1_000).average;
    assert!(average.abs_diff(ONE / 10) < ONE / 50, "{average}");
}

#[test]
fn all_vcpus_fit_in_a_word() {
    let load = Load::default();
    load.publish(u32::MAX, u64::MAX - 50, 100);
    let seen = load.read(u64::MAX, 100);
    assert_eq!((seen.ready, seen.average), (32, 16 * ONE));
    assert_eq!(load.read(49, 100).average, 32 * ONE);
}

#[test]
fn a_measured_policy_tells_what_is_ready() {
    let load = Load::default();
    let vcpu = |index| VcpuId::new(index).unwrap();
    let share = Share::of(VmId::new(0).unwrap());
    let mut policy = Measured::new(Box::new(RoundRobin::new(500)), &load, PERIOD);
    for index in [1, 5, 9] {
        policy.add(vcpu(index), &share, 0).unwrap();
    }
    for index in [1, 5, 7] {
        policy.wake(vcpu(index), 10);
    }
    let choice = Choice::Run(Run {
        vcpu: vcpu(1),
        until: 510,
        contended: true,
        alone: false,
    });
    assert_eq!(policy.pick(10), choice);
    assert_eq!(load.ready(), 1 << 1 | 1 << 5, "7 is not known here");
    policy.block(vcpu(1), 20);
    policy.remove(vcpu(5), 20);
    policy.wake(vcpu(5), 20);
    assert_eq!(policy.pick(20), Choice::Idle { until: u64::MAX });
    assert_eq!(load.ready(), 0);
}
