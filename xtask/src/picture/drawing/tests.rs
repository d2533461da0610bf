//! Tests of the drawing: what may stand in a terminal stands in the picture, and nothing breaks it.

use super::{COLUMNS, Line, screen, svg};
use crate::terminal::Terminal;

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

#[test]
fn a_screen_has_its_styles() {
    let mut terminal = Terminal::new(20, 2);
    terminal.show("\x1b[1m<top>\x1b[0m\x1b[2;1H\x1b[7mchosen\x1b[0m \u{2588}");
    let drawn = screen(&terminal, "gearctl top");
    for part in [
        "textLength=\"40\" lengthAdjust=\"spacingAndGlyphs\" fill=\"#d7dde4\" font-weight=\"bold\">&lt;top&gt;</text>",
        "<rect x=\"16\" y=\"35\" width=\"48\" height=\"19\" fill=\"#d7dde4\"/>",
        "fill=\"#14181d\">chosen</text>",
        "\u{2588}",
    ] {
        assert!(drawn.contains(part), "{part} is not in {drawn}");
    }
}
