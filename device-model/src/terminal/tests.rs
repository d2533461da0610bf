//! Tests of `gearctl console` beside a guest that reads, and one that does not.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use super::{End, MOST_TYPED, Session};

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
    assert_eq!(session.run(), End::Closed);
    assert_eq!(output, b"bye");
}
