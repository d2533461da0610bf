//! Crash loops of every speed.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

/// The default, in milliseconds.
const POLICY: RestartPolicy = RestartPolicy {
    limit: RestartLimit::DEFAULT.limit,
    window: RestartLimit::DEFAULT.window_ms as u64,
    backoff: RestartLimit::DEFAULT.backoff_ms as u64,
};

/// Returns when a VM that lives for `life` is started, until it is given up.
fn starts(life: u64, policy: &RestartPolicy, must_run: bool) -> Vec<u64> {
    let (mut restarts, mut now) = (Restarts::default(), 0);
    let judged = core::iter::from_fn(|| match restarts.judge(now, policy, must_run) {
        Verdict::At(due) => {
            now = due + life;
            Some(due)
        }
        Verdict::GiveUp => None,
    });
    judged.take(100).collect()
}

#[test]
fn a_guest_that_crashes_at_once_is_given_up_after_a_minute() {
    let starts = starts(0, &POLICY, false);
    let pauses = [
        0, 100, 300, 700, 1_500, 3_100, 6_300, 12_700, 25_500, 51_100,
    ];
    assert_eq!(starts, pauses);
}

#[test]
fn a_guest_that_lives_for_long_is_always_started_at_once() {
    let starts = starts(POLICY.window, &POLICY, false);
    assert_eq!(starts.len(), 100);
    let pauses = starts.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(pauses.eq(core::iter::repeat_n(POLICY.window, 99)));
}

#[test]
fn what_must_run_is_started_for_ever_and_seldom() {
    let starts = starts(0, &POLICY, true);
    assert_eq!(starts.len(), 100);
    // There is one start in 5 s.
    assert!(starts[99] > 500_000, "{starts:?}");
}

proptest! {
    /// Whatever the manifest says and however long a VM lives, there are never more restarts within
    /// a window than the limit.
    #[test]
    fn no_window_has_more_than_the_limit(
        limit in 1..=RestartLimit::MOST,
        window in 1..10_000_u64,
        backoff in 0..5_000_u64,
        lives in proptest::collection::vec(0..3_000_u64, 1..200),
    ) {
        let policy = RestartPolicy { limit, window, backoff };
        let (mut restarts, mut now, mut due_at) = (Restarts::default(), 0, Vec::new());
        for life in lives {
            now += life;
            match restarts.judge(now, &policy, false) {
                Verdict::At(due) => {
                    prop_assert!(due >= now && due <= now + window);
                    due_at.push(due);
                    now = due;
                }
                Verdict::GiveUp => prop_assert!(due_at.len() >= limit as usize),
            }
        }
        for (place, begin) in due_at.iter().enumerate() {
            let within = due_at[place..].iter().filter(|due| **due - begin < window).count();
            prop_assert!(within <= limit as usize, "{due_at:?}");
        }
    }
}

#[test]
fn an_earlier_gear2s_restarts_count() {
    // Twice as many as are remembered: the oldest ones are overwritten first, in each Gear2.
    let policy = RestartPolicy {
        limit: 0,
        window: 1_000_000,
        backoff: 0,
    };
    let mut restarts = Restarts::default();
    for time in 1..=2 * REMEMBERED as u64 {
        restarts.judge(time, &policy, false);
        restarts = Restarts::resumed(restarts.times(), time, &policy);
    }
    let mut times = restarts.times();
    times.sort_unstable();
    let first = REMEMBERED as u64 + 1;
    assert!(times.into_iter().eq(first..=2 * REMEMBERED as u64));
}

#[test]
fn rubbish_is_no_restart() {
    let times = core::array::from_fn(|place| u64::MAX - place as u64);
    let now = 1_000_000;
    let mut resumed = Restarts::resumed(times, now, &POLICY);
    assert_eq!(resumed.times(), [0; REMEMBERED]);
    assert_eq!(resumed.judge(now, &POLICY, false), Verdict::At(now));
}
