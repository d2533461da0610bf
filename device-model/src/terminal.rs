//! `gearctl console`: a terminal, or a pipe, and a console's socket.
//!
//! Owns: typed input that the socket has not taken. A guest that does not read its console fills
//! the socket; the terminal is still read, so that its escape character always works.
//!
//! GDM sends whoever connects all the output that it has kept, a whole boot mostly. A person wants
//! the last screen of it, as other console programs show; a program gets all. The socket does not
//! tell where old output ends and new output begins, so that the end is where nothing comes for a
//! moment. Nothing behind the last screen is ever left out.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::sys::{self, Wait};

#[cfg(test)]
mod tests;

/// Ctrl-].
const ESCAPE: u8 = 0x1d;
/// Most bytes that wait for the socket. Further input is lost, and the terminal's bell signals the
/// loss. A pipe is not read meanwhile.
const MOST_TYPED: usize = 0x1_0000;
/// Most output that GDM keeps of a console, in bytes: what comes behind as much is new.
const MOST_KEPT: usize = 0x1_0000;
/// Old output has ended when nothing comes for so many milliseconds: GDM sends it in one go.
const QUIET_MS: i32 = 100;
/// Longest wait for that end. A guest that prints without a pause is shown from then on.
const CATCH_UP: Duration = Duration::from_millis(500);
/// Signal at a person's terminal that input is lost.
const BELL: &[u8] = b"\x07";

/// End of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// By the escape character, or the input's end.
    Left,
    /// The other side has closed the socket, or the output is closed.
    Closed,
}

/// A terminal connected with a console.
struct Session<'o> {
    /// Unbuffered: what is read here must not hide from `poll`.
    input: File,
    /// Whether a person types: excess input is dropped rather than waited for.
    is_terminal: bool,
    /// The console's.
    socket: UnixStream,
    /// Standard output, or a buffer of a test.
    output: &'o mut dyn Write,
    /// Typed, and not taken by the socket yet.
    typed: Vec<u8>,
    /// The escape character was typed, or the input has ended.
    leaves: bool,
}

/// Connects standard input and output with a console's socket until Ctrl-] is typed or either side
/// ends. `lines`: of earlier output only so many of the last lines are shown. Returns false if a
/// side ended.
pub(crate) fn connect(socket: UnixStream, lines: Option<usize>) -> io::Result<bool> {
    let (stdin, mut output) = (io::stdin(), io::stdout());
    // The buffer of `Stdin` would hold bytes back for which the descriptor is never readable again.
    let input = File::from(stdin.as_fd().try_clone_to_owned()?);
    // A pipe has no mode: who cannot be set raw is no terminal.
    let old = sys::set_raw(&input).ok();
    let ended =
        Session::new(input, old.is_some(), socket, &mut output).map(|session| session.run(lines));
    if let Some(old) = old {
        let _ = sys::set_mode(&stdin, &old);
        // The guest's last line may be unfinished: the shell's prompt begins on one of its own.
        let _ = output.write_all(b"\r\n");
    }
    Ok(ended? == End::Left)
}

