//! A scheduler from scratch: fixed priorities by vCPU number, without time slices.
//!
//! CONTRIBUTING.md ("A scheduler") names the places that make a policy part of Gear2.

use std::collections::BTreeSet;

use gear1_abi::id::{VcpuId, VmId};
use gear1_abi::regs::NO_DEADLINE;
use gear2_core::scheduler::{Choice, Plan, Policy, PolicyKind, Refused, Run, Share};

/// Runs the ready vCPU with the lowest number, whatever it used and whether it yields.
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

    fn give_way(&mut self, _vcpu: VcpuId, _now: u64) {}

    fn ran(&mut self, _vcpu: VcpuId, _ticks: u64, _now: u64) {}

    fn pick(&mut self, _now: u64) -> Choice {
        let idle = Choice::Idle { until: NO_DEADLINE };
        self.ready.first().map_or(idle, |vcpu| run(*vcpu))
    }
}

/// Returns the choice of a vCPU. A wake-up calls the policy again, so no slice is needed.
const fn run(vcpu: VcpuId) -> Choice {
    Choice::Run(Run {
        vcpu,
        until: NO_DEADLINE,
        contended: false,
        alone: false,
    })
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
    let mut policy = with_vcpus(&[1, 3]);
    policy.wake(vcpu(3), 0);
    println!("{}: {:?}", KIND.name, policy.pick(0));
}

#[test]
fn the_lowest_number_runs_until_it_is_blocked() {
    let mut policy = with_vcpus(&[1, 3]);
    policy.wake(vcpu(3), 0);
    assert_eq!(policy.pick(0), run(vcpu(3)));
    policy.wake(vcpu(1), 10);
    policy.give_way(vcpu(1), 20);
    assert_eq!(policy.pick(20), run(vcpu(1)));
    policy.block(vcpu(1), 30);
    assert_eq!(policy.pick(30), run(vcpu(3)));
}
