use std::process::Command;

use super::*;

/// A wait that a lost end would make as long.
const LIMIT: Duration = Duration::from_secs(120);

/// Returns a session with a program that prints like a guest.
fn printing(script: &str, name: &str) -> Session {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    let log = std::env::temp_dir().join(format!("gearv-drive-{}-{name}", std::process::id()));
    let session = Session::start(command, &log).expect("a shell");
    fs::remove_file(log).expect("the log");
    session
}

#[test]
fn a_guest_that_has_stopped_is_not_waited_for() {
    let script = "echo 'JITTER-MEASURED 3'; echo 'gear2: guest stopped'; exec sleep 600";
    let mut session = printing(script, "stopped");
    let ended = ended(Configuration::Guest);
    let first = before_end(&mut session, MEASURED, &ended, LIMIT);
    assert_eq!(first.expect("it measured"), "");
    let error = before_end(&mut session, END, &ended, LIMIT).expect_err("it stopped");
    assert_eq!(
        error.to_string(),
        "the guest stopped without \"JITTER-END\""
    );
}

#[test]
fn an_end_before_the_first_word_is_noticed() {
    let mut session = printing("echo 'gear2: guest stopped'; exec sleep 600", "silent");
    let ended = ended(Configuration::Guest);
    let error = before_end(&mut session, READY, &ended, LIMIT).expect_err("it stopped");
    assert!(error.to_string().contains("the guest stopped without"));
}

#[test]
fn a_killed_machine_and_a_panic_are_not_waited_for() {
    let mut killed = printing("echo noise; kill -9 $$", "killed");
    let error = before_end(&mut killed, END, "\0", LIMIT).expect_err("it was killed");
    assert!(error.to_string().contains("signal: 9"), "{error}");
    let mut panicked = printing("echo '[ 1.0] Kernel panic - not'; exec sleep 600", "panic");
    panicked.give_up_on(FATAL);
    let error = before_end(&mut panicked, END, "\0", LIMIT).expect_err("it panicked");
    assert!(error.to_string().contains("Kernel panic"), "{error}");
}

#[test]
fn a_lost_line_is_explained_by_the_machine_behind_it() {
    let mut gear2 = printing("kill -9 $$", "machine");
    let (line, other) = UnixStream::pair().expect("a pair");
    let log = std::env::temp_dir().join(format!("gearv-drive-{}-line", std::process::id()));
    let mut guest = gear2.attach(line, &log).expect("a session");
    fs::remove_file(log).expect("the log");
    drop(other);
    let error = listen(&mut guest, &mut gear2, LIMIT).expect_err("it was killed");
    assert!(error.to_string().contains("signal: 9"), "{error}");
}
