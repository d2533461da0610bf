//! Tests of the virtio console on its socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::Console;
use crate::board::{DeviceKind, DeviceNode};
use crate::testing::{self, CHANNEL, DATA, Directory, Guest};
use crate::transport::register;

fn console(backend: &str) -> (Guest, Directory) {
    let directory = Directory::new("console");
    let node = DeviceNode {
        channel: CHANNEL,
        kind: DeviceKind::Console,
        backend: backend.into(),
        ..testing::node()
    };
    let opened = Console::claim(&node, directory.text()).unwrap();
    let console = Console::of(&mut opened.into()).unwrap();
    let mut guest = Guest::new(Box::new(console));
    guest.initialise(0, 2);
    (guest, directory)
}

fn connect(directory: &Directory) -> UnixStream {
    let client = UnixStream::connect(directory.path().join("linux.console")).unwrap();
    let patience = std::time::Duration::from_secs(5);
    client.set_read_timeout(Some(patience)).unwrap();
    client
}

fn print(guest: &mut Guest, text: &[u8]) {
    guest.put(DATA, text);
    guest.request(1, 0, &[(DATA, text.len() as u32, false)]);
    guest.work();
}

#[test]
fn output_is_replayed_and_then_follows() {
    let (mut guest, directory) = console("");
    print(&mut guest, b"earlier ");
    let mut client = connect(&directory);
    guest.work();
    print(&mut guest, b"later");
    let mut text = [0; 13];
    client.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"earlier later");
    assert_eq!(guest.used_index(1), 2);
}

#[test]
fn what_is_printed_in_one_turn_is_sent_though_it_is_more_than_is_kept() {
    const LENGTH: usize = 0xc000;
    let (mut guest, directory) = console("");
    let mut client = connect(&directory);
    guest.work();
    let text: Vec<u8> = (0..3 * LENGTH).map(|number| (number % 251) as u8).collect();
    guest.put(DATA, &text);
    for head in 0..3 {
        let address = DATA + (usize::from(head) * LENGTH) as u64;
        guest.request(1, head, &[(address, LENGTH as u32, false)]);
    }
    guest.work();
    let mut got = vec![0; text.len()];
    client.read_exact(&mut got).unwrap();
    assert!(got == text);
}

#[test]
fn input_waits_for_buffers_and_fills_them() {
    let (mut guest, directory) = console("");
    let mut client = connect(&directory);
    client.write_all(b"hello").unwrap();
    guest.work();
    assert_eq!(guest.used_index(0), 0);
    guest.request(0, 0, &[(DATA, 2, true)]);
    guest.request(0, 1, &[(DATA + 2, 64, true)]);
    guest.work();
    assert_eq!(guest.get(DATA, 5), b"hello");
    assert_eq!((guest.used(0, 0), guest.used(0, 1)), ((0, 2), (1, 3)));
}

#[test]
fn a_new_client_takes_over_and_one_that_left_is_forgotten() {
    let (mut guest, directory) = console("");
    let mut first = connect(&directory);
    guest.work();
    let mut second = connect(&directory);
    guest.work();
    let mut text = Vec::new();
    first.read_to_end(&mut text).unwrap();
    assert_eq!(text, b"");
    drop(second.write_all(b""));
    drop(second);
    print(&mut guest, b"nobody");
    print(&mut guest, b"listens");
    let mut third = connect(&directory);
    guest.work();
    let mut text = [0; 13];
    third.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"nobodylistens");
}

#[test]
fn the_emergency_register_prints() {
    let (mut guest, directory) = console("");
    let mut client = connect(&directory);
    guest.write(register::CONFIG + 8, u32::from(b'!'));
    let mut text = [0];
    client.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"!");
}

#[test]
fn a_pseudo_terminal_carries_both_ways_unchanged() {
    let (mut guest, directory) = console("pty");
    let path = directory.path().join("linux.pty");
    let mut options = std::fs::OpenOptions::new();
    let mut terminal = options.read(true).write(true).open(path).unwrap();
    print(&mut guest, b"a\n\x03b");
    let mut text = [0; 4];
    terminal.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"a\n\x03b");
    terminal.write_all(b"x\r").unwrap();
    guest.request(0, 0, &[(DATA, 64, true)]);
    guest.work();
    assert_eq!(guest.get(DATA, 2), b"x\r");
}
