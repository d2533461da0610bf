//! A scheduler from scratch: fixed priorities by vCPU number, without time slices.
//!
//! CONTRIBUTING.md ("A scheduler") names the three places that make a policy part of Gear2.

use std::collections::BTreeSet;

use gear1_abi::id::VcpuId;
use gear1_abi::regs::NO_DEADLINE;
use gear2_core::scheduler::{Choice, Parameters, Policy, Scheduler};

/// Runs the ready vCPU with the lowest number.
#[derive(Debug, Default)]
struct FixedPriority {
    ready: BTreeSet<VcpuId>,
}

impl Scheduler for FixedPriority {
    fn wake(&mut self, vcpu: VcpuId, _now: u64) {
        self.ready.insert(vcpu);
    }

    fn block(&mut self, vcpu: VcpuId, _now: u64) {
        self.ready.remove(&vcpu);
    }

    fn give_way(&mut self, _vcpu: VcpuId, _now: u64) {
        // A higher priority never yields to a lower one.
    }

    fn pick(&mut self, _now: u64) -> Option<Choice> {
        let vcpu = *self.ready.first()?;
        Some(Choice {
            vcpu,
            // A wake-up calls the policy again, so no slice is needed.
            deadline: NO_DEADLINE,
            contended: false,
        })
    }
}

/// The row that a policy has in `POLICIES`.
const POLICY: Policy = Policy {
    name: "fixed-priority",
    make: |_: Parameters| Box::new(FixedPriority::default()),
};

fn main() {
    let mut policy = (POLICY.make)(Parameters { slice: 5_000 });
    let [high, low] = [0, 1].map(|number| VcpuId::new(number).expect("below MAX_VCPUS"));
    policy.wake(low, 0);
    policy.wake(high, 10);
    let choice = policy.pick(10).expect("two vCPUs are ready");
    println!("{}: {:?} runs", POLICY.name, choice.vcpu);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vcpu(number: usize) -> VcpuId {
        VcpuId::new(number).unwrap()
    }

    fn running(policy: &mut FixedPriority) -> Option<VcpuId> {
        policy.pick(0).map(|choice| choice.vcpu)
    }

    #[test]
    fn a_wake_up_of_a_higher_priority_preempts() {
        let mut policy = FixedPriority::default();
        assert_eq!(running(&mut policy), None);
        policy.wake(vcpu(3), 0);
        assert_eq!(running(&mut policy), Some(vcpu(3)));
        policy.wake(vcpu(1), 0);
        assert_eq!(running(&mut policy), Some(vcpu(1)));
    }

    #[test]
    fn a_lower_priority_runs_only_while_the_higher_one_is_blocked() {
        let mut policy = FixedPriority::default();
        policy.wake(vcpu(1), 0);
        policy.wake(vcpu(3), 0);
        policy.give_way(vcpu(1), 0);
        assert_eq!(running(&mut policy), Some(vcpu(1)));
        policy.block(vcpu(1), 0);
        assert_eq!(running(&mut policy), Some(vcpu(3)));
    }
}
