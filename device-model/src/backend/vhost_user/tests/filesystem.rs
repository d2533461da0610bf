//! A file system served by Debian's virtiofsd, unmodified: a part of the suite says where that
//! program is, by `GEARV_FILE_DAEMON`.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::{Child, Stdio};

use super::debian::{self, Daemon, guest_of};
use super::{is_root, node, until};
use crate::board::{DeviceKind, DeviceNode};
use crate::state::Word;
use crate::testing::{DATA, Directory, Guest};
use crate::transport::register;

/// Device type of a file system.
const FS: u32 = 26;
/// Operations of FUSE.
const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const WRITE: u32 = 16;
const INIT: u32 = 26;
const CREATE: u32 = 35;
/// Node of the root.
const ROOT: u64 = 1;
/// The queue of requests; the first one is that of urgent ones.
const QUEUE: usize = 1;
const EIO: i32 = 5;
const ENOENT: i32 = 2;
/// Place of an answer, and most of its bytes.
const ANSWER: u64 = DATA + 0x4000;
const ROOM: u32 = 512;
/// Bytes of the headers of FUSE's requests and answers.
const IN_HEADER: usize = 40;
const OUT_HEADER: usize = 16;

/// Starts the program with a folder to share.
fn start() -> Daemon {
    let directory = Directory::new("fs");
    fs::create_dir(directory.path().join("shared")).unwrap();
    Daemon::start(directory, run)
}

/// Starts the program on a socket that it inherits as its standard input.
fn run(directory: &Directory) -> Child {
    let program = debian::path("GEARV_FILE_DAEMON");
    let socket = format!("{}/socket", directory.text());
    let _ = fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).unwrap();
    // Whoever is not root is root of a name space of its own, as in the device VM.
    let mut command = match is_root() {
        true => debian::command(program),
        false => {
            let mut command = debian::command("unshare".into());
            command.args(["--user", "--map-root-user"]).arg(program);
            command
        }
    };
    let source = format!("source={}/shared", directory.text());
    command.args(["--fd=0", "--rlimit-nofile=0", "-o", "sandbox=chroot", "-o"]);
    command.arg(source).stdin(OwnedFd::from(listener));
    command.stderr(Stdio::null()).spawn().unwrap()
}

fn file_system(daemon: &Daemon) -> DeviceNode {
    let mut node = node(&daemon.socket());
    node.kind = DeviceKind::VhostUser(FS);
    (node.queues, node.config_size) = (2, 40);
    node.tag = "shared".into();
    node
}

/// A guest whose driver speaks FUSE.
struct Fuse {
    guest: Guest,
    asked: u16,
}

impl Fuse {
    fn start(daemon: &Daemon) -> Self {
        let mut guest = guest_of(file_system(daemon), FS);
        guest.initialise(0, 2);
        Self { guest, asked: 0 }
    }

    /// Offers a request.
    fn offer(&mut self, operation: u32, node: u64, body: &[u8]) {
        self.asked += 1;
        let length = (IN_HEADER + body.len()) as u32;
        let mut header = Vec::new();
        header.extend(length.to_le_bytes());
        header.extend(operation.to_le_bytes());
        header.extend(u64::from(self.asked).to_le_bytes());
        header.extend(node.to_le_bytes());
        header.resize(IN_HEADER, 0);
        self.guest.put(DATA, &[&header, body].concat());
        self.guest.put(ANSWER, &[0xff; ROOM as usize]);
        let pieces = [(DATA, length, false), (ANSWER, ROOM, true)];
        self.guest.request(QUEUE, 0, &pieces);
    }

    /// Waits for the answer to the last request; returns its error and its body.
    fn answer(&mut self) -> (i32, Vec<u8>) {
        let asked = self.asked;
        until(&mut self.guest, "an answer", |guest| {
            guest.used_index(QUEUE) == asked
        });
        let answer = self.guest.get(ANSWER, ROOM as usize);
        let word = |at: usize| i32::from_le_bytes(answer[at..at + 4].try_into().unwrap());
        assert_eq!(answer[8..OUT_HEADER], u64::from(asked).to_le_bytes());
        (
            -word(4),
            answer[OUT_HEADER..(word(0) as usize).max(OUT_HEADER)].to_vec(),
        )
    }

