use std::time::Duration;

use super::{checksum, computed};

#[test]
fn a_guest_that_computed_on_is_believed_only_with_the_right_sum() {
    let away = Duration::from_secs(10);
    let says = |steps: u64, sum: u64, gap: &str| {
        computed(&format!("x\ncomputed {steps} {sum} {gap}\n"), away)
    };
    assert_eq!(checksum(2), 32 * 31 + 2);
    assert!(says(5000, checksum(5000), "0.31").is_ok());
    assert!(says(5000, checksum(5001), "0.31").is_err());
    assert!(says(5000, checksum(5000), "5.2").is_err());
    assert!(computed("", away).is_err());
}
