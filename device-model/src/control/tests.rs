//! Tests of the mailbox and its socket against a Gear2 that is a thread.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gear2_protocol::op;

use super::{Mailbox, Server};
use crate::testing::{Directory, Stop, doorbell, fake_gear2, region};

#[test]
fn an_operation_goes_to_gear2_and_its_answer_comes_back() {
    let region = region();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| fake_gear2(region, &stop));
        let mailbox = Mailbox::new(region, doorbell());
        let answer = mailbox.call(op::VCPU_INFO, [3, 0, 0, 0]).unwrap();
        assert_eq!((answer.outcome, answer.results[1]), (0, 3));
        assert_eq!(mailbox.vm_name(1), "linux");
        assert_eq!(mailbox.vm_name(9), "vm9");
    });
}

#[test]
fn a_silent_gear2_is_said_to_be_silent() {
    let mailbox = Mailbox::new(region(), doorbell());
    assert_eq!(
        mailbox.call(op::VERSION, [0; 4]).unwrap_err().to_string(),
        "Gear2 does not answer: it is busy, or restarts; try again"
    );
}

/// The mailbox keeps an operation until Gear2 answers. Overwriting it could turn a question for a
/// VM's name into the stop of another VM.
#[test]
fn an_operation_that_was_not_answered_in_time_is_not_written_over() {
    let region = region();
    let mut mailbox = Mailbox::new(region, doorbell());
    mailbox.patience = Duration::from_millis(20);
    let control = &region.control;
    let asked = || {
        let words = [&control.asked, &control.op].map(|word| word.load(Ordering::Relaxed));
        (words, control.arguments[0].load(Ordering::Relaxed))
    };
    let late = ([1, op::VM_STOP], 1);
    assert!(mailbox.call(op::VM_STOP, [1, 0, 0, 0]).is_err());
    assert_eq!(asked(), late);
    assert!(mailbox.call(op::VM_NAME, [2, 0, 0, 0]).is_err());
    assert_eq!(asked(), late);
    // Gear2 answers in the end.
    control.answered.store(1, Ordering::Release);
    mailbox.patience = Duration::from_secs(100);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| fake_gear2(region, &stop));
        assert_eq!(mailbox.vm_name(1), "linux");
    });
}

#[test]
fn requests_that_make_no_sense_get_a_sentence() {
    let directory = Directory::new("control");
    let path = directory.path().join("control");
    let region = region();
    let mailbox = Mailbox::new(region, doorbell());
    let mut server = Server::bind(path.to_str().unwrap(), region, &mailbox, Vec::new()).unwrap();
    let mut client = UnixStream::connect(&path).unwrap();
    let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
    for (request, expected) in [
        (
            "nonsense",
            r#"{"version":1,"answer":"error","value":{"kind":"usage","#,
        ),
        ("[1]", "gdm knows no such request: invalid type: sequence"),
        (r#"{"request":"about"}"#, "with its `version`"),
        (
            r#"{"version":2,"request":"greet","from":"later"}"#,
            r#""kind":"version","message":"gdm speaks version 1 of this protocol, and not 2""#,
        ),
        (
            r#"{"version":1,"request":"greet"}"#,
            "gdm knows no such request: unknown variant",
        ),
        (
            r#"{"version":1,"request":"call","operation":1,"arguments":[1,2]}"#,
            "gdm knows no such request: invalid length 2",
        ),
        (
            r#"{"version":1,"request":"order","channel":5,"order":"resize"}"#,
            r#""kind":"not-found","message":"there is no such device""#,
        ),
        (
            r#"{"version":1,"request":"about"}"#,
            concat!(
                r#"{"version":1,"answer":"about","value":{"protocol":0,"vcpus":1,"vms":0,"#,
                r#""starts":0,"beats":0,"hz":1000000000}}"#
            ),
        ),
    ] {
        client.write_all(format!("{request}\n").as_bytes()).unwrap();
        server.turn(100);
        server.turn(100);
        let line = lines.next().unwrap().unwrap();
        assert!(line.contains(expected), "{request}: {line}");
    }
    client.write_all(b"\xff\n").unwrap();
    server.turn(100);
    assert!(lines.next().unwrap().unwrap().contains(r#""kind":"usage""#));
    // A line without an end is not kept for ever.
    client.write_all(&[b'x'; 5000]).unwrap();
    for _ in 0..4 {
        server.turn(100);
    }
    assert!(server.clients.is_empty());
}

/// Turns until no event wakes the thread any longer, which must be soon.
fn settle(server: &mut Server<'_>) {
    let woken = (0..100).take_while(|_| server.turn(0)).count();
    assert!(woken < 100, "the thread spins");
}

const ABOUT: &[u8] = b"{\"version\":1,\"request\":\"about\"}\n";
/// Begin of an answer that is no error.
const GOOD: &str = "{\"version\":1,\"answer\":\"about\",";

/// Asks and reads the answer, as gearctl does.
fn asks(server: &mut Server<'_>, client: &mut UnixStream) -> Option<String> {
    client.write_all(ABOUT).ok()?;
    settle(server);
    client.set_nonblocking(true).unwrap();
    let mut line = String::new();
    BufReader::new(client).read_line(&mut line).ok()?;
    (!line.is_empty()).then_some(line)
}

#[test]
fn one_client_more_than_there_is_room_for_waits_and_wakes_nobody() {
    let directory = Directory::new("control");
    let path = directory.path().join("control");
    let region = region();
    let mailbox = Mailbox::new(region, doorbell());
    let mut server = Server::bind(path.to_str().unwrap(), region, &mailbox, Vec::new()).unwrap();
    server.idle = Duration::MAX;
    let mut clients: Vec<UnixStream> = (0..17)
        .map(|_| UnixStream::connect(&path).unwrap())
        .collect();
    settle(&mut server);
    let mut last = clients.pop().unwrap();
    assert_eq!(asks(&mut server, &mut last), None);
    for client in &mut clients {
        assert!(asks(&mut server, client).unwrap().starts_with(GOOD));
    }
    // The waiting client is answered as soon as another one leaves.
    clients.pop();
    settle(&mut server);
    let mut line = String::new();
    BufReader::new(&last).read_line(&mut line).unwrap();
    assert!(line.starts_with(GOOD), "{line}");
}

#[test]
fn an_idle_client_gives_way_the_one_that_was_silent_longest_first() {
    let directory = Directory::new("control");
    let path = directory.path().join("control");
    let region = region();
    let mailbox = Mailbox::new(region, doorbell());
    let mut server = Server::bind(path.to_str().unwrap(), region, &mailbox, Vec::new()).unwrap();
    server.idle = Duration::ZERO;
    let mut clients: Vec<UnixStream> = (0..16)
        .map(|_| UnixStream::connect(&path).unwrap())
        .collect();
    settle(&mut server);
    // All but the sixth are heard of.
    for (index, client) in clients.iter_mut().enumerate() {
        assert!(index == 5 || asks(&mut server, client).is_some());
    }
    let mut another = UnixStream::connect(&path).unwrap();
    assert!(asks(&mut server, &mut another).unwrap().starts_with(GOOD));
    for (index, client) in clients.iter_mut().enumerate() {
        assert_eq!(asks(&mut server, client).is_some(), index != 5, "{index}");
    }
}
