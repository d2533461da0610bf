//! Opening of sockets, apart from serving them: the thread that serves a guest may make and connect
//! none.
//!
//! Owns: the listening socket's path, and the *broker*, which connects on behalf of that thread.
//! The thread sends a port and gets a connected socket or an error. All that a subverted thread can
//! have the broker do is to connect to `SOCKET_P` for some number P.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use vmm_sys_util::epoll::Epoll;
use vmm_sys_util::sock_ctrl_msg::ScmSocket as _;

use crate::backend::Confine;
use crate::sandbox::Role;
use crate::{socket, sys};

/// Bytes of a question to the broker: the port.
const QUESTION: usize = 4;
/// Bytes of an answer: the port, and 0 or the number of an error.
const ANSWER: usize = 8;

/// All that serving a guest needs and only root can make.
#[derive(Debug)]
pub(super) struct Opened {
    /// Programs of the device VM connect to it. Non-blocking.
    pub(super) listener: UnixListener,
    /// The thread's end of the connection to the broker. Non-blocking.
    pub(super) broker: UnixStream,
    /// Tells which sockets are ready.
    pub(super) epoll: Epoll,
}

/// Binds the socket at `path` and starts the broker, a thread of GDM's that first gives up rights
/// by `confine`. Returns the listener and the other end of the connection to the broker.
pub(super) fn claim(path: &str, confine: Confine) -> Result<[OwnedFd; 2], String> {
    let said = |error: io::Error| format!("{path}: {error}");
    let listener = socket::listen(path).map_err(said)?;
    let (broker, other) = UnixStream::pair().map_err(said)?;
    broker.set_nonblocking(true).map_err(said)?;
    let prefix = path.to_owned();
    let builder = thread::Builder::new().name("broker".into());
    let body = move || {
        confine(Role::Broker);
        serve(&other, &prefix);
    };
    builder.spawn(body).map_err(said)?;
    Ok([listener.into(), broker.into()])
}

impl Opened {
    /// Takes what [`claim`] has opened.
    pub(super) fn of([listener, broker]: [OwnedFd; 2]) -> io::Result<Self> {
        Ok(Self {
            listener: listener.into(),
            broker: broker.into(),
            epoll: Epoll::new()?,
        })
    }
}

/// Answers questions until the other end is closed.
fn serve(socket: &UnixStream, prefix: &str) {
    let mut from = socket;
    let mut question = [0; QUESTION];
    while from.read_exact(&mut question).is_ok() {
        let port = u32::from_le_bytes(question);
        // A program whose queue of callers is full does not hold up other ports.
        let connected = sys::connect_at_once(&format!("{prefix}_{port}"));
        let error = match &connected {
            Ok(_) => 0,
            Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
        };
        let answer = answer_bytes(port, error);
        let fd = connected.as_ref().ok().map(AsRawFd::as_raw_fd);
        let fds = fd.as_slice();
        if socket.send_with_fds(&[answer.as_slice()], fds).is_err() {
            return;
        }
    }
}

/// Returns the bytes of an answer. The port stands in it, because the thread asks for several at
/// once.
fn answer_bytes(port: u32, error: i32) -> [u8; ANSWER] {
    let mut answer = [0; ANSWER];
    let words = [port.to_le_bytes(), error.to_le_bytes()];
    let words = words.iter().flatten();
    answer
        .iter_mut()
        .zip(words)
        .for_each(|(to, from)| *to = *from);
    answer
}

/// Asks the broker for a connection to a port.
pub(super) fn ask(broker: &UnixStream, port: u32) -> io::Result<()> {
    let mut to = broker;
    // The kernel takes so few bytes whole or not at all.
    to.write(&port.to_le_bytes()).map(drop)
}

/// An answer of the broker's.
#[derive(Debug)]
pub(super) enum Answer {
    /// There is none yet.
    None,
    /// There will be none: the broker has ended.
    Ended,
    /// The port, and its program.
    Of(u32, io::Result<UnixStream>),
}

/// Takes the broker's next answer.
pub(super) fn answer(broker: &UnixStream) -> Answer {
    let mut bytes = [0; ANSWER];
    let (length, descriptor) = match sys::receive(broker, &mut bytes) {
        Ok(got) => got,
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            return Answer::None;
        }
        Err(_) => return Answer::Ended,
    };
    let (words, _) = bytes.as_chunks::<4>();
    let [port, error] = words else {
        return Answer::Ended;
    };
    // Each answer was sent, and is received, in one piece.
    if length != ANSWER {
        return Answer::Ended;
    }
    let stream = match descriptor {
        Some(descriptor) => Ok(UnixStream::from(descriptor)),
        None => Err(io::Error::from_raw_os_error(i32::from_le_bytes(*error))),
    };
    Answer::Of(u32::from_le_bytes(*port), stream)
}
