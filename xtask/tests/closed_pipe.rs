//! Whoever reads the output may leave at any time: `cargo xtask check | head -1`.

use std::process::{Command, Output};

/// Exit status of a program whose reader has left: the status that a shell gives after SIGPIPE.
const READER_LEFT: i32 = 141;

/// Runs xtask with output that nobody reads.
fn unread(arguments: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(arguments).stdout(writer).output().unwrap()
}

#[test]
fn a_reader_that_left_ends_the_output_quietly() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests/minimal.dts");
    let lines: [&[&str]; 6] = [
        &["check", "--format", "json", manifest],
        &["check", manifest],
        &["completions", "bash"],
        &["sched", "--manifest", manifest],
        &["new-manifest", "--plain"],
        &["new-manifest", "--plain", "-"],
    ];
    for arguments in lines {
        let Output { status, stderr, .. } = unread(arguments);
        let said = String::from_utf8_lossy(&stderr);
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
        assert_eq!(status.code(), Some(READER_LEFT), "{arguments:?}: {said}");
    }
}

/// The reader of the messages may leave, too: the work continues.
#[test]
fn nobody_has_to_read_the_messages() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let manifest = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../manifests/invalid/M-VIO-011.dts"
    );
    let output = command.args(["check", manifest]).stderr(writer).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("refused for qemu-virt"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}