    fn ask(&mut self, operation: u32, node: u64, body: &[u8]) -> (i32, Vec<u8>) {
        self.offer(operation, node, body);
        self.answer()
    }

    /// Mounts: version 7.31.
    fn mount(&mut self) {
        let words = [7_u32, 31, 0x2_0000, 0];
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (error, answer) = self.ask(INIT, 0, &body);
        assert_eq!((error, &answer[..4]), (0, &7_u32.to_le_bytes()[..]));
    }

    /// Makes a file and writes to it; returns its node.
    fn write(&mut self, name: &str, data: &[u8]) -> u64 {
        let open = (libc::O_RDWR as u32, 0o100_644_u32);
        let mut body = Vec::new();
        for word in [open.0, open.1, 0, 0] {
            body.extend(word.to_le_bytes());
        }
        body.extend(name.bytes().chain([0]));
        let (error, answer) = self.ask(CREATE, ROOT, &body);
        assert_eq!(error, 0);
        let wide = |at: usize| u64::from_le_bytes(answer[at..at + 8].try_into().unwrap());
        // `struct fuse_entry_out` has 128 bytes, and the file's handle is behind it.
        let (node, handle) = (wide(0), wide(128));
        let mut body = Vec::new();
        body.extend(handle.to_le_bytes());
        body.extend(0_u64.to_le_bytes());
        body.extend((data.len() as u32).to_le_bytes());
        body.resize(IN_HEADER, 0);
        body.extend(data);
        let (error, answer) = self.ask(WRITE, node, &body);
        assert_eq!((error, answer[0]), (0, data.len() as u8));
        node
    }
}

/// A guest makes files in the folder and finds those that are there. When the daemon is killed, a
/// request that it had ends with an error at the next one, as all do up to the next mount.
#[test]
#[ignore = "needs virtiofsd: a part of the suite runs it"]
fn a_file_system_is_written_and_its_daemon_dies() {
    let mut daemon = start();
    let mut fuse = Fuse::start(&daemon);
    let config = register::CONFIG;
    assert_eq!(fuse.guest.read(config), u32::from_le_bytes(*b"shar"));
    assert_eq!(fuse.guest.read(config + 36), 1);
    assert_eq!(
        fuse.ask(GETATTR, ROOT, &[0; 16]).0,
        EIO,
        "nothing is mounted"
    );
    fuse.mount();
    let node = fuse.write("first", b"text");
    let path = daemon.directory.path().join("shared/first");
    assert_eq!(fs::read(path).unwrap(), b"text");
    assert_eq!(fuse.ask(LOOKUP, ROOT, b"none\0").0, ENOENT);

    daemon.kill();
    fuse.offer(GETATTR, node, &[0; 16]);
    fuse.guest.turn();
    daemon.restart();
    assert_eq!(fuse.answer().0, EIO);
    assert_eq!(fuse.ask(GETATTR, ROOT, &[0; 16]).0, EIO);
    fuse.mount();
    let (error, entry) = fuse.ask(LOOKUP, ROOT, b"first\0");
    assert_eq!((error, entry.len()), (0, 128));

    fuse.guest.write(register::STATUS, 0);
    let ring = fuse.guest.rings[QUEUE];
    fuse.guest.put(ring.available(), &[0; 0x30]);
    fuse.guest.put(ring.used(), &[0; 0x90]);
    fuse.guest.rings[QUEUE].added = 0;
    fuse.guest.initialise(0, 2);
    fuse.asked = 0;
    fuse.mount();
    assert_eq!(fuse.ask(LOOKUP, ROOT, b"first\0").0, 0);
    let state = fuse.guest.state();
    assert_eq!((state.get(Word::Breaks), state.get(Word::Errors)), (0, 0));
}
