//! Requirements: G1-SUP-004.

use super::{Beat, Heartbeat, LOOKS};

const PERIOD: u64 = 1_000;
const LOOK: u64 = PERIOD / LOOKS;

/// Looks up to the first silence and returns the time of that, if it comes until `end`.
fn silent_at(
    heartbeat: &Heartbeat,
    life: u32,
    from: u64,
    end: u64,
    word_at: impl Fn(u64) -> u64,
) -> Option<u64> {
    let mut looks = (from..end).step_by(LOOK as usize);
    looks.find(|&now| heartbeat.look(life, word_at(now), now, PERIOD) == Beat::Silent)
}

#[test]
fn a_word_that_changes_in_each_period_is_alive() {
    for phase in 0..PERIOD {
        let heartbeat = Heartbeat::new();
        // The VM feeds exactly once a period, at any phase of the looks.
        let word = |now: u64| (now + phase) / PERIOD;
        assert_eq!(silent_at(&heartbeat, 1, 0, 100 * PERIOD, word), None);
    }
}

#[test]
fn a_word_that_stops_is_silent_a_look_after_its_period_at_most() {
    for last in 3 * PERIOD..4 * PERIOD {
        let heartbeat = Heartbeat::new();
        let word = |now: u64| now.min(last);
        let silent = silent_at(&heartbeat, 1, 0, 100 * PERIOD, word);
        let silent = silent.expect("the word has stopped");
        let latest = last + PERIOD + LOOK;
        assert!(
            (last + PERIOD..=latest).contains(&silent),
            "{last}: {silent}"
        );
    }
}

#[test]
fn a_vm_has_longer_before_its_first_change() {
    let heartbeat = Heartbeat::new();
    heartbeat.begin(7);
    let silent = silent_at(&heartbeat, 1, 0, 100 * PERIOD, |_| 7);
    assert_eq!(silent, Some(4 * PERIOD));
}

/// A new life begins with all of its time, whatever the word and the time of the former one were.
#[test]
fn a_life_does_not_begin_with_the_silence_of_another() {
    let heartbeat = Heartbeat::new();
    let end = silent_at(&heartbeat, 1, 0, 100 * PERIOD, |now| now.min(PERIOD));
    let begin = end.expect("the word has stopped") + LOOK;
    heartbeat.begin(PERIOD);
    let silent = silent_at(&heartbeat, 2, begin, 100 * PERIOD, |_| PERIOD);
    assert_eq!(silent, Some(begin + 4 * PERIOD));
}

/// A VM that fails at once has shown a sign of life all the same, and is found as fast as any.
#[test]
fn a_change_before_the_first_look_counts() {
    let heartbeat = Heartbeat::new();
    assert_eq!(heartbeat.look(1, 5, 0, PERIOD), Beat::Alive);
    heartbeat.begin(5);
    let silent = silent_at(&heartbeat, 2, PERIOD, 100 * PERIOD, |_| 6);
    assert_eq!(silent, Some(2 * PERIOD));
}
