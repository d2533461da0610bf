//! Each use of a slot against each thing that happens to it.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::*;

fn new_kept() -> &'static Kept {
    Box::leak(Box::new(Kept::new()))
}

fn places(region: &'static [MmioSlot]) -> Places {
    core::array::from_fn(|index| region.get(index))
}

fn slots() -> (Slots, &'static [MmioSlot]) {
    let region: &'static [MmioSlot] = Vec::leak((0..32).map(|_| MmioSlot::default()).collect());
    (Slots::new(places(region), new_kept()), region)
}

fn request(value: u64) -> Request {
    Request {
        device: 3,
        register: 0x30,
        access: 0b110,
        value,
    }
}

fn vcpu(index: usize) -> VcpuId {
    VcpuId::new(index).unwrap()
}

fn answer(slot: &MmioSlot, state: u32, value: u64) {
    assert_eq!(slot.state(), slot::POSTED);
    slot.value.store(value, Relaxed);
    slot.set_state(state);
}

fn collect(slots: &mut Slots) -> (Vec<(usize, Answer)>, bool) {
    let mut answers = vec![];
    let posted = slots.collect(|vcpu, answer| answers.push((vcpu.index(), answer)));
    (answers, posted)
}

#[test]
fn an_access_is_posted_and_its_answer_passed_on_once() {
    let (mut slots, shared) = slots();
    assert!(slots.post(vcpu(5), request(9)));
    assert!(slots.awaits(vcpu(5)) && !slots.awaits(vcpu(4)));
    let words = [&shared[5].device, &shared[5].register, &shared[5].access];
    assert_eq!(words.map(|word| word.load(Relaxed)), [3, 0x30, 0b110]);
    assert_eq!(collect(&mut slots), (vec![], false));
    answer(&shared[5], slot::DONE, 77);
    assert_eq!(collect(&mut slots), (vec![(5, Answer::Value(77))], false));
    assert_eq!(collect(&mut slots), (vec![], false));
    assert!(!slots.awaits(vcpu(5)));
    assert!(slots.post(vcpu(5), request(10)));
    assert_eq!(shared[5].sequence.load(Relaxed), 2);
    assert_eq!(slots.forwarded(), 2);
}

#[test]
fn whatever_is_no_answer_is_an_abort() {
    for state in [slot::ABORT, slot::IDLE, 4, u32::MAX] {
        let (mut slots, shared) = slots();
        slots.post(vcpu(0), request(9));
        answer(&shared[0], state, 1);
        assert_eq!(collect(&mut slots), (vec![(0, Answer::Abort)], false));
        assert_eq!(shared[0].state(), slot::IDLE);
    }
}

#[test]
fn what_was_not_asked_is_not_answered() {
    let (mut slots, shared) = slots();
    shared[1].set_state(slot::DONE);
    assert_eq!(collect(&mut slots), (vec![], false));
}

#[test]
fn a_late_answer_is_dropped_and_the_next_access_waits_for_it() {
    let (mut slots, shared) = slots();
    slots.post(vcpu(2), request(1));
    slots.abandon(vcpu(2));
    assert!(!slots.awaits(vcpu(2)) && !slots.is_free(vcpu(2)));
    assert!(!slots.post(vcpu(2), request(2)), "the slot is GDM's yet");
    assert!(slots.awaits(vcpu(2)));
    assert_eq!(shared[2].value.load(Relaxed), 1);
    answer(&shared[2], slot::DONE, 100);
    assert_eq!(collect(&mut slots), (vec![], true));
    assert_eq!(shared[2].value.load(Relaxed), 2);
    answer(&shared[2], slot::DONE, 200);
    assert_eq!(collect(&mut slots), (vec![(2, Answer::Value(200))], false));
}

#[test]
fn what_waits_is_abandoned_too() {
    let (mut slots, shared) = slots();
    slots.post(vcpu(2), request(1));
    slots.abandon(vcpu(2));
    slots.post(vcpu(2), request(2));
    slots.abandon(vcpu(2));
    answer(&shared[2], slot::DONE, 100);
    assert_eq!(collect(&mut slots), (vec![], false));
    assert!(slots.is_free(vcpu(2)));
}

/// After a restart of Gear2, an answer of GDM goes to the vCPU only if it belongs to the access
/// that the vCPU waits for.
#[test]
fn what_an_earlier_gear2_posted_is_taken_over_by_who_waits_for_it() {
    let held = [3, 0x30, 0b110];
    let others = [[4, 0x30, 0b110], [3, 0x34, 0b110], [3, 0x30, 0b010]];
    let waits = core::iter::once(None).chain(others.into_iter().chain([held]).map(Some));
    for awaited in waits {
        let (mut before, shared) = slots();
        before.post(vcpu(2), request(9));
        let mut slots = Slots::new(places(shared), before.kept);
        slots.take_over(vcpu(2), awaited);
        assert_eq!(slots.awaits(vcpu(2)), awaited == Some(held), "{awaited:?}");
        assert!(!slots.is_free(vcpu(2)), "GDM has it still");
        answer(&shared[2], slot::DONE, 77);
        let expected = match awaited {
            Some(awaited) if awaited == held => vec![(2, Answer::Value(77))],
            Some(_) | None => vec![],
        };
        assert_eq!(collect(&mut slots).0, expected, "{awaited:?}");
        assert!(slots.is_free(vcpu(2)));
    }
}

/// Two lives of a VM write the same register: what the first one wrote is not the second's, though
/// GDM has it still when Gear2 is restarted.
#[test]
fn an_answer_to_another_life_of_the_vm_is_dropped_after_a_restart() {
    let (mut before, shared) = slots();
    before.post(vcpu(2), request(1));
    before.abandon(vcpu(2));
    assert!(!before.post(vcpu(2), request(2)));
    let mut slots = Slots::new(places(shared), before.kept);
    slots.take_over(vcpu(2), Some([3, 0x30, 0b110]));
    assert!(!slots.awaits(vcpu(2)), "it has to ask again");
    answer(&shared[2], slot::DONE, 77);
    assert_eq!(collect(&mut slots), (vec![], false));
    assert!(slots.post(vcpu(2), request(2)));
    answer(&shared[2], slot::DONE, 78);
    assert_eq!(collect(&mut slots).0, [(2, Answer::Value(78))]);
}
