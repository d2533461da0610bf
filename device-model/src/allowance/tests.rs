//! Tests of a process's place in the log.

use super::*;

/// A guest that has its process complain without end must not fill the log, and a message months
/// later must be seen.
#[test]
fn a_process_has_a_bounded_part_of_the_log() {
    let start = Instant::now();
    let mut allowance = Allowance::new(start);
    let taken: u64 = (0..1000).map(|_| allowance.take(1024, start)).sum();
    assert_eq!(taken, MESSAGE_BYTES);
    assert_eq!(allowance.take(100, start + FORGIVEN_AFTER * 10), 10);
    let month = Duration::from_secs(30 * 24 * 3600);
    assert_eq!(allowance.take(u64::MAX, start + month), MESSAGE_BYTES);
}
