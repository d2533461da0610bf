//! Tests of the screen beside programs that keep the protocol and programs that break it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use super::super::screen::{self, Screen};
use super::LONG;
use crate::frame::{self, Picture};
use crate::testing::Directory;

const GET_PROTOCOL_FEATURES: u32 = 1;
const SET_PROTOCOL_FEATURES: u32 = 2;
const GET_DISPLAY_INFO: u32 = 3;
const CURSOR_UPDATE: u32 = 6;
const SCANOUT: u32 = 7;
const UPDATE: u32 = 8;
const DMABUF_SCANOUT: u32 = 9;
const DMABUF_UPDATE: u32 = 10;
const GET_EDID: u32 = 11;

/// A program that draws.
struct Painter {
    directory: Directory,
    socket: UnixStream,
    screen: Option<Screen>,
}

impl Painter {
    fn new() -> Self {
        let directory = Directory::new("screen");
        let path = frame::path(directory.text(), 2);
        let (screen, socket) =
            screen::start(frame::create(&path).unwrap(), "test".into(), |_| {}).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        Self {
            directory,
            socket,
            screen: Some(screen),
        }
    }

    /// Sends a message that says it has `size` bytes.
    fn send_as(&mut self, request: u32, size: u32, words: &[u32]) {
        let header = [request, 0, size];
        let words = header.iter().chain(words);
        let bytes: Vec<u8> = words.flat_map(|word| word.to_ne_bytes()).collect();
        self.socket.write_all(&bytes).unwrap();
    }

    fn send(&mut self, request: u32, words: &[u32]) {
        self.send_as(request, 4 * words.len() as u32, words);
    }

    /// Receives an answer of so many words.
    fn receive(&mut self, count: usize) -> Vec<u32> {
        let mut bytes = vec![0; 4 * (3 + count)];
        self.socket.read_exact(&mut bytes).unwrap();
        let (words, _) = bytes.as_chunks::<4>();
        words.iter().map(|word| u32::from_ne_bytes(*word)).collect()
    }

    fn picture(&self) -> Picture {
        Picture::read(Path::new(&frame::path(self.directory.text(), 2))).unwrap()
    }

    /// Waits for the end of the connection; a connection that stays is none that ended.
    fn is_ended(&mut self) -> bool {
        match self.socket.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn a_program_is_told_of_the_screen_and_draws() {
    let mut painter = Painter::new();
    painter.send(GET_PROTOCOL_FEATURES, &[]);
    assert_eq!(painter.receive(2), [1, 4, 8, 0, 0]);
    painter.send(SET_PROTOCOL_FEATURES, &[0, 0]);
    painter.send(GET_DISPLAY_INFO, &[]);
    let info = painter.receive(102);
    assert_eq!(info[..4], [GET_DISPLAY_INFO, 4, 408, 0x1101]);
    assert_eq!(info[9..15], [0, 0, 1024, 768, 1, 0]);
    assert!(info[15..].iter().all(|word| *word == 0));
    painter.send(CURSOR_UPDATE, &vec![0; 5 + 64 * 64]);
    painter.send(DMABUF_UPDATE, &[0; 5]);
    assert_eq!(painter.receive(0), [DMABUF_UPDATE, 4, 0]);
    painter.send(SCANOUT, &[0, 4, 2]);
    painter.send(UPDATE, &[0, 1, 1, 2, 1, 0x00aa_bbcc, 0x0011_2233]);
    let begin = Instant::now();
    let drawn = [0xaa, 0xbb, 0xcc, 0x11, 0x22, 0x33];
    while painter.picture().colours.get(15..21) != Some(&drawn) {
        assert!(begin.elapsed() < LONG, "{:?}", painter.picture());
    }
    assert_eq!(painter.picture().colours[..15], [0; 15]);
}

/// Each of these ends the screen, and nothing else: no part of a frame is written outside of it.
#[test]
fn a_program_that_breaks_the_protocol_loses_its_screen() {
    let cases: [(u32, u32, &[u32]); 13] = [
        (0, 0, &[]),
        (99, 0, &[]),
        (GET_DISPLAY_INFO, 0x5001, &[]),
        (GET_EDID, 4, &[0]),
        (DMABUF_SCANOUT, 40, &[0; 10]),
        (SCANOUT, 8, &[0, 4]),
        (SCANOUT, 12, &[1, 4, 2]),
        (SCANOUT, 12, &[0, 4096, 4096]),
        (UPDATE, 16, &[0, 0, 0, 1]),
        // Another screen, outside by one, by an overflow, and with too many bytes.
        (UPDATE, 24, &[1, 0, 0, 1, 1, 0]),
        (UPDATE, 28, &[0, 3, 0, 2, 1, 0, 0]),
        (UPDATE, 24, &[0, u32::MAX, 0, 2, 1, 0]),
        (UPDATE, 28, &[0, 0, 0, 1, 1, 0, 0]),
    ];
    for (request, size, words) in cases {
        let mut painter = Painter::new();
        painter.send(SCANOUT, &[0, 4, 2]);
        painter.send_as(request, size, words);
        assert!(painter.is_ended(), "{request} {words:?}");
        assert_eq!(painter.picture().colours, [0; 24], "{request} {words:?}");
    }
}

/// A program that keeps its end of the socket does not keep the thread.
#[test]
fn a_screen_ends_with_its_connection() {
    let mut painter = Painter::new();
    painter.send_as(UPDATE, 0, &[]);
    painter.screen = None;
    assert!(painter.is_ended());
}
