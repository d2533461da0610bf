//! The screen of a graphics card whose function is another program.
//!
//! The program speaks the vhost-user-gpu protocol on a socket of its own: it asks for the size of
//! the screen, and sends the parts of the frame that have changed. A thread for each connection
//! takes them, and keeps the frame in a file ([`Frame`]).
//!
//! Invariants: a program that breaks the protocol costs its screen alone. No message takes more
//! memory than a row of the largest frame.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::thread;

use vhost::vhost_user::gpu_message::GpuBackendReq as Request;
use vhost::vhost_user::gpu_message::VIRTIO_GPU_MAX_SCANOUTS as MOST_SCREENS;

use crate::frame::Frame;
use crate::sandbox::Role;
use crate::sys::{self, Wait};

/// Size of the screen, which the driver takes if nothing else is wanted.
const WIDTH: u32 = 1024;
const HEIGHT: u32 = 768;
/// `VIRTIO_GPU_RESP_OK_DISPLAY_INFO` (virtio 1.2, 5.7.6.7).
const DISPLAY_INFO: u32 = 0x1101;
/// Words of `struct virtio_gpu_ctrl_hdr`, and of what follows for each screen.
const ANSWER_WORDS: usize = 6;
const SCREEN_WORDS: usize = 6;
/// Flag of an answer.
const REPLY: u32 = 4;
/// Bytes of a pixel, and of a rectangle in front of the pixels.
const PIXEL: u64 = 4;
const RECTANGLE: u64 = 20;
/// Longest message that is passed over: a cursor of 64 x 64 with its place.
const MOST_SKIPPED: u32 = 0x5000;

/// The screen of a connection. The thread ends when this does.
#[derive(Debug)]
pub(super) struct Screen {
    /// End of a pipe whose close the thread sees, also while the thread waits for the program.
    _lease: PipeWriter,
}

/// Makes a screen whose frame is in a file; returns the program's end of the socket.
pub(super) fn start(
    file: File,
    name: String,
    confine: fn(Role),
) -> Result<(Screen, UnixStream), String> {
    let named = |error: io::Error| format!("screen: {error}");
    let frame = Frame::of(file).map_err(named)?;
    let (socket, theirs) = UnixStream::pair().map_err(named)?;
    let (ended, lease) = io::pipe().map_err(named)?;
    let mut server = Server {
        socket: File::from(OwnedFd::from(socket)),
        ended,
        frame,
    };
    let builder = thread::Builder::new().name("screen".into());
    let started = builder.spawn(move || {
        confine(Role::Screen);
        if let End::Broken(why) = server.serve() {
            eprintln!("gdm: {name}: its screen is given up: {why}");
        }
    });
    started.map_err(named)?;
    Ok((Screen { _lease: lease }, theirs))
}

/// Why a screen is no longer served.
enum End {
    /// The connection has ended.
    Closed,
    /// The program broke the protocol, or the frame cannot be kept.
    Broken(String),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::Broken(error.to_string()),
        }
    }
}

/// The thread's side of a connection with a program.
struct Server {
    /// As a file: reads of a socket are another system call.
    socket: File,
    /// Readable when the connection to the program has ended.
    ended: PipeReader,
    /// File that `gearctl screenshot` reads.
    frame: Frame,
}

impl Server {
    /// Takes messages until the connection ends or the program breaks the protocol.
    fn serve(&mut self) -> End {
        loop {
            if let Err(end) = self.step() {
                return end;
            }
        }
    }

    /// Takes a message. Descriptors that come with one are closed by the kernel, since nothing here
    /// receives them.
    fn step(&mut self) -> Result<(), End> {
        let [code, _, size] = self.words()?;
        let request = Request::try_from(code);
        match request.map_err(|_| End::Broken(format!("request {code} is unknown")))? {
            Request::GET_PROTOCOL_FEATURES => {
                self.skip(size)?;
                // None: neither EDID nor descriptors of memory that only a GPU understands.
                self.answer(code, &[0; 2])
            }
            Request::GET_DISPLAY_INFO => {
                self.skip(size)?;
                self.answer(code, &display_info())
            }
            Request::SET_PROTOCOL_FEATURES
            | Request::CURSOR_POS
            | Request::CURSOR_POS_HIDE
            | Request::CURSOR_UPDATE => self.skip(size),
            Request::SCANOUT => self.set_size(size),
            Request::UPDATE => self.update(size),
            Request::DMABUF_UPDATE => {
                self.skip(size)?;
                self.answer(code, &[])
            }
            Request::DMABUF_SCANOUT | Request::DMABUF_SCANOUT2 | Request::GET_EDID => {
                let why = "the program needs a GPU, which the screen has none of";
                Err(End::Broken(why.into()))
            }
        }
    }

