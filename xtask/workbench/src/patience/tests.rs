use std::process::{Child, Command};
use std::time::Duration;

use super::{Patience, Use, parse};

const SECOND: Duration = Duration::from_secs(1);

fn used(ran: u64, queued: u64) -> Use {
    Use {
        ran: Duration::from_secs(ran),
        queued: Duration::from_secs(queued),
    }
}

#[test]
fn schedstat_is_read() {
    let expected = Use {
        ran: Duration::from_nanos(86),
        queued: Duration::from_nanos(769),
    };
    assert_eq!(parse("86 769 3\n"), Some(expected));
    for text in ["", "86", "x 7 3", "86 -7 3"] {
        assert_eq!(parse(text), None, "{text:?}");
    }
}

#[test]
fn time_in_a_run_queue_does_not_count() {
    assert_eq!(used(3, 9).undisturbed(SECOND * 40), SECOND * 10);
    assert_eq!(used(3, 0).undisturbed(SECOND * 40), SECOND * 40);
    assert_eq!(used(0, 0).undisturbed(SECOND * 40), SECOND * 40);
    assert_eq!(used(0, 9).undisturbed(SECOND * 40), Duration::ZERO);
    assert_eq!(used(2, 1).since(used(1, 2)), used(1, 0));
}

/// A program that is ended when the test is over.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(script: &str) -> Program {
    Program(Command::new("sh").args(["-c", script]).spawn().unwrap())
}

#[test]
fn a_wait_for_a_sleeping_a_busy_and_an_ended_program_ends() {
    for script in ["sleep 60", "while :; do :; done", "true"] {
        let program = run(script);
        let patience = Patience::new(Some(program.0.id()), Duration::from_millis(200));
        while let Some(look) = patience.next_look() {
            std::thread::sleep(look.saturating_duration_since(std::time::Instant::now()));
        }
    }
    assert_eq!(Patience::new(None, Duration::ZERO).next_look(), None);
}

#[test]
fn what_children_use_counts() {
    // `timeout` passes the signal on to its child; SIGKILL would leave the child behind.
    let mut program = run("exec timeout 60 sh -c 'while :; do :; done'");
    while Use::of(program.0.id()).ran < Duration::from_millis(200) {
        assert_eq!(
            program.0.try_wait().unwrap(),
            None,
            "the child's time is not seen"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    let ended = Command::new("kill")
        .arg(program.0.id().to_string())
        .status();
    assert!(ended.unwrap().success());
    program.0.wait().unwrap();
}
