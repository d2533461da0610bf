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
    assert_eq!(
        nearest("memroy-mib", NAMES.iter().copied()),
        Some("memory-mib")
    );
    assert_eq!(nearest("vcpu", NAMES.iter().copied()), Some("vcpus"));
    assert_eq!(nearest("kernal", NAMES.iter().copied()), Some("kernel"));
    assert_eq!(nearest("Kernel", NAMES.iter().copied()), Some("kernel"));
}

#[test]
fn stays_silent_where_nothing_is_near() {
    assert_eq!(nearest("colours", NAMES.iter().copied()), None);
    assert_eq!(nearest("", NAMES.iter().copied()), None);
    assert_eq!(nearest(&"x".repeat(200), NAMES.iter().copied()), None);
}
