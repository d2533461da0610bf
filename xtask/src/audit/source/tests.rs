//! Files by their names.

use super::is_test;

#[test]
fn tests_are_told_from_code() {
    assert!(is_test("gear1/core/src/vgic/tests/random.rs"));
    assert!(is_test("gear1/core/src/psci/tests.rs"));
    assert!(is_test("gear1/init/src/testing.rs"));
    assert!(is_test("gear1/ghost/src/lib.rs"));
    assert!(is_test("gear1/runtime/src/ghost.rs"));
    assert!(!is_test("gear1/core/src/psci.rs"));
}
