//! Bounds in a text.

use super::of_text;

#[test]
fn a_bound_belongs_to_the_function_it_stands_in() {
    let text = "// Bound: of none\nfn one() {\n    // Bound: MAX_CPUS (8)\n    for cpu in cpus() {}\n}\n\npub(super) fn two<T>() {\n    // A bound of no loop.\n    // Bound: a\n    // Bound: b\n}\n";
    assert_eq!(of_text(text).collect::<Vec<_>>(), ["", "one", "two", "two"]);
}
