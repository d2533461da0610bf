//! Whoever reads the output of the programs may leave at any time.

use std::process::Command;

/// Exit status of a program whose reader has left: the status that a shell gives after SIGPIPE.
const READER_LEFT: i32 = 141;
const PROGRAMS: [&str; 2] = [env!("CARGO_BIN_EXE_gearctl"), env!("CARGO_BIN_EXE_gdm")];

#[test]
fn a_reader_that_left_ends_the_output_quietly() {
    for program in PROGRAMS {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(program);
        let output = command.arg("--help").stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.is_empty(), "{program}: {said}");
        assert_eq!(output.status.code(), Some(READER_LEFT), "{program}");
    }
}

/// The log of gdm is a pipe when a person starts it, and its threads must not end with the reader.
#[test]
fn nobody_has_to_read_the_messages() {
    let [gearctl, gdm] = PROGRAMS;
    for (program, words, expected) in [
        (gearctl, ["--run", "/nowhere", "list"], 5),
        (gdm, ["--poll", "--device-tree", "/nowhere"], 1),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(program);
        let status = command.args(words).stderr(writer).status().unwrap();
        assert_eq!(status.code(), Some(expected), "{program}");
    }
}
