//! A back end that breaks one rule at a time: no real one does on demand. What a back end does well
//! is tested beside a real one.

use std::fs::File;
use std::os::fd::FromRawFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use super::LONG;
use crate::testing::Directory;

pub(super) const GET_FEATURES: u32 = 1;
pub(super) const SET_MEM_TABLE: u32 = 5;
pub(super) const GET_VRING_BASE: u32 = 11;
const SET_VRING_CALL: u32 = 13;
pub(super) const GET_PROTOCOL_FEATURES: u32 = 15;
pub(super) const GET_QUEUE_NUM: u32 = 17;
pub(super) const SET_VRING_ENABLE: u32 = 18;
const SET_BACKEND_REQ_FD: u32 = 21;
pub(super) const GET_CONFIG: u32 = 24;

/// VIRTIO_F_VERSION_1, INDIRECT_DESC and VHOST_USER_F_PROTOCOL_FEATURES.
pub(super) const FEATURES: u64 = 1 << 32 | 1 << 28 | 1 << 30;
/// MQ, REPLY_ACK, BACKEND_REQ and CONFIG.
pub(super) const PROTOCOL: u64 = 1 | 1 << 3 | 1 << 5 | 1 << 9;

const REPLY: u32 = 0x5;
const NEED_REPLY: u32 = 8;
/// Place of the rings among the memory that the front end gives.
const RINGS: GuestAddress = GuestAddress(1 << 48);
const AVAILABLE: u64 = RINGS.0;
const USED: u64 = AVAILABLE + 0x800;

/// Treatment of a message by the back end.
pub(super) enum Act {
    /// Answer by the rules of the protocol.
    Well,
    /// Answers with this body.
    Body(Vec<u8>),
    /// Answers with these bytes, header and all.
    Bytes(Vec<u8>),
    /// Does not answer.
    Nothing,
    /// Closes the socket.
    Close,
    /// Answers, and when there are as many requests puts these entries into the used ring, with
    /// this index, and tells of them.
    Use(Vec<[u32; 2]>, u16),
    /// Sends these bytes by its own channel.
    News(Vec<u8>),
    /// Cuts the memory of the rings to nothing.
    Cut,
    /// Completes the first request of the queue, and answers that it has taken one.
    Last,
}

/// The state of a connection.
#[derive(Default)]
struct Connection {
    rings: Option<GuestMemoryMmap<()>>,
    file: Option<File>,
    call: Option<File>,
    channel: Option<UnixStream>,
    config: Vec<u8>,
}

/// Serves one connection after the other at `socket` in the directory. `act` says what to do with
/// the message of this number.
pub(super) fn serve(directory: &Directory, act: fn(u32) -> Act) -> String {
    let path = format!("{}/socket", directory.text());
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let mut connection = Connection {
                config: vec![0; 60],
                ..Connection::default()
            };
            while connection.step(socket.as_ref().unwrap(), act).is_some() {}
        }
    });
    path
}

impl Connection {
    /// Takes a message, and does something with it; `None` at the end.
    fn step(&mut self, socket: &UnixStream, act: fn(u32) -> Act) -> Option<()> {
        let (header, files) = receive(socket)?;
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let (request, flags, size) = (word(0), word(4), word(8));
        let mut body = vec![0; size as usize];
        std::io::Read::read_exact(&mut &*socket, &mut body).ok()?;
        self.keep(request, files);
        let answer = match act(request) {
            Act::Well => self.usual(request, &body, flags & NEED_REPLY != 0),
            Act::Body(body) => Some(message(request, &body)),
            Act::Bytes(bytes) => Some(bytes),
            Act::Nothing => None,
            Act::Close => return None,
            Act::Use(entries, index) => {
                let answer = self.usual(request, &body, flags & NEED_REPLY != 0);
                std::io::Write::write_all(&mut &*socket, &answer?).ok()?;
                self.put(&entries, index);
                None
            }
            Act::News(bytes) => {
                let channel = self.channel.as_ref().unwrap();
                std::io::Write::write_all(&mut &*channel, &bytes).unwrap();
                self.usual(request, &body, flags & NEED_REPLY != 0)
            }
            Act::Last => {
                self.put(&[[0, 1]], 1);
                Some(message(request, &[&body[..4], &[1, 0, 0, 0]].concat()))
            }
            Act::Cut => {
                assert!(self.file.as_ref().unwrap().set_len(0).is_err());
                self.usual(request, &body, flags & NEED_REPLY != 0)
            }
        };
        if let Some(answer) = answer {
            std::io::Write::write_all(&mut &*socket, &answer).ok()?;
        }
        Some(())
    }

