//! A scheduler from scratch: fixed priorities by vCPU number, without time slices.
//!
//! CONTRIBUTING.md ("A scheduler") names the three places that make a policy part of Gear2.

use std::collections::BTreeSet;

use gear1_abi::id::{VcpuId, VmId};
use gear1_abi::regs::NO_DEADLINE;
use gear2_core::scheduler::{Choice, Plan, Policy, PolicyKind, Refused, Run, Share};

/// Runs the ready vCPU with the lowest number.
#[derive(Debug, Default)]
struct FixedPriority {
    known: BTreeSet<VcpuId>,
    ready: BTreeSet<VcpuId>,
}

impl Policy for FixedPriority {
    fn add(&mut self, vcpu: VcpuId, _share: &Share, _now: u64) -> Result<(), Refused> {
        self.known.insert(vcpu);
        Ok(())
    }

    fn remove(&mut self, vcpu: VcpuId, _now: u64) {
        self.known.remove(&vcpu);
        self.ready.remove(&vcpu);
    }

    fn set(&mut self, _vcpu: VcpuId, _share: &Share, _now: u64) -> Result<(), Refused> {
        Ok(())
    }

    fn wake(&mut self, vcpu: VcpuId, _now: u64) {
        if self.known.contains(&vcpu) {
            self.ready.insert(vcpu);
        }
    }

    fn block(&mut self, vcpu: VcpuId, _now: u64) {
        self.ready.remove(&vcpu);
    }

    fn give_way(&mut self, _vcpu: VcpuId, _now: u64) {
        // A higher priority never yields to a lower one.
    }

    fn ran(&mut self, _vcpu: VcpuId, _ticks: u64, _now: u64) {
        // The order does not depend on what anybody used.
    }

    fn pick(&mut self, _now: u64) -> Choice {
        match self.ready.first() {
            Some(&vcpu) => Choice::Run(Run {
                vcpu,
                // A wake-up calls the policy again, so no slice is needed.
                until: NO_DEADLINE,
                contended: false,
            }),
            None => Choice::Idle { until: NO_DEADLINE },
        }
    }
}

/// The row that a policy has in `POLICIES`.
const KIND: PolicyKind = PolicyKind {
    name: "fixed-priority",
    make: |_: &Plan| Box::new(FixedPriority::default()),
};

fn vcpu(number: usize) -> VcpuId {
    VcpuId::new(number).expect("below MAX_VCPUS")
}

/// Makes the policy with some vCPUs, as a loop does.
fn with_vcpus(numbers: &[usize]) -> Box<dyn Policy> {
    let mut policy = (KIND.make)(&Plan::default());
    for &number in numbers {
        let taken = policy.add(vcpu(number), &Share::of(VmId::FIRST), 0);
        taken.expect("the policy refuses nobody");
    }
    policy
}

fn main() {
    let mut policy = with_vcpus(&[0, 1]);
    policy.wake(vcpu(1), 0);
    policy.wake(vcpu(0), 10);
    println!("{}: {:?}", KIND.name, policy.pick(10));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(policy: &mut dyn Policy) -> Option<VcpuId> {
        match policy.pick(0) {
            Choice::Run(run) => Some(run.vcpu),
            Choice::Idle { .. } => None,
        }
    }

    #[test]
    fn a_wake_up_of_a_higher_priority_preempts() {
        let mut policy = with_vcpus(&[1, 3]);
        assert_eq!(running(&mut *policy), None);
        policy.wake(vcpu(3), 0);
        assert_eq!(running(&mut *policy), Some(vcpu(3)));
        policy.wake(vcpu(1), 0);
        assert_eq!(running(&mut *policy), Some(vcpu(1)));
    }

    #[test]
    fn a_lower_priority_runs_only_while_the_higher_one_is_blocked() {
        let mut policy = with_vcpus(&[1, 3]);
        policy.wake(vcpu(1), 0);
        policy.wake(vcpu(3), 0);
        policy.give_way(vcpu(1), 0);
        assert_eq!(running(&mut *policy), Some(vcpu(1)));
        policy.block(vcpu(1), 0);
        assert_eq!(running(&mut *policy), Some(vcpu(3)));
    }
}
