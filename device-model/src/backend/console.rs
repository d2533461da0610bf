//! virtio-console (virtio 1.2, 5.3), one port, on a unix socket `<run>/<vm>.console`
//! and, with the backend `pty`, also on a pseudo-terminal `<run>/<vm>.pty`.
//!
//! The newest 64 KiB of output are kept and replayed to who connects to the socket.
//! Output is never waited for: a guest does not hang on its reader.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{OpenOptionsExt, symlink};

use virtio_bindings::virtio_ids::VIRTIO_ID_CONSOLE;

use super::{Backend, Opened, Parts, Progress, TURN};
use crate::board::DeviceNode;
use crate::socket::{Feed, Port, listen};
use crate::state::Word;
use crate::sys;
use crate::transport::Identity;
use crate::vring::{Broken, Chain, Vring};

#[cfg(test)]
mod tests;

/// Type in the register DeviceID (virtio 1.2, 5.3.1).
pub(super) const DEVICE_ID: u32 = VIRTIO_ID_CONSOLE;
/// Longest queue that a driver may choose.
pub(super) const QUEUE_SIZE: u16 = 64;

/// Queue 0 receives, queue 1 transmits (virtio 1.2, 5.3.2).
const RECEIVE: usize = 0;
/// Bytes of output that are kept, a power of two: byte `i` stands at `i % HISTORY` also when the
/// number of bytes wraps at 2^32.
const HISTORY: usize = 0x1_0000;
/// VIRTIO_CONSOLE_F_EMERG_WRITE, and the offset of that field.
const EMERGENCY_WRITE: u64 = 1 << 2;
/// Place of `emerg_wr` in `struct virtio_console_config` (virtio 1.2, 5.3.4).
const EMERGENCY_OFFSET: usize = 8;
/// Most bytes taken from one request; a console's are far shorter.
const MOST: u64 = 0x1_0000;

/// A console.
#[derive(Debug)]
pub struct Console {
    /// Socket of `gearctl console --virtio`.
    port: Port,
    /// How far the socket's client has the output.
    feed: Feed,
    /// Our end of the pseudo-terminal, and the other, which is kept open so that ours works.
    terminal: Option<(File, File)>,
    /// Ring of the newest output.
    history: Box<[u8; HISTORY]>,
    /// Number of all output bytes, which wraps at 2^32.
    written: u32,
    /// Input that the guest has not taken.
    input: Vec<u8>,
    /// Whether a client came since the thread last asked for descriptors.
    changed: bool,
}

impl Console {
    /// Makes the socket, and the pseudo-terminal if the manifest wants one. With both, `gearctl
    /// console --virtio` uses the socket.
    pub(super) fn claim(node: &DeviceNode, run_directory: &str) -> Result<Opened, String> {
        let path = format!(
            "{run_directory}/{}.console",
            crate::serial::file_name(&node.vm)
        );
        let listener = listen(&path).map_err(|error| format!("{path}: {error}"))?;
        let mut parts = vec![listener.into()];
        if node.backend == "pty" {
            let link = format!("{run_directory}/{}.pty", crate::serial::file_name(&node.vm));
            let (ours, other) = open_terminal(&link).map_err(|error| format!("{link}: {error}"))?;
            parts.extend([ours.into(), other.into()]);
        }
        Ok(Opened { parts, claim: None })
    }

    /// Makes the console of a socket, and of both ends of a pseudo-terminal if there is one.
    pub(super) fn of(parts: &mut Parts) -> Result<Self, String> {
        let port = Port::of(parts.take()?.into());
        let ends = [parts.take_last(), parts.take_last()];
        let terminal = match ends {
            [Some(ours), Some(other)] => Some((ours.into(), other.into())),
            _ => None,
        };
        Ok(Self {
            port,
            feed: Feed::default(),
            terminal,
            history: Box::new([0; HISTORY]),
            written: 0,
            input: Vec::new(),
            changed: false,
        })
    }

