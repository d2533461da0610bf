//! Screens that programs print, as a person sees them.

use super::{Style, Terminal};

fn shown(printed: &str) -> Terminal {
    let mut terminal = Terminal::new(10, 3);
    terminal.show(printed);
    terminal
}

#[test]
fn characters_stand_where_the_cursor_was_put() {
    let terminal = shown("ab\x1b[2;4Hcd\x1b[Hx\x1b[3;10Hyz");
    let rows = [0, 1, 2, 3].map(|row| terminal.row(row));
    assert_eq!(rows, ["xb", "   cd", "         y", ""]);
}

#[test]
fn the_other_screen_is_empty() {
    assert_eq!(shown("ab\x1b[?1049h\x1b[?25l").row(0), "");
    assert_eq!(shown("ab\x1b[2J").row(0), "");
    assert_eq!(shown("ab\x1b[0K").row(0), "ab");
}

#[test]
fn styles_begin_and_end() {
    let terminal = shown("a\x1b[1;4mb\x1b[22;24;7mc\x1b[38;5;7;48;2;1;1;1md\x1b[0me");
    let style = |bold, underlined, reversed| Style {
        bold,
        underlined,
        reversed,
    };
    let parts = [
        (0, style(false, false, false), "a".to_owned()),
        (1, style(true, true, false), "b".to_owned()),
        (2, style(false, false, true), "cd".to_owned()),
        (4, style(false, false, false), "e     ".to_owned()),
    ];
    assert_eq!(terminal.parts(0), parts);
}
