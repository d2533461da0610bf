//! Tests of the drawing: what may stand in a terminal stands in the picture, and nothing breaks it.

use super::{COLUMNS, Line, svg};

#[test]
fn markup_and_escape_sequences_cannot_leave_their_line() {
    let drawn = svg(&[Line::printed("\x1b[1;32m<a&b>\x1b[0m\x07 end  ")]);
    assert!(drawn.contains(">&lt;a&amp;b&gt; end</text>"), "{drawn}");
    assert!(!drawn.contains('\x1b') && !drawn.contains('\x07'));
}

#[test]
fn a_long_line_is_cut() {
    let drawn = svg(&[Line::printed(&"ä".repeat(COLUMNS + 9))]);
    assert_eq!(drawn.matches('ä').count(), COLUMNS);
}

#[test]
fn each_line_has_a_row_and_its_colour() {
    let lines = [Line::typed("$", "ls"), Line::printed("a")];
    let drawn = svg(&lines);
    let colours: Vec<_> = drawn
        .split("fill=\"#")
        .skip(2)
        .map(|rest| &rest[..6])
        .collect();
    assert_eq!(colours, ["7fd1ae", "d7dde4"]);
    assert!(
        drawn.contains("$ ls") && drawn.contains("viewBox=\"0 0 768 70\""),
        "{drawn}"
    );
}
