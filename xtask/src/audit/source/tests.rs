//! Counting, on a text.

use super::{is_test, lines, test_declarations, unsafe_blocks};

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
fn the_declaration_of_tests_is_no_code() {
    let text = "fn f() {}\n\n#[cfg(test)]\nmod tests;\n";
    assert_eq!(test_declarations(text), 2);
    let others = "#[cfg(test)]\nfn only_in_tests() {}\nmod tests;\n#[cfg(test)]\n";
    assert_eq!(test_declarations(others), 0);
}

#[test]
fn tests_are_told_from_code() {
    assert!(is_test("gear1/core/src/vgic/tests/random.rs"));
    assert!(is_test("gear1/core/src/psci/tests.rs"));
    assert!(is_test("gear1/init/src/testing.rs"));
    assert!(is_test("gear1/ghost/src/lib.rs"));
    assert!(!is_test("gear1/core/src/psci.rs"));
}
