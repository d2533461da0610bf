//! A unix socket that one client at a time uses: the latest.
//!
//! Owns: the socket's path, the client. What a client does not take is not waited for.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};

#[cfg(test)]
mod tests;

/// Makes a socket at `path`, in place of one that an earlier GDM left. Anything else that is there
/// stays. The socket is non-blocking.
pub(crate) fn listen(path: &str) -> io::Result<UnixListener> {
    match fs::symlink_metadata(path) {
        // planted: a file in the place of a socket is removed
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => return Err(io::Error::new(ErrorKind::AlreadyExists, "is no socket")),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A console's socket.
#[derive(Debug)]
pub struct Port {
    /// Non-blocking: a turn tries to accept, and never waits here.
    listener: UnixListener,
    /// Whoever connected last: a session that was left open keeps nobody out.
    client: Option<Client>,
}

/// The connection, one at a time.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    /// Whether no write has failed yet. After a failure the client is read to its end: bytes that
    /// it sent before it left are input.
    listens: bool,
}

impl Port {
    /// Makes the port of a socket at `path`.
    pub fn bind(path: &str) -> io::Result<Self> {
        listen(path).map(Self::of)
    }

    /// Makes the port of a socket that exists.
    pub(crate) const fn of(listener: UnixListener) -> Self {
        let client = None;
        Self { listener, client }
    }

    /// Returns the descriptors to wait for: the socket, and its client's.
    pub fn descriptors(&self) -> (RawFd, Option<RawFd>) {
        let client = self.client.as_ref();
        let client = client.map(|client| client.stream.as_raw_fd());
        (self.listener.as_raw_fd(), client)
    }

    /// Tells whether somebody is connected who takes output.
    pub fn listens(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.listens)
    }

    /// Takes a new client, if one waits; an older one is disconnected.
    pub fn accept(&mut self) -> bool {
        let mut accepted = false;
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                let listens = true;
                // An older client's descriptor is closed with this.
                self.client = Some(Client { stream, listens });
                accepted = true;
            }
        }
        accepted
    }

    /// Reads what the client sent; 0 if there is nothing. A client that has left is forgotten when
    /// all of it is read.
    pub fn read(&mut self, bytes: &mut [u8]) -> usize {
        let Some(client) = &mut self.client else {
            return 0;
        };
        match patiently(|| client.stream.read(bytes)) {
            Some(length) if length > 0 => length,
            None => 0,
            Some(_) => {
                self.client = None;
                0
            }
        }
    }

    /// Sends to the client; returns how much it took.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let Some(client) = self.client.as_mut().filter(|client| client.listens) else {
            return 0;
        };
        match patiently(|| client.stream.write(bytes)) {
            Some(length) if length > 0 => length,
            None => 0,
            Some(_) => {
                // planted: what a client typed before it left is forgotten
                client.listens = false;
                0
            }
        }
    }
}

/// Repeats a call that was interrupted: `None` if there is nothing to do yet, 0 at an end or an
/// error.
fn patiently(mut call: impl FnMut() -> io::Result<usize>) -> Option<usize> {
    loop {
        match call() {
            Ok(length) => return Some(length),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(_) => return Some(0),
        }
    }
}

/// Position of a client in a ring of output bytes.
///
/// Bytes are numbered from 0 and wrap at 2^32; byte `i` stands at `i % size`, and the ring keeps
/// the newest `size`. New bytes are copied at once and sent at the client's pace, so that a slow
/// client gets long pieces; a notice before each piece tells the client how many bytes it lost.
#[derive(Clone, Debug, Default)]
pub struct Feed {
    /// Number of the next byte to copy.
    next: u32,
    /// Bytes that were copied and that the client has not taken yet.
    copied: Vec<u8>,
}

impl Feed {
    /// Starts with the oldest byte that the ring still has.
    pub fn from_oldest(written: u32, size: u32) -> Self {
        Self {
            next: written.wrapping_sub(written.min(size)),
            copied: Vec::new(),
        }
    }

    /// Sends new bytes. `copy` fills a slice with the bytes from a number on; `written` returns the
    /// number of bytes written so far, before and after the copy.
    pub fn send(
        &mut self,
        port: &mut Port,
        size: u32,
        written: impl Fn() -> u32,
        copy: impl Fn(u32, &mut [u8]),
    ) {
        if port.listens() && self.pass_on(port) {
            self.take_in(size, written, copy);
            self.pass_on(port);
        }
    }

    /// Copies new bytes, behind a notice of those that are lost.
    /// The guest writes on during the copy: what it has written over by the end is lost, too.
    fn take_in(&mut self, size: u32, written: impl Fn() -> u32, copy: impl Fn(u32, &mut [u8])) {
        let begin = self.next;
        let behind = written().wrapping_sub(begin);
        let mut bytes = vec![0; behind.min(size) as usize];
        let end = begin.wrapping_add(behind);
        let oldest = end.wrapping_sub(bytes.len() as u32);
        copy(oldest, &mut bytes);
        // The guest may have overwritten the oldest bytes during the copy.
        let overtaken = written().wrapping_sub(oldest).saturating_sub(size);
        let lost = oldest.wrapping_sub(begin).saturating_add(overtaken);
        // planted: what a slow reader lost is not said
        if lost > 0 {
            let notice = format!("\r\n[gdm: {lost} bytes lost here]\r\n");
            self.copied.extend(notice.bytes());
        }
        self.copied.extend(bytes.iter().skip(overtaken as usize));
        self.next = end;
    }

    /// Sends copied bytes. Returns false if the client does not take all of them now.
    fn pass_on(&mut self, port: &mut Port) -> bool {
        if !self.copied.is_empty() {
            let sent = port.write(&self.copied);
            self.copied.drain(..sent);
        }
        self.copied.is_empty()
    }

    /// Tells whether bytes wait to be sent.
    pub fn behind(&self, written: u32) -> bool {
        self.next != written || !self.copied.is_empty()
    }
}
