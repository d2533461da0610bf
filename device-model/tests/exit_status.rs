//! Exit statuses of `gearctl`, and where it prints.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
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

/// Runs `gearctl` beside a program in GDM's place, which answers a line by a line.
fn beside(answer: fn(&str) -> String, words: &[&str]) -> Output {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("gearctl-status-{}-{number}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let listener = UnixListener::bind(directory.join("control")).unwrap();
    let gdm = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        for line in reader.lines().map_while(Result::ok) {
            // A `gearctl` that has ended needs no answer.
            let _ = stream.write_all(format!("{}\n", answer(&line)).as_bytes());
        }
    });
    let output = gearctl(&[&["--run", directory.to_str().unwrap()], words].concat());
    gdm.join().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    output
}

#[test]
fn answers_that_are_not_understood_are_of_another_version() {
    for answer in [
        "ok 196611 4 2 1 52 62500000",
        "error there is no request `{`",
        r#"{"version":2,"answer":"about","value":{}}"#,
        r#"{"version":1,"answer":"order","value":1}"#,
        r#"{"version":1,"answer":"error","value":{"kind":"version","message":"take both from the same GearV"}}"#,
    ] {
        static ANSWER: Mutex<&str> = Mutex::new("");
        *ANSWER.lock().unwrap() = answer;
        let output = beside(|_| (*ANSWER.lock().unwrap()).to_owned(), &["list"]);
        let error = text(&output.stderr);
        assert_eq!(status(&output), Some(7), "{error}");
        assert!(error.contains("take both from the same GearV"), "{error}");
    }
}

/// A machine with one VM, which runs and is never stopped.
fn one_vm(line: &str) -> String {
    let request: serde_json::Value = serde_json::from_str(line).unwrap();
    if request["request"] != "call" {
        let about = r#"{"protocol":0,"vcpus":1,"vms":1,"starts":1,"beats":1,"hz":1000}"#;
        return format!(r#"{{"version":1,"answer":"about","value":{about}}}"#);
    }
    let (outcome, results) = match request["operation"].as_u64().unwrap() {
        1 => (0, "3,1,0,0,0,0".to_owned()),
        11 => (
            0,
            format!("{},0,0,0,0,0", u64::from_le_bytes(*b"linux\0\0\0")),
        ),
        2 => (2, "0,0,0,0,0,0".to_owned()),
        3 => (4, "0,0,0,0,0,0".to_owned()),
        _ => (1, "0,0,0,0,0,0".to_owned()),
    };
    let called = format!(r#"{{"outcome":{outcome},"results":[{results}]}}"#);
    format!(r#"{{"version":1,"answer":"call","value":{called}}}"#)
}

#[test]
fn what_gear2_answers_decides_on_the_status() {
    for (words, expected) in [
        (&["list"][..], 0),
        (&["stop", "linux"], 0),
        (&["wait", "linux", "running"], 0),
        (&["stop", "nobody"], 3),
        (&["start", "linux"], 4),
        (&["wait", "linux", "stopped", "--timeout", "0.1"], 6),
        (&["stop", "linux", "--wait", "--timeout", "0.1"], 6),
    ] {
        let output = beside(one_vm, words);
        let error = text(&output.stderr);
        assert_eq!(status(&output), Some(expected), "{words:?}: {error}");
        assert_eq!(error.is_empty(), expected == 0, "{words:?}: {error}");
    }
}
