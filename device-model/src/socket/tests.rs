//! Tests of the feed of a client that reads more slowly than is written.

use std::io::Read;
use std::os::unix::net::UnixStream;

use super::{Feed, Port};
use crate::testing::Directory;

const SIZE: usize = 0x1_0000;

/// Returns the byte with this number, so that a reader can tell its position.
fn byte(number: u64) -> u8 {
    (number % 251) as u8
}

struct Setup {
    port: Port,
    feed: Feed,
    client: UnixStream,
    ring: Vec<u8>,
    written: u64,
    _directory: Directory,
}

/// A client of a ring in which `written` bytes were written before.
fn setup(written: u64) -> Setup {
    let directory = Directory::new("feed");
    let path = directory.path().join("socket");
    let mut port = Port::bind(path.to_str().unwrap()).unwrap();
    let client = UnixStream::connect(&path).unwrap();
    client.set_nonblocking(true).unwrap();
    assert!(port.accept());
    Setup {
        port,
        feed: Feed::from_oldest(written as u32, 0),
        client,
        ring: vec![0; SIZE],
        written,
        _directory: directory,
    }
}

impl Setup {
    fn print(&mut self, length: usize) {
        for _ in 0..length {
            self.ring[self.written as usize % SIZE] = byte(self.written);
            self.written += 1;
        }
        self.send();
    }

    fn send(&mut self) {
        let (ring, written) = (&self.ring, self.written as u32);
        self.feed.send(
            &mut self.port,
            SIZE as u32,
            || written,
            |start, bytes| {
                let from = ring.iter().cycle().skip(start as usize % SIZE);
                bytes
                    .iter_mut()
                    .zip(from)
                    .for_each(|(to, from)| *to = *from);
            },
        );
    }

    /// Reads at most `most` bytes of the available ones.
    fn read(&mut self, most: usize) -> Vec<u8> {
        let mut bytes = vec![0; most];
        let length = self.client.read(&mut bytes).unwrap_or(0);
        bytes.truncate(length);
        bytes
    }
}

/// Splits what a client read at the notices: pieces of output, and the bytes lost before each but
/// the first.
fn pieces(got: &[u8]) -> (Vec<Vec<u8>>, Vec<u64>) {
    const BEGIN: &[u8] = b"\r\n[gdm: ";
    let mut pieces = vec![Vec::new()];
    let mut lost = Vec::new();
    let mut rest = got;
    while let Some((first, behind)) = rest.split_first() {
        let Some(notice) = rest.strip_prefix(BEGIN) else {
            pieces.last_mut().unwrap().push(*first);
            rest = behind;
            continue;
        };
        let end = notice
            .windows(3)
            .position(|three| three == b"]\r\n")
            .unwrap();
        let text = std::str::from_utf8(&notice[..end]).unwrap();
        lost.push(text.split(' ').next().unwrap().parse().unwrap());
        pieces.push(Vec::new());
        rest = &notice[end + 3..];
    }
    (pieces, lost)
}

#[test]
fn a_slow_reader_is_told_what_it_lost_and_gets_long_pieces() {
    // The counter of bytes wraps on the way.
    let begin = (1 << 32) - 1_000_000;
    let mut setup = setup(begin);
    let mut got = Vec::new();
    // Seventeen bytes are written for each one that is read.
    for _ in 0..200 {
        (0..0x44).for_each(|_| setup.print(0x400));
        got.extend(setup.read(0x1000));
    }
    loop {
        let bytes = setup.read(0x1000);
        setup.send();
        if bytes.is_empty() {
            break;
        }
        got.extend(bytes);
    }
    let (pieces, lost) = pieces(&got);
    let mut number = begin;
    for (index, piece) in pieces.iter().enumerate() {
        if index > 0 {
            number += lost[index - 1];
        }
        let expected: Vec<u8> = (number..).take(piece.len()).map(byte).collect();
        assert!(
            *piece == expected,
            "piece {index} of {} is not what was written",
            pieces.len()
        );
        assert!(
            piece.len() >= SIZE / 2,
            "piece {index} is {} bytes",
            piece.len()
        );
        number += piece.len() as u64;
    }
    assert_eq!(number, setup.written);
    assert!(pieces.len() > 2, "nothing was lost");
}

#[test]
fn a_reader_that_keeps_up_loses_nothing_and_is_told_nothing() {
    let mut setup = setup(0);
    let mut got = Vec::new();
    for _ in 0..200 {
        setup.print(0x1000);
        got.extend(setup.read(0x1000));
    }
    let expected: Vec<u8> = (0..200 * 0x1000).map(byte).collect();
    assert!(got == expected);
}
