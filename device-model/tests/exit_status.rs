//! Exit statuses of `gearctl`, and where it prints.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;

/// Runs `gearctl`.
fn gearctl(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gearctl"));
    command.args(words).output().unwrap()
}

fn status(output: &Output) -> Option<i32> {
    output.status.code()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn what_needs_no_gdm_succeeds() {
    let version = gearctl(&["--version"]);
    let expected = concat!("gearctl ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(
        (status(&version), text(&version.stdout)),
        (Some(0), expected.into())
    );
    for words in [
        &["--help"][..],
        &["help", "sched"],
        &["sched", "set", "--help"],
        &["completions", "bash"],
        &["completions", "zsh"],
        &["completions", "fish"],
        &["man"],
    ] {
        let output = gearctl(words);
        assert_eq!(status(&output), Some(0), "{words:?}");
        assert!(
            !output.stdout.is_empty() && output.stderr.is_empty(),
            "{words:?}"
        );
    }
}

#[test]
fn errors_are_of_their_kind_and_go_to_standard_error() {
    let nowhere = ["--run", "/nonexistent"];
    for (words, expected, said) in [
        (
            &["man", "--directory", "/nonexistent"][..],
            1,
            "No such file",
        ),
        (&["reboot", "linux"], 2, "unrecognized subcommand"),
        (&["pause"], 2, "<VM>"),
        (&[], 2, "Usage:"),
        (&["list"], 5, "no gdm answers at /nonexistent/control"),
    ] {
        let output = gearctl(&[&nowhere[..], words].concat());
        let error = text(&output.stderr);
        assert_eq!(status(&output), Some(expected), "{words:?}: {error}");
        assert!(output.stdout.is_empty());
        assert!(
            error.starts_with("gearctl: ") && error.contains(said),
            "{error}"
        );
        // A program gets the same as JSON.
        if words.is_empty() {
            continue;
        }
        let output = gearctl(&[&nowhere[..], words, &["--json"]].concat());
        let error = text(&output.stderr);
        let value: serde_json::Value = serde_json::from_str(&error).unwrap();
        assert_eq!(status(&output), Some(expected), "{words:?}: {error}");
        assert_eq!(
            (&value["version"], &value["kind"]),
            (&1.into(), &"error".into())
        );
        assert_eq!(value["answer"]["status"], expected);
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn a_word_that_is_no_text_is_a_wrong_word() {
    use std::os::unix::ffi::OsStrExt as _;
    let mut command = Command::new(env!("CARGO_BIN_EXE_gearctl"));
    command.arg(std::ffi::OsStr::from_bytes(b"li\xffst"));
    assert_eq!(status(&command.output().unwrap()), Some(2));
}

/// A GDM of another version.
#[test]
fn answers_that_are_not_understood_are_of_another_version() {
    let name = format!("gearctl-status-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let listener = UnixListener::bind(directory.join("control")).unwrap();
    let gdm = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(stream.try_clone().unwrap())
            .read_line(&mut line)
            .unwrap();
        stream.write_all(b"hello\n").unwrap();
    });
    let output = gearctl(&["--run", path(&directory), "list"]);
    let error = text(&output.stderr);
    assert_eq!(status(&output), Some(7), "{error}");
    assert!(error.contains("take both from the same GearV"), "{error}");
    gdm.join().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
