//! Turns, deadlines and fairness of round-robin.

use alloc::vec;
use alloc::vec::Vec;

use gear1_abi::id::VmId;
use proptest::prelude::*;

use super::*;

const SLICE: u64 = 100;

fn vcpu(index: usize) -> VcpuId {
    VcpuId::new(index).unwrap()
}

fn with_ready(count: usize) -> RoundRobin {
    let mut policy = RoundRobin::new(SLICE);
    for index in 0..6 {
        policy.add(vcpu(index), &Share::of(VmId::FIRST), 0).unwrap();
    }
    (0..count).for_each(|index| policy.wake(vcpu(index), 0));
    policy
}

/// Returns what runs.
fn run(policy: &mut RoundRobin, now: u64) -> Run {
    match policy.pick(now) {
        Choice::Run(run) => run,
        Choice::Idle { .. } => panic!("nobody runs"),
    }
}

#[test]
fn nobody_ready_means_idle() {
    let idle = Choice::Idle { until: NO_DEADLINE };
    assert_eq!(with_ready(0).pick(5), idle);
}

#[test]
fn alone_it_runs_without_a_deadline() {
    let choice = run(&mut with_ready(1), 5);
    assert_eq!(
        (choice.vcpu, choice.until, choice.contended),
        (vcpu(0), NO_DEADLINE, false)
    );
}

#[test]
fn a_slice_ends_at_its_deadline_only() {
    let mut policy = with_ready(2);
    assert_eq!(run(&mut policy, 0).until, SLICE);
    // Exits in between neither lengthen nor shorten it.
    policy.ran(vcpu(0), 60, 60);
    let choice = run(&mut policy, 60);
    assert_eq!((choice.vcpu, choice.until), (vcpu(0), SLICE));
    policy.ran(vcpu(0), SLICE - 60, SLICE);
    let choice = run(&mut policy, SLICE);
    assert_eq!((choice.vcpu, choice.until), (vcpu(1), 2 * SLICE));
}

#[test]
fn who_ran_alone_for_long_gives_way_at_once() {
    let mut policy = with_ready(1);
    policy.pick(0);
    policy.ran(vcpu(0), 1000, 1000);
    policy.wake(vcpu(1), 1000);
    assert_eq!(run(&mut policy, 1000).vcpu, vcpu(1));
}

#[test]
fn who_blocks_hands_a_full_slice_on() {
    let mut policy = with_ready(2);
    policy.pick(0);
    policy.ran(vcpu(0), 70, 70);
    policy.block(vcpu(0), 70);
    policy.wake(vcpu(0), 75);
    let choice = run(&mut policy, 80);
    assert_eq!((choice.vcpu, choice.until), (vcpu(1), 80 + SLICE));
}

#[test]
fn who_gives_way_goes_last() {
    let mut policy = with_ready(3);
    policy.pick(0);
    policy.give_way(vcpu(0), 10);
    let mut order = Vec::new();
    for turn in 0..3 {
        let vcpu = run(&mut policy, 10 + turn * SLICE).vcpu;
        order.push(vcpu);
        let ticks = if turn < 2 { SLICE } else { 0 };
        policy.ran(vcpu, ticks, 10 + (turn + 1) * SLICE);
    }
    assert_eq!(order, [vcpu(1), vcpu(2), vcpu(0)]);
    // Only the one that runs can give way.
    policy.give_way(vcpu(1), 10 + 2 * SLICE);
    assert_eq!(run(&mut policy, 10 + 2 * SLICE).vcpu, vcpu(0));
}

#[test]
fn waking_twice_is_waking_once() {
    let mut policy = with_ready(2);
    policy.wake(vcpu(1), 0);
    policy.block(vcpu(1), 0);
    assert!(!run(&mut policy, 0).contended);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Wake(usize),
    Block(usize),
    GiveWay(usize),
    Pick(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let index = 0..6_usize;
    prop_oneof![
        index.clone().prop_map(Step::Wake),
        index.clone().prop_map(Step::Block),
        index.prop_map(Step::GiveWay),
        (0..2 * SLICE).prop_map(Step::Pick),
    ]
}

proptest! {
    /// The reference beside the policy is the plain set of ready vCPUs: the chosen vCPU is ready,
    /// the CPU is idle exactly if the set is empty, and no vCPU waits longer than one slice of each
    /// of the others.
    #[test]
    fn chooses_among_the_ready(steps in proptest::collection::vec(step(), 1..300)) {
        let mut policy = with_ready(0);
        let mut waiting: Vec<Option<u64>> = vec![None; 6];
        let mut now = 0;
        for step in steps {
            match step {
                Step::Wake(index) => {
                    policy.wake(vcpu(index), now);
                    waiting[index].get_or_insert(now);
                }
                Step::Block(index) => {
                    policy.block(vcpu(index), now);
                    waiting[index] = None;
                }
                Step::GiveWay(index) => policy.give_way(vcpu(index), now),
                Step::Pick(time) => {
                    let choice = policy.pick(now);
                    let ready = waiting.iter().flatten().count();
                    prop_assert_eq!(matches!(choice, Choice::Run(_)), ready > 0);
                    let Choice::Run(choice) = choice else { continue };
                    prop_assert!(choice.until > now);
                    prop_assert_eq!(choice.contended, ready > 1);
                    let chosen = choice.vcpu.index();
                    prop_assert!(waiting[chosen].is_some());
                    // The vCPU runs until it exits or the deadline comes.
                    let until = choice.until.min(now + time);
                    policy.ran(choice.vcpu, until - now, until);
                    now = until;
                    waiting[chosen] = Some(now);
                    for since in waiting.iter().flatten() {
                        prop_assert!(now - since <= 5 * SLICE);
                    }
                }
            }
        }
    }
}
