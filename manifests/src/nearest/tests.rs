//! Tests of typo help.

use super::{distance, nearest};

const NAMES: &[&str] = &["memory-mib", "memory-address", "vcpus", "cpus", "kernel"];

#[test]
fn counts_edits() {
    for (left, right, edits) in [
        ("", "", 0),
        ("a", "", 1),
        ("", "ab", 2),
        ("kitten", "sitting", 3),
    ] {
        assert_eq!(
            distance(left.as_bytes(), right.as_bytes()),
            Some(edits),
            "{left} {right}"
        );
    }
}

#[test]
fn finds_typos() {
    assert_eq!(nearest("memroy-mib", NAMES), Some("memory-mib"));
    assert_eq!(nearest("vcpu", NAMES), Some("vcpus"));
    assert_eq!(nearest("kernal", NAMES), Some("kernel"));
}

#[test]
fn stays_silent_where_nothing_is_near() {
    assert_eq!(nearest("colours", NAMES), None);
    assert_eq!(nearest("", NAMES), None);
    assert_eq!(nearest(&"x".repeat(200), NAMES), None);
}
