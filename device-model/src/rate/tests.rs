//! Properties of token buckets: no window has more than the rate and the burst, and nobody starves.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

use super::{Bucket, Limits, NANOSECONDS};

/// Pauses in nanoseconds, and bytes that are asked for behind each.
fn history() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let pause = prop_oneof![Just(0), 0..2_000_000_u64, 0..5_000_000_000_u64];
    let bytes = prop_oneof![Just(0), 0..8192_u64, 0..4_000_000_u64];
    vec((pause, bytes), 1..60)
}

/// Lets a history pass, each request as soon as it may; returns when each passed, and its bytes.
fn pass(limits: &mut Limits, history: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut now = 0;
    let mut passed = Vec::new();
    for (pause, bytes) in history {
        now += pause;
        let wait = limits.charge(now, *bytes);
        if wait > 0 {
            // Not a nanosecond earlier, and no second time.
            assert!(limits.charge(now + wait - 1, *bytes) > 0);
            now += wait;
            assert_eq!(limits.charge(now, *bytes), 0, "it starves");
        }
        passed.push((now, *bytes));
    }
    passed
}

/// Checks each window that begins and ends with a request.
fn check(passed: &[(u64, u64)], rate: u64, burst_ms: u64, tokens: impl Fn(u64) -> u64) {
    for (first, (from, _)) in passed.iter().enumerate() {
        let mut sum = 0_u128;
        let mut largest = 1;
        for (to, bytes) in &passed[first..] {
            let tokens = u128::from(tokens(*bytes));
            sum += tokens;
            largest = largest.max(tokens);
            let burst = u128::from(rate) * u128::from(burst_ms) / 1000;
            let allowed = u128::from(rate) * u128::from(to - from) / NANOSECONDS;
            assert!(
                sum <= allowed + burst.max(largest) + 1,
                "{sum} in {} ns",
                to - from
            );
        }
    }
}

proptest! {
    #[test]
    fn no_window_has_more_than_the_rate_and_the_burst(
        history in history(),
        requests in 0..5000_u32,
        bytes in prop_oneof![Just(0), 65_536..50_000_000_u32],
        burst_ms in 1..1000_u32,
    ) {
        let mut limits = Limits::new([requests, bytes, burst_ms]);
        let passed = pass(&mut limits, &history);
        assert_eq!(passed.len(), history.len());
        if requests > 0 {
            check(&passed, requests.into(), burst_ms.into(), |_| 1);
        }
        if bytes > 0 {
            check(&passed, bytes.into(), burst_ms.into(), |bytes| bytes);
        }
    }

    /// A device that asks all the time gets the rate, and no less.
    #[test]
    fn the_rate_is_reached(rate in 1..100_000_u32, bytes in 1..4096_u64) {
        let mut limits = Limits::new([rate, 0, 10]);
        let passed = pass(&mut limits, &vec![(0, bytes); 200]);
        let (end, _) = passed[199];
        let ideal = 200 * NANOSECONDS / u128::from(rate) + 10_000_000;
        assert!(u128::from(end) <= ideal + 200, "{end} {ideal}");
    }

    #[test]
    fn no_number_overflows(rate in 1..=u32::MAX, burst in any::<u64>(), asks in vec(any::<(u64, u64)>(), 8)) {
        let mut bucket = Bucket::new(rate, Duration::from_nanos(burst)).unwrap();
        for (now, tokens) in asks {
            bucket.wait(now, tokens);
            bucket.take(now, tokens);
        }
    }
}

#[test]
fn no_limits_hold_nothing_back() {
    let mut limits = Limits::new([0, 0, 100]);
    assert!((0..1000).all(|_| limits.admit(u64::MAX)));
    assert_eq!(limits.pause(), None);
}

#[test]
fn a_larger_request_than_the_burst_passes_and_is_paid_for() {
    // 1 MB/s for 1 ms is 1000 bytes.
    let mut limits = Limits::new([0, 1_000_000, 1]);
    assert_eq!(limits.charge(1_000_000, 5000), 0);
    assert_eq!(limits.charge(1_000_000, 1), 4_001_000);
    assert_eq!(limits.charge(5_001_000, 1), 0);
}

#[test]
fn what_one_bucket_holds_back_costs_nothing_in_the_other() {
    let mut limits = Limits::new([1, 1_000_000, 1000]);
    let second = 1_000_000_000;
    assert_eq!(limits.charge(second, 1_000_000), 0);
    assert_eq!(limits.charge(second, 1), second);
    let bytes = limits.bytes.unwrap().full_at;
    assert_eq!(bytes, 2 * second);
}

#[test]
fn what_waits_says_for_how_long() {
    let mut limits = Limits::new([1, 0, 1]);
    assert!(!limits.admit(0), "the bucket begins empty");
    let pause = limits.pause().unwrap();
    assert!(pause <= Duration::from_secs(1) && pause > Duration::from_millis(500));
}
