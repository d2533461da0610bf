//! Turns, deadlines and fairness of round-robin.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

const SLICE: u64 = 100;

fn vcpu(index: usize) -> VcpuId {
    VcpuId::new(index).unwrap()
}

fn with_ready(count: usize) -> RoundRobin {
    let mut policy = RoundRobin::new(SLICE);
    (0..count).for_each(|index| policy.wake(vcpu(index), 0));
    policy
}

#[test]
fn nobody_ready_means_idle() {
    assert_eq!(with_ready(0).pick(5), None);
}

#[test]
fn alone_it_runs_without_a_deadline() {
    let choice = with_ready(1).pick(5).unwrap();
    assert_eq!(
        (choice.vcpu, choice.deadline, choice.contended),
        (vcpu(0), NO_DEADLINE, false)
    );
}

#[test]
fn a_slice_ends_at_its_deadline_only() {
    let mut policy = with_ready(2);
    assert_eq!(policy.pick(0).unwrap().deadline, SLICE);
    // Exits in between neither lengthen nor shorten it.
    let choice = policy.pick(60).unwrap();
    assert_eq!((choice.vcpu, choice.deadline), (vcpu(0), SLICE));
    let choice = policy.pick(SLICE).unwrap();
    assert_eq!((choice.vcpu, choice.deadline), (vcpu(1), 2 * SLICE));
}

#[test]
fn who_ran_alone_for_long_gives_way_at_once() {
    let mut policy = with_ready(1);
    policy.pick(0);
    policy.wake(vcpu(1), 1000);
    assert_eq!(policy.pick(1000).unwrap().vcpu, vcpu(1));
}

#[test]
fn who_blocks_hands_a_full_slice_on() {
    let mut policy = with_ready(2);
    policy.pick(0);
    policy.block(vcpu(0), 70);
    policy.wake(vcpu(0), 75);
    let choice = policy.pick(80).unwrap();
    assert_eq!((choice.vcpu, choice.deadline), (vcpu(1), 80 + SLICE));
}

#[test]
fn who_gives_way_goes_last() {
    let mut policy = with_ready(3);
    policy.pick(0);
    policy.give_way(vcpu(0), 10);
    let order: Vec<_> = (0..3)
        .map(|turn| policy.pick(10 + turn * SLICE).unwrap().vcpu)
        .collect();
    assert_eq!(order, [vcpu(1), vcpu(2), vcpu(0)]);
    // Only the one that runs can give way.
    policy.give_way(vcpu(1), 10 + 2 * SLICE);
    assert_eq!(policy.pick(10 + 2 * SLICE).unwrap().vcpu, vcpu(0));
}

#[test]
fn waking_twice_is_waking_once() {
    let mut policy = with_ready(2);
    policy.wake(vcpu(1), 0);
    policy.block(vcpu(1), 0);
    assert!(!policy.pick(0).unwrap().contended);
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
        let mut policy = RoundRobin::new(SLICE);
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
                    prop_assert_eq!(choice.is_some(), ready > 0);
                    let Some(choice) = choice else { continue };
                    prop_assert!(choice.deadline > now);
                    prop_assert_eq!(choice.contended, ready > 1);
                    let chosen = choice.vcpu.index();
                    prop_assert!(waiting[chosen].is_some());
                    // The vCPU runs until it exits or the deadline comes.
                    now = choice.deadline.min(now + time);
                    waiting[chosen] = Some(now);
                    for since in waiting.iter().flatten() {
                        prop_assert!(now - since <= 6 * SLICE);
                    }
                }
            }
        }
    }
}
