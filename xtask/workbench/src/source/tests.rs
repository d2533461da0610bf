//! Texts of sources, read.

use super::function_at;

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
