//! Tests of the checker: what it finds, and what it lets pass.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{Document, Tree, included, links, normal, slug};

const OTHER: &str = "# Other\n\n## Decisions: `NEXT`\n";

/// Returns the faults of a document `docs/a.md` beside `docs/other.md` and a source file.
fn faults(text: &str) -> Vec<(usize, String)> {
    let file = Path::new("docs/a.md");
    let other = PathBuf::from("docs/other.md");
    let documents = BTreeMap::from([
        (file.to_owned(), text.to_owned()),
        (other, OTHER.to_owned()),
    ]);
    let mut files: BTreeSet<PathBuf> = documents.keys().cloned().collect();
    files.insert("core/src/vgic/list_registers.rs".into());
    Document { file, text }.faults(&Tree { files, documents })
}

#[test]
fn what_is_there_passes() {
    let text = "# A\n[a](other.md#decisions-next) [b](#a) [c](../core/src) [d](https://docs.rs/x)\n\
                `vgic/list_registers.rs` and `tests/NAME.rs`\n";
    assert_eq!(faults(text), []);
}

#[test]
fn a_dead_link_is_found_by_its_line() {
    for (target, why) in [
        ("gone.md", "there is no docs/gone.md"),
        ("other.md#gone", "no such heading"),
        ("#gone", "no such heading"),
        ("../gone", "there is no gone"),
    ] {
        let found = faults(&format!("# A\n\nSee [it]({target}).\n"));
        let [(3, what)] = &found[..] else {
            panic!("{found:?}");
        };
        assert!(what.contains(target) && what.contains(why), "{what}");
    }
}

#[test]
fn a_source_file_that_is_not_there_is_found() {
    let found = faults("In `vgic/gone.rs`.\n");
    assert_eq!(found, [(1, "there is no file vgic/gone.rs".to_owned())]);
    // Only whole names count.
    assert_eq!(faults("In `gic/lists.rs`.\n").len(), 1);
}

#[test]
fn width_counts_in_prose_only() {
    let long = "x".repeat(101);
    assert_eq!(faults(&long), [(1, "more than 100 columns".to_owned())]);
    assert_eq!(
        faults(&format!("| {long} |\n    {long}\n```\n{long}\n```\n")),
        []
    );
}

#[test]
fn code_holds_no_links() {
    assert_eq!(faults("`[a](gone.md)`\n```\n[a](gone.md)\n```\n"), []);
}

#[test]
fn slugs_are_those_of_headings() {
    assert_eq!(slug("FF-A 1.1 (Arm DEN0077A)"), "ff-a-11-arm-den0077a");
    assert_eq!(slug("`/vms/NAME/console`"), "vmsnameconsole");
}

#[test]
fn paths_and_directives() {
    assert_eq!(
        normal(Path::new("docs/a.md/../../tests/./b")),
        Path::new("tests/b")
    );
    assert_eq!(
        included("a {{#include ../b.rs}} c").collect::<Vec<_>>(),
        ["../b.rs"]
    );
    assert_eq!(
        links("[a](b) and ![c](d e)").collect::<Vec<_>>(),
        ["b", "d e"]
    );
}