    /// Takes the size of the frame; 0 by 0 turns the screen off.
    fn set_size(&mut self, size: u32) -> Result<(), End> {
        expect(size == 12, "the size of a screen has another size")?;
        let [screen, width, height] = self.words()?;
        expect(screen == 0, "there is one screen")?;
        Ok(self.frame.resize(width, height)?)
    }

    /// Takes a part of the frame. The rectangle is judged before its bytes are counted: a product
    /// of two words that lie within the frame does not overflow.
    fn update(&mut self, size: u32) -> Result<(), End> {
        expect(u64::from(size) >= RECTANGLE, "an update has no place")?;
        let [screen, x, y, width, height] = self.words()?;
        let is_there = screen == 0 && self.frame.contains(x, y, width, height);
        // planted: a part of a frame is wherever the program says
        expect(is_there, "a part of the frame lies outside of it")?;
        let row = PIXEL * u64::from(width);
        let is_whole = u64::from(size) == RECTANGLE + row * u64::from(height);
        expect(is_whole, "a part of the frame has another size")?;
        self.frame.begin_change()?;
        let mut pixels = vec![0; row as usize];
        for line in y..y + height {
            self.fill(&mut pixels)?;
            self.frame.write_row(x, line, &pixels)?;
        }
        Ok(self.frame.end_change()?)
    }

    /// Reads words, which are this machine's own.
    fn words<const N: usize>(&mut self) -> Result<[u32; N], End> {
        let mut words = [0; N];
        for word in &mut words {
            let mut bytes = [0; 4];
            self.fill(&mut bytes)?;
            *word = u32::from_ne_bytes(bytes);
        }
        Ok(words)
    }

    /// Passes over the rest of a message.
    fn skip(&mut self, size: u32) -> Result<(), End> {
        expect(size <= MOST_SKIPPED, "a message is too long")?;
        self.fill(&mut vec![0; size as usize])
    }

    /// Reads until the bytes are there, or the connection has ended.
    fn fill(&mut self, mut bytes: &mut [u8]) -> Result<(), End> {
        while !bytes.is_empty() {
            let sources = [
                readable(self.ended.as_raw_fd()),
                readable(self.socket.as_raw_fd()),
            ];
            let ready = sys::wait(&sources, -1);
            if ready.first() == Some(&true) {
                return Err(End::Closed);
            }
            let count = match self.socket.read(bytes) {
                Ok(0) => return Err(End::Closed),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                read => read?,
            };
            bytes = bytes.get_mut(count..).unwrap_or_default();
        }
        Ok(())
    }

    /// Answers a request with words.
    fn answer(&mut self, code: u32, words: &[u32]) -> Result<(), End> {
        let header = [code, REPLY, 4 * words.len() as u32];
        let words = header.iter().chain(words);
        let bytes: Vec<u8> = words.flat_map(|word| word.to_ne_bytes()).collect();
        Ok(self.socket.write_all(&bytes)?)
    }
}

/// Ends the service if a rule is broken.
fn expect(holds: bool, why: &str) -> Result<(), End> {
    holds.then_some(()).ok_or_else(|| End::Broken(why.into()))
}

/// Returns the answer that tells of one screen: a rectangle, and that it is enabled.
fn display_info() -> [u32; ANSWER_WORDS + SCREEN_WORDS * MOST_SCREENS] {
    let mut words = [0; ANSWER_WORDS + SCREEN_WORDS * MOST_SCREENS];
    let first = [0, 0, WIDTH, HEIGHT, 1];
    let places = words.iter_mut().skip(ANSWER_WORDS);
    for (to, from) in places.zip(first) {
        *to = from;
    }
    if let Some(kind) = words.first_mut() {
        *kind = DISPLAY_INFO;
    }
    words
}

/// Returns a wait for bytes, or for the end of the other side.
fn readable(fd: RawFd) -> Wait {
    Wait {
        fd,
        read: true,
        write: false,
    }
}
