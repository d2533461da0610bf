//! The table, on sources in a folder.

use super::*;

#[test]
fn the_sources_of_a_folder_are_counted_without_its_tests() {
    let folder = workspace::scratch("table");
    fs::create_dir_all(folder.join("src/tests")).expect("a folder");
    let code = "/// Its name.\npub fn f() {\n    g().unwrap();\n}\n";
    fs::write(folder.join("src/lib.rs"), code).expect("a file");
    fs::write(folder.join("src/tests/one.rs"), code).expect("a file");
    fs::write(folder.join("src/notes.txt"), code).expect("a file");
    let column = Column::new("peer", std::slice::from_ref(&folder)).expect("counts");
    fs::remove_dir_all(folder).expect("the folder");
    let text = text(&[column]);
    for line in [
        "| | peer |",
        "| lines of code | 3 |",
        "| lines of tests | 3 |",
        "| lines a function, p50/p90/max | 3/3/3 |",
        "| lines a file, p90/max | 4/4 |",
        "| public items documented | 100.0 % |",
        "| SAFETY | 0/0 |",
        "| panics + asserts a kLoC | 333.3 |",
        "| comments : code | 0.33 |",
        "| that open with a pronoun | 1 |",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    }
}

#[test]
fn tests_are_told_by_their_place() {
    for test in [
        "src/a/tests.rs",
        "tests/a.rs",
        "src/a/tests/b.rs",
        "build.rs",
        "core/src/simulator/world.rs",
    ] {
        assert!(is_test(Path::new(test)), "{test}");
    }
    assert!(!is_test(Path::new("src/attests.rs")));
}
