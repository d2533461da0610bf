//! Meetings of threads, and the budget.

use core::sync::atomic::AtomicBool;
use std::thread;
use std::vec::Vec;

use super::*;

fn cpu(index: usize) -> CpuIndex {
    CpuIndex::new(index).unwrap()
}

#[test]
fn a_meeting_is_complete_when_all_are_here() {
    let meeting = Meeting::new();
    for index in [0, 3, 7] {
        assert!(meeting.join(cpu(index)));
        assert!(meeting.has(cpu(index)));
    }
    assert!(!meeting.has(cpu(1)));
    assert!(!meeting.is_called());
    assert!(meeting.call());
    assert!(!meeting.call(), "one at a time");
    assert!(!meeting.join(cpu(1)), "not while one is on");
    let first = meeting.arrive(cpu(3));
    assert!(!meeting.is_complete());
    meeting.arrive(cpu(0));
    assert!(!meeting.is_complete());
    assert_eq!(meeting.arrive(cpu(7)), first);
    assert!(meeting.is_complete() && meeting.is_called());
    assert!(!meeting.is_over(first));
    meeting.end();
    assert!(meeting.is_over(first) && !meeting.is_called());
    assert!(meeting.join(cpu(1)));
    assert!(meeting.call() && !meeting.is_complete());
    assert_eq!(meeting.arrive(cpu(0)), first + 1);
}

#[test]
fn meetings_go_on_after_their_count_wraps() {
    let meeting = Meeting::new();
    assert!(meeting.join(cpu(2)));
    for _ in 0..40_000 {
        assert!(meeting.call());
        let this = meeting.arrive(cpu(2));
        assert!(meeting.is_complete() && !meeting.is_over(this));
        meeting.end();
        assert!(meeting.is_over(this) && meeting.has(cpu(2)));
    }
}

/// Each thread is a CPU that works unless a restart is under way, and starts one now and then. No
/// CPU works while another one renews the image.
#[test]
fn nobody_works_while_a_meeting_is_complete() {
    const CPUS: usize = 4;
    const MEETINGS: u32 = 300;
    let (meeting, renewing) = (Meeting::new(), AtomicBool::new(false));
    let done = AtomicU32::new(0);
    let work = |index: usize| {
        while !meeting.join(cpu(index)) {
            thread::yield_now();
        }
        while done.load(Ordering::SeqCst) < MEETINGS || meeting.is_called() {
            assert!(!renewing.load(Ordering::SeqCst), "works meanwhile");
            let calls = done.load(Ordering::SeqCst) < MEETINGS && meeting.call();
            if !calls && !meeting.is_called() {
                continue;
            }
            let this = meeting.arrive(cpu(index));
            if calls {
                while !meeting.is_complete() {
                    thread::yield_now();
                }
                renewing.store(true, Ordering::SeqCst);
                thread::yield_now();
                renewing.store(false, Ordering::SeqCst);
                done.fetch_add(1, Ordering::SeqCst);
                meeting.end();
            }
            while !meeting.is_over(this) {
                thread::yield_now();
            }
        }
        // This CPU leaves: a later caller need not wait for it.
        meeting.0.fetch_and(!(1 << index), Ordering::SeqCst);
    };
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..CPUS)
            .map(|index| scope.spawn(move || work(index)))
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
    assert!(done.load(Ordering::SeqCst) >= MEETINGS);
}

#[test]
fn the_budget_is_for_a_window_of_time() {
    let mut budget = Budget::new();
    for now in [5, 6, 7] {
        assert!(budget.spend(now, 3, 100));
    }
    assert!(!budget.spend(8, 3, 100));
    assert!(!budget.spend(105, 3, 100));
    for now in [106, 150, 206] {
        assert!(budget.spend(now, 3, 100), "{now}");
    }
    assert!(!budget.spend(206, 3, 100));
    assert!(budget.spend(207, 3, 100));
}

#[test]
fn a_budget_of_0_has_no_end() {
    let mut budget = Budget::new();
    assert!((0..100).all(|now| budget.spend(now, 0, 1000)));
}