impl<'o> Session<'o> {
    /// Begins a session. The socket does not block: input must go on while the guest does not read.
    fn new(
        input: File,
        is_terminal: bool,
        socket: UnixStream,
        output: &'o mut dyn Write,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            input,
            is_terminal,
            socket,
            output,
            typed: Vec::new(),
            leaves: false,
        })
    }

    /// Shows the last of earlier output, and passes bytes both ways until either side ends.
    fn run(mut self, lines: Option<usize>) -> End {
        if lines.is_some_and(|lines| !self.catch_up(lines)) {
            return End::Closed;
        }
        loop {
            if let Some(end) = self.turn(-1) {
                return end;
            }
        }
    }

    /// Takes the output that GDM has kept, and shows its last lines; false if a side is closed. What
    /// is typed meanwhile waits in the terminal.
    fn catch_up(&mut self, lines: usize) -> bool {
        let mut kept = Vec::new();
        let end = Instant::now() + CATCH_UP;
        let mut is_open = true;
        while is_open && kept.len() < MOST_KEPT && Instant::now() < end {
            let [_, socket] = self.waits();
            let socket = Wait {
                write: false,
                ..socket
            };
            // The first of it may take GDM a moment, while it serves other devices.
            let quiet = match kept.is_empty() {
                true => CATCH_UP.as_millis() as i32,
                false => QUIET_MS,
            };
            if sys::wait(&[socket], quiet).first() != Some(&true) {
                break;
            }
            is_open = self.take(&mut kept);
        }
        // planted: gearctl console shows nothing of what was before
        self.print(last_lines(&kept, lines)) && is_open
    }

    /// Waits for something to do, and does it.
    fn turn(&mut self, milliseconds: i32) -> Option<End> {
        let ready = sys::wait(&self.waits(), milliseconds);
        if ready.first() == Some(&true) {
            self.type_in();
        }
        // Sent in each turn: the wait ended because the socket has room, or something was typed.
        let sent = self.send();
        let shown = ready.get(1) != Some(&true) || self.show();
        if !sent || !shown {
            return Some(End::Closed);
        }
        // A person who leaves does not wait for a guest that reads nothing; a pipe's content is
        // sent.
        let done = self.leaves && (self.is_terminal || self.typed.is_empty());
        done.then_some(End::Left)
    }

    /// Returns what to wait for: the input, then the socket.
    fn waits(&self) -> [Wait; 2] {
        [
            Wait {
                fd: self.input.as_raw_fd(),
                // planted: gearctl console does not read the terminal while the guest does not read
                read: !self.leaves && (self.is_terminal || self.typed.len() < MOST_TYPED),
                write: false,
            },
            Wait {
                fd: self.socket.as_raw_fd(),
                read: true,
                write: !self.typed.is_empty(),
            },
        ]
    }

    /// Takes typed input, up to the escape character.
    /// Without room the rest is dropped, and a person hears the bell.
    fn type_in(&mut self) {
        let mut bytes = [0; 1024];
        let length = match self.input.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return,
            Err(_) => 0,
            Ok(length) => length,
        };
        let bytes = bytes.get(..length).unwrap_or_default();
        let escape = bytes.iter().position(|byte| *byte == ESCAPE);
        self.leaves = length == 0 || escape.is_some();
        let wanted = escape.unwrap_or(length);
        // A pipe is read only while there is room: see `waits`.
        let room = match self.is_terminal {
            true => MOST_TYPED.saturating_sub(self.typed.len()),
            false => usize::MAX,
        };
        self.typed.extend(bytes.iter().take(wanted.min(room)));
        if wanted > room {
            let _ = self.output.write_all(BELL);
            let _ = self.output.flush();
        }
    }

    /// Sends typed input, as far as the socket takes it. Returns false if the socket is closed.
    fn send(&mut self) -> bool {
        while !self.typed.is_empty() {
            match self.socket.write(&self.typed) {
                Ok(0) => return false,
                Ok(length) => drop(self.typed.drain(..length)),
                Err(error) => return is_no_end(&error),
            }
        }
        true
    }

    /// Shows what came; false if either is closed.
    fn show(&mut self) -> bool {
        let mut bytes = Vec::new();
        self.take(&mut bytes) && self.print(&bytes)
    }

    /// Takes what came, at most a page of it; false if the socket is closed.
    fn take(&mut self, to: &mut Vec<u8>) -> bool {
        let mut bytes = [0; 4096];
        match self.socket.read(&mut bytes) {
            Ok(0) => false,
            Ok(length) => {
                to.extend(bytes.iter().take(length));
                true
            }
            Err(error) => is_no_end(&error),
        }
    }

    /// Shows output; false if nobody reads it any more.
    fn print(&mut self, bytes: &[u8]) -> bool {
        let shown = self.output.write_all(bytes);
        shown.and_then(|()| self.output.flush()).is_ok()
    }
}

/// Returns the last lines of output. Bytes behind the last end of a line are one, too: a prompt,
/// most often. Escape sequences may be cut only where a line ends, and there a screen is drawn anew.
fn last_lines(kept: &[u8], count: usize) -> &[u8] {
    let places = kept.iter().enumerate().rev();
    let mut ends = places.filter(|(_, byte)| **byte == b'\n');
    let start = ends.nth(count.saturating_sub(1));
    let start = start.map_or(0, |(end, _)| end + 1);
    kept.get(start..).unwrap_or_default()
}

/// Tells whether the socket goes on: it has no room or nothing to read now, or a signal came.
fn is_no_end(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
