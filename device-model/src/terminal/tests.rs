//! Tests of `gearctl console` beside a guest that reads, and one that does not.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::{CATCH_UP, End, MOST_KEPT, MOST_TYPED, Session, last_lines};

/// Returns the input's descriptor, the end to type into, and both ends of GDM's socket.
fn setup() -> (File, File, UnixStream, UnixStream) {
    let (reader, typed) = std::io::pipe().unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let [reader, typed] = [OwnedFd::from(reader), OwnedFd::from(typed)].map(File::from);
    (reader, typed, ours, theirs)
}

/// Turns until there is nothing to do without waiting; returns the end if there was one.
fn settle(session: &mut Session<'_>) -> Option<End> {
    (0..1000).find_map(|_| session.turn(0))
}

fn all(socket: &mut UnixStream) -> Vec<u8> {
    let mut bytes = vec![0; 0x10_0000];
    let mut got = 0;
    while let Ok(length) = socket.read(&mut bytes[got..]) {
        got += length;
    }
    bytes.truncate(got);
    bytes
}

#[test]
fn the_escape_character_leaves_though_the_guest_does_not_read() {
    let (input, mut typed, socket, theirs) = setup();
    let mut output = Vec::new();
    let mut session = Session::new(input, true, socket, &mut output).unwrap();
    // More than the socket and all that waits for it hold; what nobody reads is refused by the
    // pipe.
    crate::sys::set_nonblocking(&typed).unwrap();
    for _ in 0..1024 {
        typed.write_all(&[b'x'; 1024]).unwrap();
        assert_eq!(session.turn(0), None);
    }
    assert_eq!(session.typed.len(), MOST_TYPED);
    typed.write_all(b"\x1d").unwrap();
    assert_eq!(settle(&mut session), Some(End::Left));
    assert!(
        output.contains(&7),
        "nobody hears that what was typed is lost"
    );
    drop(theirs);
}

#[test]
fn what_was_typed_waits_for_a_guest_that_reads_later() {
    let (input, mut typed, socket, mut theirs) = setup();
    let mut output = Vec::new();
    let mut session = Session::new(input, true, socket, &mut output).unwrap();
    // A part of the input does not fit into the socket; half of the waiting room is enough.
    let mut written = 0;
    while session.typed.len() < MOST_TYPED / 2 {
        typed.write_all(&[b'x'; 1024]).unwrap();
        written += 1024;
        assert_eq!(session.turn(0), None);
    }
    let mut got = 0;
    while got < written {
        got += all(&mut theirs).len();
        assert_eq!(settle(&mut session), None);
    }
    assert_eq!((got, session.typed.len()), (written, 0));
    typed.write_all(b"echo\n\x1d").unwrap();
    assert_eq!(settle(&mut session), Some(End::Left));
    assert_eq!(all(&mut theirs), b"echo\n");
}

#[test]
fn a_pipe_is_read_as_fast_as_the_guest_reads_and_sent_to_its_end() {
    let (input, mut typed, socket, mut theirs) = setup();
    let length = 0x10_0000;
    let writer = std::thread::spawn(move || typed.write_all(&vec![b'x'; length]).unwrap());
    let mut output = Vec::new();
    let mut session = Session::new(input, false, socket, &mut output).unwrap();
    let mut got = 0;
    let mut end = None;
    while end.is_none() {
        end = settle(&mut session);
        assert!(session.typed.len() < MOST_TYPED + 1024);
        got += all(&mut theirs).len();
    }
    writer.join().unwrap();
    assert_eq!((end, got), (Some(End::Left), length));
    assert!(output.is_empty());
}

#[test]
fn a_console_that_is_closed_ends_the_session() {
    let (input, _typed, socket, mut theirs) = setup();
    let mut output = Vec::new();
    let session = Session::new(input, true, socket, &mut output).unwrap();
    theirs.write_all(b"bye").unwrap();
    drop(theirs);
    assert_eq!(session.run(None), End::Closed);
    assert_eq!(output, b"bye");
}

#[test]
fn of_earlier_output_the_last_lines_are_shown() {
    let (input, typed, socket, mut theirs) = setup();
    let boot: String = (0..1000).map(|line| format!("line {line}\r\n")).collect();
    theirs.write_all((boot + "guest# ").as_bytes()).unwrap();
    let mut output = Vec::new();
    let mut session = Session::new(input, true, socket, &mut output).unwrap();
    assert!(session.catch_up(3));
    theirs.write_all(b"\r\nnew\r\n").unwrap();
    assert_eq!(settle(&mut session), None);
    assert_eq!(
        String::from_utf8(output).unwrap(),
        "line 998\r\nline 999\r\nguest# \r\nnew\r\n"
    );
    drop(typed);
}

/// A guest that prints all the time is shown from the moment on at which one has waited enough; no
/// byte behind the last lines of that moment is lost.
#[test]
fn a_guest_that_prints_without_a_pause_is_shown() {
    let (input, typed, socket, mut theirs) = setup();
    let printer = std::thread::spawn(move || {
        for number in 0..2 * CATCH_UP.as_millis() / 10 {
            theirs.write_all(format!("{number}\n").as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let mut output = Vec::new();
    let mut session = Session::new(input, true, socket, &mut output).unwrap();
    let start = Instant::now();
    assert!(session.catch_up(2));
    assert!(start.elapsed() < 2 * CATCH_UP, "{:?}", start.elapsed());
    printer.join().unwrap();
    assert_eq!(settle(&mut session), Some(End::Closed));
    let text = String::from_utf8(output).unwrap();
    let numbers: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
    let first = numbers[0];
    assert!(first > 0, "all of it was shown");
    assert!(
        numbers
            .iter()
            .zip(first..)
            .all(|(one, other)| *one == other)
    );
    assert_eq!(
        u128::from(*numbers.last().unwrap()) + 1,
        2 * CATCH_UP.as_millis() / 10
    );
    drop(typed);
}

#[test]
fn a_console_that_closes_at_once_shows_what_it_had() {
    let (input, typed, socket, mut theirs) = setup();
    theirs.write_all(b"one\ntwo\n").unwrap();
    drop(theirs);
    let mut output = Vec::new();
    let session = Session::new(input, true, socket, &mut output).unwrap();
    assert_eq!(session.run(Some(2)), End::Closed);
    assert_eq!(output, b"two\n");
    drop(typed);
}

#[test]
fn the_last_lines_are_all_of_a_short_output() {
    assert_eq!(last_lines(b"", 5), b"");
    assert_eq!(last_lines(b"one", 5), b"one");
    assert_eq!(last_lines(b"one\ntwo", 2), b"one\ntwo");
    assert_eq!(last_lines(b"one\ntwo", 1), b"two");
    assert_eq!(last_lines(b"one\ntwo\n", 2), b"two\n");
    assert_eq!(last_lines(b"one\ntwo", 0), b"two");
    let long = [b'x'; MOST_KEPT];
    assert_eq!(last_lines(&long, 1), long);
}
