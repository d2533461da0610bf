use super::*;

fn rows() -> Json {
    let row = |name: &str, number: u64, text: &str| {
        Json::object([
            ("name", name.into()),
            ("number", number.into()),
            ("text", text.into()),
        ])
    };
    Json::List(vec![
        row("linux", 5, "a sentence of some words that is long"),
        row("rt", 12, ""),
    ])
}

#[test]
fn without_a_terminal_nothing_is_wrapped() {
    assert_eq!(
        as_text(&rows(), None),
        "NAME   NUMBER  TEXT\n\
         linux  5       a sentence of some words that is long\n\
         rt     12      -\n"
    );
}

#[test]
fn the_widest_column_is_wrapped_between_words() {
    let text = as_text(&rows(), Some(36));
    assert_eq!(
        text,
        "NAME   NUMBER  TEXT\n\
         linux  5       a sentence of some\n               \
         words that is long\n\
         rt     12      -\n"
    );
    assert_eq!(as_text(&rows(), Some(200)), as_text(&rows(), None));
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in 10..100 {
        let text = as_text(&rows(), Some(width));
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(width), "{width}:\n{text}");
    }
}

#[test]
fn rows_whose_columns_have_no_room_are_paragraphs() {
    assert_eq!(
        as_text(&rows(), Some(24)),
        "NAME linux, NUMBER 5,\nTEXT a sentence of some\nwords that is long\n\
         NAME rt, NUMBER 12, TEXT\n-\n"
    );
}

#[test]
fn long_words_are_broken_and_nothing_is_lost() {
    assert_eq!(wrap("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
    assert_eq!(wrap("", 5), [""]);
    assert_eq!(wrap("a b", 0), ["a", "b"]);
    let text = "vCPU 1: PC 0x400, SPSR 0x3c5";
    assert_eq!(wrap(text, 11).join(" "), text);
}

#[test]
fn what_is_not_there_is_a_dash() {
    let json = Json::object([
        ("share", Json::Null),
        ("on", Json::Bool(true)),
        ("rows", Json::List(Vec::new())),
    ]);
    assert_eq!(as_text(&json, None), "share: -\non: yes\nrows: -\n");
}

#[test]
fn lists_of_numbers_are_cells_and_lists_of_objects_tables() {
    let cpus = Json::List(vec![0.into(), 2.into()]);
    let json = Json::object([
        ("cpus", cpus.clone()),
        ("rows", Json::List(vec![Json::object([("cpus", cpus)])])),
    ]);
    assert_eq!(as_text(&json, None), "cpus: 0 2\nrows:\nCPUS\n0 2\n\n");
}
