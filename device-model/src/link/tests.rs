//! Tests of the messages, and of what a subverted process may send instead.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;

use super::{Link, Message};
use crate::order::Order;

#[test]
fn each_message_arrives_with_its_descriptor() {
    let (ours, theirs) = Link::pair().unwrap();
    let theirs = Link::of(theirs);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let kinds = [
        Message::Kick(3),
        Message::Part(31),
        Message::Backend(0),
        Message::Beat,
        Message::Next(7),
        Message::Again(9),
        Message::Runs(8, true),
        Message::Order(5, Order::Link(false)),
        Message::Order(5, Order::Detach),
        Message::Order(5, Order::Power),
        Message::Order(5, Order::Attach(String::new())),
        Message::Answer(5, Ok(u64::MAX - 1)),
        Message::Answer(5, Err("only a disk has a size".into())),
    ];
    for message in kinds {
        ours.send(message.clone(), Some(&writer)).unwrap();
        ours.send(message.clone(), None).unwrap();
        let (first, descriptor) = theirs.receive().unwrap().unwrap();
        assert_eq!(first, message);
        let mut same: File = descriptor.unwrap();
        same.write_all(b"x").unwrap();
        let mut byte = [0];
        reader.read_exact(&mut byte).unwrap();
        let (second, none) = theirs.receive().unwrap().unwrap();
        assert_eq!((second, none.is_none()), (message, true));
    }
    drop(ours);
    assert!(theirs.receive().unwrap().is_none(), "the end");
}

/// A program that a process starts has none of the descriptors that came: with a copy of a socket,
/// the socket's other side would wait for its end.
#[test]
fn a_descriptor_that_came_is_not_inherited() {
    let (ours, theirs) = Link::pair().unwrap();
    let (_reader, writer) = std::io::pipe().unwrap();
    ours.send(Message::Kick(3), Some(&writer)).unwrap();
    let (_, descriptor) = Link::of(theirs).receive().unwrap().unwrap();
    let descriptor = descriptor.unwrap();
    let path = format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd());
    let info = std::fs::read_to_string(path).unwrap();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = i32::from_str_radix(flags.unwrap().trim(), 8).unwrap();
    assert_ne!(flags & libc::O_CLOEXEC, 0, "{info}");
}

#[test]
fn anything_else_is_an_error() {
    for bytes in [&[1, 0, 0][..], &[0; 256], &[99; 256], &[4; 300]] {
        let (mut process, gdm) = UnixStream::pair().unwrap();
        process.write_all(bytes).unwrap();
        assert!(Link(gdm).receive().is_err(), "{bytes:?}");
    }
}

/// `gearctl` prints the sentence, and its reader's terminal obeys no process.
#[test]
fn an_answer_is_one_line_of_bounded_length() {
    let long = "a\u{1b}[2J\n".repeat(100);
    let bytes = Message::Answer(1, Err(long)).bytes();
    let Some(Message::Answer(1, Err(said))) = Message::of(&bytes) else {
        panic!("no answer");
    };
    assert!(
        said.len() < 256 && !said.contains(char::is_control),
        "{said:?}"
    );
}

/// A process could fill GDM's table of descriptors.
#[test]
fn more_than_one_descriptor_is_none() {
    use std::os::fd::AsRawFd as _;
    use vmm_sys_util::sock_ctrl_msg::ScmSocket;
    let (process, gdm) = UnixStream::pair().unwrap();
    let descriptor = process.as_raw_fd();
    let message = Message::Beat.bytes();
    process
        .send_with_fds(&[message.as_slice()], &[descriptor; 8])
        .unwrap();
    assert!(Link(gdm).receive().is_err());
}
