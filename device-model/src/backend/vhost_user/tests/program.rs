//! Tests of the processes that GDM starts: the real ones of any Linux.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::super::program::Program;
use super::{LONG, is_root, node};
use crate::board::DeviceNode;
use crate::testing::Directory;

const ACCOUNT: u32 = 60_581;

/// Returns a device whose program is a shell with these words.
fn shell(directory: &Directory, words: &str) -> DeviceNode {
    let mut node = node(&format!("{}/own/socket", directory.text()));
    node.command = ["/bin/sh", "-c", words].map(str::to_owned).to_vec();
    node
}

fn program(node: &DeviceNode) -> Program {
    let own = Path::new(&node.backend).parent().unwrap();
    let directory = own.parent().unwrap().to_str().unwrap();
    Program::of(node, "linux/vhost-user2", directory, |_| {}).unwrap()
}

/// Waits until a file has a last line, and returns its text.
fn text_of(path: &str) -> String {
    let begin = Instant::now();
    loop {
        let text = fs::read_to_string(path).unwrap_or_default();
        if text.ends_with("end\n") {
            return text;
        }
        assert!(begin.elapsed() < LONG, "{path} has {text:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_device_without_a_command_has_no_program() {
    assert!(Program::of(&node("/run/x"), "x", "/run", |_| {}).is_none());
}

#[test]
fn a_program_that_cannot_start_is_named() {
    let directory = Directory::new("program");
    let mut node = shell(&directory, "");
    node.command = vec!["/nowhere/daemon".into()];
    let error = program(&node).run().unwrap_err();
    assert!(error.starts_with("/nowhere/daemon: "), "{error}");
    if is_root() {
        assert!(error.contains("No such file"), "{error}");
        node.command = vec!["/bin/sh".into()];
        node.files = vec!["/nowhere/disk".into()];
        // A process that another test starts has the lock of the first start until its own start.
        let is_locked = |error: &String| error.contains("has not ended");
        let starts = (0..1000).map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            program(&node).run().unwrap_err()
        });
        let error = starts.into_iter().find(|error| !is_locked(error)).unwrap();
        assert!(error.starts_with("/bin/sh: /nowhere/disk: "), "{error}");
    }
}

/// The program has its own user, its files, and no capability; a kill of it is noticed, and the
/// next start waits.
#[test]
fn a_program_has_no_rights_but_its_own() {
    if !is_root() {
        // A user that is not root can start programs as nobody else.
        return;
    }
    let directory = Directory::new("program");
    let file = directory.file("disk", b"");
    let words = format!(
        "exec > {file}; id -u; id -g; id -G; \
         grep -E 'Cap(Eff|Prm|Amb)|NoNewPrivs' /proc/self/status; env; \
         until grep 1000 /proc/self/oom_score_adj; do sleep 0.01; done; \
         echo > {}/own/socket; echo end; exec sleep 1000",
        directory.text()
    );
    let mut node = shell(&directory, &words);
    node.files = vec![file.clone()];
    let mut program = program(&node);
    program.run().unwrap();
    let said = text_of(&file);
    let account = ACCOUNT.to_string();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..3], [account.as_str(); 3], "{said}");
    assert!(said.contains("NoNewPrivs:\t1"), "{said}");
    for set in ["CapEff", "CapPrm", "CapAmb"] {
        assert!(
            said.contains(&format!("{set}:\t0000000000000000")),
            "{said}"
        );
    }
    assert!(!said.contains("HOME="), "{said}");
    let socket = fs::metadata(&node.backend).unwrap();
    assert_eq!(
        (socket.uid(), fs::metadata(&file).unwrap().uid()),
        (ACCOUNT, ACCOUNT)
    );
    assert_eq!(program.run(), Ok(()), "it runs");
    let mut next = self::program(&node);
    let error = next.run().unwrap_err();
    assert!(
        error.ends_with("an earlier program has not ended"),
        "{error}"
    );
    program.end();
    let error = program.run().unwrap_err();
    assert!(error.contains("after a pause"), "{error}");
}

/// A program that works is started again soon, however often its guest has it ended.
#[test]
fn a_program_that_is_ended_in_use_is_started_again_within_a_second() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("program");
    let mut program = program(&shell(&directory, "exec sleep 1000"));
    for _ in 0..6 {
        let begin = Instant::now();
        while let Err(error) = program.run() {
            // Half a minute for a machine that does other things.
            assert!(begin.elapsed() < LONG, "{error}");
            std::thread::sleep(Duration::from_millis(5));
        }
        program.end();
        assert!(program.pause() <= Duration::from_secs(1));
    }
    assert_eq!(program.pause(), Duration::from_secs(1));
}

/// A program that ends at once is started again, ever more seldom.
#[test]
fn a_program_that_ends_is_started_again_after_a_pause() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("program");
    let log = directory.file("log", b"");
    let mut node = shell(&directory, &format!("echo start >> {log}; exit 3"));
    node.files = vec![log.clone()];
    let mut program = program(&node);
    let begin = Instant::now();
    let starts = || fs::read_to_string(&log).unwrap().lines().count() as u32;
    let mut errors = Vec::new();
    while starts() < 3 {
        assert!(begin.elapsed() < LONG, "{errors:?}");
        errors.extend(program.run().err());
        std::thread::sleep(Duration::from_millis(5));
    }
    // 0.2 s before the second start, 0.4 s before the third.
    assert!(begin.elapsed() >= Duration::from_millis(600));
    let ended = errors
        .iter()
        .filter(|error| error.contains("ended with exit status: 3"));
    assert!(ended.count() >= 2, "{errors:?}");
    assert!(program.pause() >= Duration::from_millis(400));
}
