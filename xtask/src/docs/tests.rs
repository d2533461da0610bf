//! Tests of the book's table of contents, of what is copied for it, and of its examples.

use std::fs;

use super::markdown::included;
use super::{CHAPTERS, copy_sources, summary};
use workbench::workspace;

#[test]
fn the_summary_has_each_chapter_once() {
    let summary = summary();
    for (title, file) in CHAPTERS.iter().filter(|(_, file)| !file.is_empty()) {
        assert_eq!(summary.matches(&format!("[{title}]({file})")).count(), 1);
    }
}

#[test]
fn the_copy_has_the_chapters_and_what_they_include() {
    let folder = workspace::scratch("book");
    copy_sources(workspace::root(), &folder).unwrap();
    for file in [
        "README.md",
        "gear2/core/examples/fixed_priority.rs",
        "SUMMARY.md",
    ] {
        assert!(folder.join(file).is_file(), "{file}");
    }
    fs::remove_dir_all(folder).unwrap();
}

/// CONTRIBUTING.md promises that each is short: a reader is to see a whole one at a glance.
#[test]
fn each_example_has_less_than_100_lines() {
    let docs = workspace::root().join("docs");
    let page = fs::read_to_string(docs.join("examples.md")).unwrap();
    let examples: Vec<&str> = included(&page).collect();
    assert_eq!(examples.len(), 4, "{examples:?}");
    for example in examples {
        let lines = fs::read_to_string(docs.join(example))
            .unwrap()
            .lines()
            .count();
        assert!(lines < 100, "{example}: {lines} lines");
    }
}
