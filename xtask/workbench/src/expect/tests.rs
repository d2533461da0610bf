use super::*;

const SOON: Duration = Duration::from_secs(20);

fn shell(script: &str, name: &str) -> Session {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    let log = std::env::temp_dir().join(format!("xtask-expect-{}-{name}", std::process::id()));
    let session = Session::start(command, &log).unwrap();
    std::fs::remove_file(log).unwrap();
    session
}

#[test]
fn types_and_waits() {
    let mut session = shell("read x; echo \"a $x b\"; read y; exit 3", "types");
    session.send("hello\n").unwrap();
    assert_eq!(session.expect("hello", SOON).unwrap(), "a ");
    assert_eq!(
        session.expect_any(&["never", "b\n"], SOON).unwrap(),
        (" ".to_owned(), 1)
    );
    session.send("\n").unwrap();
    assert_eq!(session.expect_end(SOON).unwrap().code(), Some(3));
}

#[test]
fn consumed_text_is_not_found_again() {
    let mut session = shell("echo once; sleep 30", "once");
    session.expect("once", SOON).unwrap();
    let error = session
        .expect("once", Duration::from_millis(100))
        .unwrap_err();
    assert!(error.to_string().contains("no \"once\""), "{error}");
}

#[test]
fn an_ended_child_is_not_waited_for() {
    let mut session = shell("echo last words", "ended");
    let error = session.expect("first words", SOON).unwrap_err();
    assert!(error.to_string().contains("it ended"), "{error}");
    assert!(session.tail(5).starts_with("last words\n"));
    assert!(session.elapsed() < SOON);
}

/// A child that ends while nobody reads loses no line.
#[test]
fn the_end_comes_with_the_last_line() {
    let mut session = shell("seq 5000; echo last", "all");
    session.child.as_mut().unwrap().wait().unwrap();
    assert!(session.expect_end(SOON).unwrap().success());
    assert!(session.has("\n5000\nlast\n"));
}

#[test]
fn a_fatal_text_ends_the_wait() {
    let mut session = shell("echo HALT; echo why; exec sleep 30", "fatal");
    session.give_up_on(&["HALT"]);
    let error = session.expect("more", SOON).unwrap_err();
    assert!(error.to_string().contains("HALT"), "{error}");
    assert!(session.transcript().contains("why"));
}

#[test]
fn a_character_may_come_in_pieces() {
    let mut bytes = Vec::new();
    let mut said = String::new();
    for byte in "a\u{2588}\u{e4}b".bytes() {
        bytes.push(byte);
        said += &whole_characters(&mut bytes);
    }
    assert_eq!((said.as_str(), bytes.len()), ("a\u{2588}\u{e4}b", 0));
    bytes.extend(b"\xffc");
    assert_eq!(whole_characters(&mut bytes), "\u{fffd}c");
}

/// What was searched is not searched again, but for the beginning of a text at its end.
#[test]
fn a_text_in_pieces_is_searched_from_where_it_may_begin() {
    let texts = ["end", "longer"];
    // Six letters: the first five of `longer` may stand there already.
    assert_eq!(unfinished("0123456789", &texts), 5);
    assert_eq!(unfinished("0123", &texts), 0);
    assert_eq!(unfinished("", &[]), 0);
    // The second byte of a character is no beginning.
    assert_eq!(unfinished("012\u{e9}6789", &texts), 3);
    let pieces = "printf 'begin lon'; sleep 0.2; printf 'ger'; sleep 0.2; printf ' e'; sleep 0.2; \
        printf 'nd\\n'; sleep 10";
    let mut session = shell(pieces, "in-pieces");
    assert_eq!(session.expect("longer", SOON).unwrap(), "begin ");
    assert_eq!(
        session.expect_any(&["longer", "end"], SOON).unwrap(),
        (" ".into(), 1)
    );
}

/// A fatal text that comes in pieces ends the wait, too.
#[test]
fn a_fatal_text_in_pieces_is_found() {
    let mut session = shell("printf 'all is l'; sleep 0.2; echo ost; sleep 10", "lost");
    session.give_up_on(&["is lost"]);
    let error = session.expect("never", SOON).unwrap_err();
    assert!(format!("{error:#}").contains("is lost"), "{error:#}");
}