    /// Keeps what a message brings. The rings are the last of the memory.
    fn keep(&mut self, request: u32, mut files: Vec<File>) {
        let file = files.pop();
        match request {
            SET_VRING_CALL => self.call = file,
            SET_BACKEND_REQ_FD => {
                self.channel = file.map(|file| UnixStream::from(std::os::fd::OwnedFd::from(file)));
            }
            SET_MEM_TABLE => {
                let rings = file.unwrap();
                let place = FileOffset::new(rings.try_clone().unwrap(), 0);
                let ranges = [(RINGS, 0x4000, Some(place))];
                self.rings = GuestMemoryMmap::from_ranges_with_files(ranges).ok();
                self.file = Some(rings);
            }
            _ => {}
        }
    }

    fn usual(&self, request: u32, body: &[u8], needs_reply: bool) -> Option<Vec<u8>> {
        let answer = match request {
            GET_FEATURES => FEATURES.to_le_bytes().to_vec(),
            GET_PROTOCOL_FEATURES => PROTOCOL.to_le_bytes().to_vec(),
            GET_QUEUE_NUM => 4_u64.to_le_bytes().to_vec(),
            GET_VRING_BASE => [&body[..4], &[0; 4]].concat(),
            GET_CONFIG => [&body[..12], &self.config].concat(),
            _ if needs_reply => vec![0; 8],
            _ => return None,
        };
        Some(message(request, &answer))
    }

    /// Completes requests, when there are as many.
    fn put(&self, entries: &[[u32; 2]], index: u16) {
        let rings = self.rings.as_ref().unwrap();
        let begin = Instant::now();
        let available = || rings.read_obj::<u16>(GuestAddress(AVAILABLE + 2)).unwrap();
        while usize::from(available()) < entries.len().max(1) {
            assert!(begin.elapsed() < LONG, "there is no request");
            thread::sleep(Duration::from_millis(1));
        }
        for (place, entry) in (0..).zip(entries) {
            let at = GuestAddress(USED + 4 + 8 * place);
            rings.write_obj(*entry, at).unwrap();
        }
        rings.write_obj(index, GuestAddress(USED + 2)).unwrap();
        let call = self.call.as_ref().unwrap();
        std::io::Write::write_all(&mut &*call, &1_u64.to_le_bytes()).unwrap();
    }
}

/// Receives a header, and the files that come with it; `None` at the end.
fn receive(socket: &UnixStream) -> Option<([u8; 12], Vec<File>)> {
    let mut header = [0; 12];
    let mut vectors = [libc::iovec {
        iov_base: header.as_mut_ptr().cast(),
        iov_len: header.len(),
    }];
    let mut fds = [-1; 8];
    // SAFETY: the kernel writes to the header, which lives and may have any content.
    let (count, files) = unsafe { socket.recv_with_fds(&mut vectors, &mut fds) }.ok()?;
    // SAFETY: the kernel made these descriptors for us, and nobody else knows them.
    let file = |fd: &i32| unsafe { File::from_raw_fd(*fd) };
    let files = fds[..files].iter().map(file).collect();
    // A header is one message: it comes as a whole.
    (count == header.len()).then_some((header, files))
}

/// Returns an answer with its header.
pub(super) fn message(request: u32, body: &[u8]) -> Vec<u8> {
    let header = [request, REPLY, body.len() as u32];
    let header = header.iter().flat_map(|word| word.to_le_bytes());
    header.chain(body.iter().copied()).collect()
}

/// Returns a message of the back end's own channel.
pub(super) fn news(request: u32, size: u32) -> Vec<u8> {
    let header = [request, 1, size];
    header.iter().flat_map(|word| word.to_le_bytes()).collect()
}
