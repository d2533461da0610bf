//! Whoever reads the list of tests may leave at any time: `cargo xtask test --list | head -1`.

use std::process::Command;

/// Exit status of a program whose reader has left: the status that a shell gives after SIGPIPE.
const READER_LEFT: i32 = 141;

#[test]
fn a_reader_that_left_ends_the_list_quietly() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tests-suite"));
    let output = command
        .args(["test", "--list", "--slow"])
        .stdout(writer)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(output.status.code(), Some(READER_LEFT), "{said}");
}
