//! Counting, on a text.

use super::{is_test, lines, not_shipped, unsafe_blocks};

const TEXT: &str = "//! A file.

fn f() {
    // SAFETY: nobody else does.
    unsafe { g() };
    let x =
        unsafe { h() };
    // SAFETY: the same,
    // on two lines.
    let y = both(unsafe { i() });
    // unsafe { not(this) }
}
";

#[test]
fn lines_and_blocks_are_counted() {
    assert_eq!(lines(TEXT), 6);
    assert_eq!(unsafe_blocks(TEXT), (3, 2));
}

#[test]
fn what_does_not_ship_is_told_from_code() {
    let tests = "fn f() {}\n\n#[cfg(test)]\nmod tests;\n";
    assert_eq!((lines(tests), not_shipped(tests)), (3, 2));
    let checks = "fn f() {
    #[cfg(feature = \"check-ghost\")]
    ghost::before(|said| {
        // A comment.
        read(said);
    });
    g();
    #[cfg(not(feature = \"check-ghost\"))]
    h();
}
";
    assert_eq!((lines(checks), not_shipped(checks)), (9, 4));
}

#[test]
fn tests_are_told_from_code() {
    assert!(is_test("gear1/core/src/vgic/tests/random.rs"));
    assert!(is_test("gear1/core/src/psci/tests.rs"));
    assert!(is_test("gear1/init/src/testing.rs"));
    assert!(is_test("gear1/ghost/src/lib.rs"));
    assert!(is_test("gear1/runtime/src/ghost.rs"));
    assert!(!is_test("gear1/core/src/psci.rs"));
}
