//! Changes of a text, and the comments in the workspace.

use super::{Change, places};
use crate::{bench, planted, realtime};

const TEXT: &str = "fn f() {
    // planted: a
    // planted: b
    // Why.
    if one(
        two,
    ) {
        return;
    }
    // planted: c
    three(4, 5);
}
fn g() -> u32 {
    // planted: e
    6
}
";

#[test]
fn statements_go_and_change_behind_their_comment() {
    let make = |name, change: Change| change.make(name, TEXT).unwrap();
    let found = make("b", Change::Drop);
    assert!(found.contains("// Why.\n    // planted: c\n"), "{found}");
    let found = make("c", Change::Become("let _ = (4, 5);\nsix();"));
    assert!(
        found.contains("c\n    let _ = (4, 5);\n    six();\n}\n"),
        "{found}"
    );
    let found = make("a", Change::Swap("two", "seven"));
    assert_eq!(found, TEXT.replace("two", "seven"));
    let found = make("e", Change::Become("7"));
    assert!(found.ends_with("e\n    7\n}\n"), "{found}");
    let found = make("c", Change::Ahead("    zero();\n"));
    assert!(found.contains("    zero();\n    three"), "{found}");
}

#[test]
fn a_change_without_a_place_or_an_effect_is_an_error() {
    for (name, change) in [
        ("d", Change::Drop),
        ("a", Change::Swap("eight", "")),
        ("c", Change::Swap("4", "4")),
        ("c", Change::Swap("two", "")),
    ] {
        assert!(change.make(name, TEXT).is_err(), "{name} {change:?}");
    }
}

/// A comment that nothing plants at, or that stands twice, misleads whoever reads it.
#[test]
fn every_comment_stands_once_and_is_planted_at() {
    let planted = [
        planted::places(),
        realtime::planted::places(),
        bench::planted_places(),
    ]
    .concat();
    let mut wrong = Vec::new();
    for (name, files) in places().unwrap() {
        if files.len() != 1 || !planted.contains(&name) {
            wrong.push(format!("{name}: {files:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