    /// Puts output in the history, over the oldest, and shows it on the pseudo-terminal.
    fn print(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let place = self.history.get_mut(self.written as usize % HISTORY);
            if let Some(place) = place {
                *place = *byte;
            }
            self.written = self.written.wrapping_add(1);
        }
        if let Some((terminal, _)) = &mut self.terminal {
            // A full terminal has no reader that could miss something.
            let _ = terminal.write(bytes);
        }
    }

    /// Sends the socket's client what it takes now.
    fn flush(&mut self) {
        let written = self.written;
        let history = &self.history;
        self.feed.send(
            &mut self.port,
            HISTORY as u32,
            || written,
            |start, bytes| {
                let from = history.iter().cycle().skip(start as usize % HISTORY);
                bytes
                    .iter_mut()
                    .zip(from)
                    .for_each(|(to, from)| *to = *from);
            },
        );
    }

    /// Gets more input if all of the last is used; false if there is none.
    fn fill(&mut self) -> bool {
        if !self.input.is_empty() {
            return true;
        }
        let mut bytes = [0; 1024];
        let mut length = self.port.read(&mut bytes);
        if length == 0
            && let Some((terminal, _)) = &mut self.terminal
        {
            length = terminal.read(&mut bytes).unwrap_or(0);
        }
        // At most one read is kept: the rest waits in the socket.
        self.input.extend(bytes.iter().take(length));
        length > 0
    }

    /// Passes input on, a request a piece. Input is read only when the guest has used the last:
    /// what it does not take waits in the socket, whose writer notices.
    fn receive(&mut self, ring: &mut Vring) -> Result<Progress, Broken> {
        let mut chain = Chain::default();
        for _ in 0..TURN {
            if !self.fill() {
                return Ok(Progress::Waits);
            }
            if !ring.take(&mut chain)? {
                return Ok(Progress::Drained);
            }
            // What a short buffer does not take goes into the next one.
            let length = chain.writable.write(ring.memory(), 0, &self.input);
            self.input.drain(..length);
            ring.state().count(Word::BytesIn, length as u64);
            ring.complete(chain.head, length as u64)?;
        }
        Ok(Progress::More)
    }

    /// Takes output, however slow its readers are: the oldest is written over.
    fn transmit(&mut self, ring: &mut Vring) -> Result<Progress, Broken> {
        let mut chain = Chain::default();
        for _ in 0..TURN {
            if !ring.take(&mut chain)? {
                return Ok(Progress::Drained);
            }
            // The rest of a longer request is dropped: its length is the guest's to say, and the
            // memory is GDM's.
            let length = chain.readable.length().min(MOST);
            let mut bytes = vec![0; length as usize];
            chain.readable.read(ring.memory(), 0, &mut bytes);
            // Each request is printed alone: the output of a turn may exceed the ring.
            self.print(&bytes);
            self.flush();
            ring.state().count(Word::BytesOut, length);
            ring.complete(chain.head, 0)?;
        }
        Ok(Progress::More)
    }
}

/// Makes a pseudo-terminal with a link that has a fixed name. Raw mode: the guest's own terminal
/// echoes and edits. O_NOCTTY: the terminal must not become GDM's own.
fn open_terminal(link: &str) -> std::io::Result<(File, File)> {
    let (ours, name) = sys::open_pty()?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOCTTY);
    let other = options.open(&name)?;
    sys::set_raw(&other)?;
    // An earlier GDM has left its link, to a terminal that is gone.
    let _ = fs::remove_file(link);
    symlink(name, link)?;
    Ok((ours, other))
}

impl Backend for Console {
    fn identity(&self) -> Identity {
        Identity {
            device_id: DEVICE_ID,
            // One port, of no size: the guest's terminal is whatever connects.
            features: EMERGENCY_WRITE,
            dependencies: &[],
            queue_sizes: vec![QUEUE_SIZE; 2],
            // Size and ports belong to features that are not offered; the emergency byte is never
            // read.
            config: vec![0; 12],
        }
    }

    // Each byte written there is printed, also before the driver is ready (virtio 1.2, 5.3.4).
    fn write_config(&mut self, offset: usize, bytes: &[u8]) {
        if offset == EMERGENCY_OFFSET
            && let Some(byte) = bytes.first()
        {
            self.print(&[*byte]);
            self.flush();
        }
    }

    fn watch(&self) -> Vec<RawFd> {
        let (listener, client) = self.port.descriptors();
        let terminal = self.terminal.as_ref().map(|(ours, _)| ours.as_raw_fd());
        [Some(listener), client, terminal]
            .into_iter()
            .flatten()
            .collect()
    }

    // A client that came is another descriptor to watch.
    fn watch_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    // The epoll of the thread is edge-triggered: accepting and sending are tried at each turn.
    fn poll(&mut self) {
        if self.port.accept() {
            self.changed = true;
            // Whoever connects late sees what led there.
            self.feed = Feed::from_oldest(self.written, HISTORY as u32);
        }
        self.flush();
    }

    fn process(&mut self, queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        if queue == RECEIVE {
            self.receive(ring)
        } else {
            self.transmit(ring)
        }
    }
}
