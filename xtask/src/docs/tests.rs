//! Tests of the book's table of contents and of what is copied for it.

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
    std::fs::remove_dir_all(folder).unwrap();
}
