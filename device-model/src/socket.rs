//! A unix socket that one client at a time uses: the latest.
//!
//! Owns: the socket's path, the client. What a client does not take is not waited for.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};

/// A console's socket.
#[derive(Debug)]
pub struct Port {
    listener: UnixListener,
    client: Option<UnixStream>,
}

impl Port {
    /// Makes the socket at `path`, in place of one that an earlier GDM left.
    pub fn bind(path: &str) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        let client = None;
        Ok(Self { listener, client })
    }

    /// Returns the descriptors to wait for: the socket, and its client's.
    pub fn descriptors(&self) -> (RawFd, Option<RawFd>) {
        let client = self.client.as_ref().map(AsRawFd::as_raw_fd);
        (self.listener.as_raw_fd(), client)
    }

    /// Tells whether somebody is connected.
    pub fn connected(&self) -> bool {
        self.client.is_some()
    }

    /// Takes a new client, if one waits; an older one is disconnected.
    pub fn accept(&mut self) -> bool {
        let mut accepted = false;
        while let Ok((client, _)) = self.listener.accept() {
            if client.set_nonblocking(true).is_ok() {
                self.client = Some(client);
                accepted = true;
            }
        }
        accepted
    }

    /// Reads what the client sent; 0 if there is nothing.
    pub fn read(&mut self, bytes: &mut [u8]) -> usize {
        self.with_client(|client| match client.read(bytes) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            other => other,
        })
    }

    /// Sends to the client; returns how much it took.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        self.with_client(|client| client.write(bytes))
    }

    fn with_client(&mut self, mut call: impl FnMut(&mut UnixStream) -> io::Result<usize>) -> usize {
        let Some(client) = &mut self.client else {
            return 0;
        };
        loop {
            match call(client) {
                Ok(length) => return length,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return 0,
                Err(_) => {
                    self.client = None;
                    return 0;
                }
            }
        }
    }
}

/// How far a client has been sent what a ring of output bytes holds.
///
/// Bytes are numbered from 0 and wrap at 2^32; byte `i` stands at `i % size`, and the
/// ring keeps the newest `size`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Feed {
    next: u32,
}

impl Feed {
    /// Starts with the oldest byte that the ring still has.
    pub fn from_oldest(written: u32, size: u32) -> Self {
        let next = written.wrapping_sub(written.min(size));
        Self { next }
    }

    /// Sends what is new. `copy` fills a slice with the bytes from a number on;
    /// `written` tells how many were written so far, before and after.
    pub fn send(
        &mut self,
        port: &mut Port,
        size: u32,
        written: impl Fn() -> u32,
        copy: impl Fn(u32, &mut [u8]),
    ) {
        let mut bytes = [0; 4096];
        while port.connected() {
            let behind = written().wrapping_sub(self.next);
            if behind > size {
                // The writer was faster: what is older is lost.
                self.next = written().wrapping_sub(size);
                continue;
            }
            let length = (behind as usize).min(bytes.len());
            let Some(piece) = bytes.get_mut(..length).filter(|piece| !piece.is_empty()) else {
                return;
            };
            copy(self.next, piece);
            if written().wrapping_sub(self.next) > size {
                continue;
            }
            let sent = port.write(piece);
            self.next = self.next.wrapping_add(sent as u32);
            if sent < length {
                return;
            }
        }
    }

    /// Tells whether bytes wait to be sent.
    pub fn behind(&self, written: u32) -> bool {
        self.next != written
    }
}
