//! Exit statuses of `gearctl`, and where it prints.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Output};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

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

/// Does something while a program in GDM's place answers a line by a line, with the directory of its
/// socket. One `gearctl` connects.
fn with_gdm<T>(answer: fn(&str) -> String, what: impl FnOnce(&str) -> T) -> T {
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
    let done = what(directory.to_str().unwrap());
    gdm.join().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    done
}

/// Runs `gearctl` beside a program in GDM's place.
fn beside(answer: fn(&str) -> String, words: &[&str]) -> Output {
    with_gdm(answer, |directory| {
        gearctl(&[&["--run", directory], words].concat())
    })
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
    if request["request"] == "figures" {
        return r#"{"version":1,"answer":"figures","value":[]}"#.into();
    }
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
        7 | 8 => (0, "5,0,0,0,0,0".to_owned()),
        10 => (0, "65536,196608,1000,1,0,0".to_owned()),
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

/// Longest time in which a program shows nothing.
const PATIENCE_MS: i32 = 120_000;

/// A terminal, by the side that the person has.
struct Person(File);

impl Person {
    /// Makes a terminal that does not know its size, as a serial port; returns both its sides.
    fn new() -> (Self, OwnedFd) {
        let (mut person, mut program) = (0, 0);
        let (name, mode, size) = (null_mut(), null_mut(), null_mut());
        // SAFETY: the library writes two descriptors, and reads nothing through the null pointers.
        let made = unsafe { libc::openpty(&mut person, &mut program, name, mode, size) };
        assert_eq!(made, 0);
        // SAFETY: the descriptor is open and nobody else's.
        let person = unsafe { File::from_raw_fd(person) };
        // SAFETY: as above.
        let program = unsafe { OwnedFd::from_raw_fd(program) };
        (Self(person), program)
    }

    /// Tells whether the terminal gives whole lines, and shows what is typed.
    fn is_usual(&self) -> bool {
        // SAFETY: zeroes are a `termios`.
        let mut mode: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: the library writes one `termios`.
        let done = unsafe { libc::tcgetattr(self.0.as_raw_fd(), &mut mode) };
        assert_eq!(done, 0);
        mode.c_lflag & (libc::ICANON | libc::ECHO) == libc::ICANON | libc::ECHO
    }

    /// Returns what the program shows until a text, or until its end. A program that shows nothing
    /// any longer fails the test.
    fn read_until(&mut self, text: &str) -> String {
        let mut shown = Vec::new();
        let mut bytes = [0; 4096];
        while !String::from_utf8_lossy(&shown).contains(text) {
            let mut wait = libc::pollfd {
                fd: self.0.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: the kernel reads and writes one `pollfd`.
            let ready = unsafe { libc::poll(&mut wait, 1, PATIENCE_MS) };
            assert_eq!(ready, 1, "{}", String::from_utf8_lossy(&shown));
            match self.0.read(&mut bytes) {
                Ok(length) if length > 0 => shown.extend(&bytes[..length]),
                // The other side is closed.
                _ => break,
            }
        }
        String::from_utf8_lossy(&shown).into_owned()
    }
}

/// `top` has the terminal for itself, and gives it back as it was.
#[test]
fn top_has_a_screen_on_a_terminal() {
    let shown = with_gdm(one_vm, |directory| {
        let (mut person, program) = Person::new();
        assert!(person.is_usual());
        let mut command = Command::new(env!("CARGO_BIN_EXE_gearctl"));
        command.args(["--run", directory, "top"]);
        command.env_remove("COLUMNS").env_remove("LINES");
        command.stdin(program.try_clone().unwrap());
        command.stdout(program.try_clone().unwrap());
        command.stderr(program);
        let mut child = command.spawn().unwrap();
        // The terminal is the child's alone, so that its end is seen.
        drop(command);
        // The first figures come after a second. Later frames are differences of cells.
        let mut shown = person.read_until("linux");
        assert!(!person.is_usual(), "{shown}");
        person.0.write_all(b"q").unwrap();
        shown += &person.read_until("no such text");
        assert!(child.wait().unwrap().success(), "{shown}");
        assert!(person.is_usual());
        shown
    });
    let (enter, leave) = ("\x1b[?1049h", "\x1b[?1049l");
    for part in [enter, "gearctl top", "linux", "freeze", leave] {
        assert!(shown.contains(part), "{part:?} is not in {shown:?}");
    }
}

/// A pipe gets tables, and no control sequences.
#[test]
fn top_prints_lines_to_a_pipe() {
    let output = beside(one_vm, &["top", "2"]);
    let shown = text(&output.stdout);
    assert_eq!(status(&output), Some(0));
    assert_eq!(shown.matches("VM     SHARE").count(), 2, "{shown}");
    assert!(!shown.contains('\x1b'), "{shown:?}");
}

/// Metrics come to a scraper at a socket, as long as nobody ends the program.
#[test]
fn metrics_are_served_at_a_socket() {
    let answer = with_gdm(one_vm, |directory| {
        let path = format!("{directory}/metrics");
        let mut command = Command::new(env!("CARGO_BIN_EXE_gearctl"));
        command.args(["--run", directory, "metrics", "--socket", &path]);
        let mut server = command.spawn().unwrap();
        let mut scraper = loop {
            match UnixStream::connect(&path) {
                Ok(stream) => break stream,
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
            assert_eq!(server.try_wait().unwrap(), None);
        };
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        scraper.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        scraper.read_to_string(&mut answer).unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        std::fs::remove_file(&path).unwrap();
        answer
    });
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let row = "gearv_vm_state{vm=\"linux\",state=\"running\"} 1\n";
    assert!(answer.contains(row), "{answer}");
}
