//! QEMU's log, read.

use super::{function_at, translated};

#[test]
fn instructions_of_the_runtime_are_taken_from_a_log() {
    let log = "----------------\nIN: \n0x800000000850:  a9000fe2  stp x2, x3, [sp]\n0x800000000854:  d65f03c0  ret\n\n\
               ----------------\nIN: \n0x40000000:  580000c0  ldr x0, #0x40000018\n";
    let found: Vec<u64> = translated(log).collect();
    assert_eq!(found, [0x8000_0000_0850, 0x8000_0000_0854]);
}

#[test]
fn a_line_is_in_the_function_above_it() {
    let source = "const X: u8 = 1;\npub(crate) fn one<T>(t: T) {\n    // A fn of nobody.\n    t\n}\n\
        extern \"C\" fn two() {\n}\n";
    let found = [1, 2, 4, 6, 7].map(|line| function_at(source, line));
    assert_eq!(
        found,
        [None, Some("one"), Some("one"), Some("two"), Some("two")]
    );
}
