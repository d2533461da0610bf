//! Bounds of texts, and loops that are given.

use super::super::loops::{Loop, Stands};
use super::super::places::Owner;
use super::{Bound, Bounds, of_text};

const TEXT: &str = "fn run() {
    // Bound: MAX_CPUS (8)
    for cpu in cpus() {
        each(cpu);
    }
    for other in others() {
        each(other);
    }
}
";

fn bounds(files: &[(&str, &str)]) -> Bounds {
    let beside = files
        .iter()
        .map(|(file, text)| ((*file).to_owned(), of_text(text)));
    Bounds {
        beside: beside.collect(),
        ..Bounds::default()
    }
}

fn loop_at(file: &str, lines: (u32, u32), column: u32) -> Loop {
    Loop {
        owner: Owner::of(file, "run"),
        stands: Stands::On(lines.0, lines.1),
        closes: (lines.0, column),
    }
}

#[test]
fn a_bound_belongs_to_the_statement_below() {
    let text = "fn one() {
    // Bound: a
    // planted: a fault
    #[expect(lint)]
    for cpu in cpus() {
        // Bound: b
        // Bound: c
        let x = rows.iter().any(|row| {
            row.any()
        });
    }
    // A bound of no loop.
    // Bound: d
    rows.iter()
        .any(Row::any)
}
";
    let bound = |comment, lines, count| Bound {
        function: "one".to_owned(),
        comment,
        lines,
        count,
    };
    let expected = [
        bound(2, (5, 11), 1),
        bound(6, (8, 10), 2),
        bound(13, (14, 15), 1),
    ];
    assert_eq!(of_text(text), expected);
}

#[test]
fn a_function_of_the_same_name_in_another_file_lends_no_bound() {
    let mut bounds = bounds(&[("a.rs", TEXT), ("b.rs", "fn run() { for x in y {} }")]);
    let loops = [loop_at("a.rs", (3, 4), 9), loop_at("b.rs", (1, 1), 12)];
    assert_eq!(
        bounds.compare(&loops),
        ["b.rs: run: a loop without a bound, line 1 to 1"]
    );
}

#[test]
fn another_loop_of_the_same_function_lends_no_bound() {
    let mut bounds = bounds(&[("a.rs", TEXT)]);
    let loops = [loop_at("a.rs", (3, 4), 9), loop_at("a.rs", (6, 7), 9)];
    assert_eq!(
        bounds.compare(&loops),
        ["a.rs: run: a loop without a bound, line 6 to 7"]
    );
}

#[test]
fn a_bound_without_its_loop_is_told_beside_one_with_a_loop() {
    let text = TEXT.replace("    for other", "    // Bound: 3\n    for other");
    let mut bounds = bounds(&[("a.rs", &text)]);
    assert_eq!(bounds.compare(&[loop_at("a.rs", (3, 4), 9)]), [""; 0]);
    assert_eq!(
        bounds.surplus(),
        ["a.rs:6: 1 bounds, and 0 loops below in all images"]
    );
    bounds.compare(&[loop_at("a.rs", (7, 8), 9)]);
    assert_eq!(bounds.surplus(), [""; 0]);
}

#[test]
fn copies_of_a_loop_have_one_bound_and_a_loop_inside_its_own() {
    let copies = [loop_at("a.rs", (3, 4), 9), loop_at("a.rs", (3, 3), 9)];
    assert_eq!(bounds(&[("a.rs", TEXT)]).compare(&copies), [""; 0]);
    let nested = [loop_at("a.rs", (3, 4), 9), loop_at("a.rs", (4, 4), 9)];
    assert_eq!(
        bounds(&[("a.rs", TEXT)]).compare(&nested),
        ["a.rs:2: 1 bounds for the loops that close at {(3, 9), (4, 9)}"]
    );
}

#[test]
fn a_loop_without_a_line_has_the_next_bound_of_its_function() {
    let behind = |line| Loop {
        stands: Stands::Behind(line),
        closes: (0, 0),
        ..loop_at("a.rs", (0, 0), 0)
    };
    assert_eq!(bounds(&[("a.rs", TEXT)]).compare(&[behind(1)]), [""; 0]);
    assert_eq!(
        bounds(&[("a.rs", TEXT)]).compare(&[behind(4)]),
        ["a.rs: run: a loop without a bound, line behind 4"]
    );
    // Not that of the loop which is known to be there.
    let both = [behind(1), loop_at("a.rs", (3, 4), 9)];
    assert_eq!(
        bounds(&[("a.rs", TEXT)]).compare(&both),
        ["a.rs:2: 1 bounds for the loops that close at {(0, 0), (3, 9)}"]
    );
}
