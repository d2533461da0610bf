//! Tables of counts that are given.

use super::{Lines, text};

#[test]
fn only_what_differs_has_a_row() {
    let lines = |counts: [(&str, u64); 2]| -> Lines {
        let counts = counts.into_iter();
        counts
            .map(|(name, lines)| (name.to_owned(), lines))
            .collect()
    };
    let before = lines([("vGIC", 10), ("timers", 7)]);
    let now = lines([("vGIC", 8), ("timers", 7)]);
    assert_eq!(
        text("main", &before, &now),
        "| subject | lines at main | now | more |\n|---|---|---|---|\n| vGIC | 10 | 8 | -2 |\n| all | 17 | 15 | -2 |"
    );
    let new = lines([("vGIC", 10), ("FF-A", 3)]);
    assert!(text("x", &before, &new).contains("| FF-A | 0 | 3 | +3 |"));
}
