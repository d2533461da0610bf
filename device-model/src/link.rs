//! Messages between GDM and the process of a guest.
//!
//! A message has 256 bytes, and one descriptor at most comes with it. GDM takes no descriptor, and
//! gives up a process that sends anything else: a guest may have subverted it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use crate::order::{Answer, Order};
use crate::sys;

#[cfg(test)]
mod tests;

/// Bytes of a message: kind, channel, a number and a text. Kind, channel and the text's length are
/// words of 32 bits, all little-endian.
const SIZE: usize = 256;
/// Place of the text, behind the numbers.
const TEXT: usize = 20;

/// A message. Those about a device name its channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// GDM's: with the descriptor by which it wakes the device's thread.
    Kick(usize),
    /// GDM's: with the next descriptor of the device's backend.
    Part(usize),
    /// GDM's: all descriptors of the device's backend have come.
    Backend(usize),
    /// GDM's: whether the program runs that serves the device and that GDM starts.
    Runs(usize, bool),
    /// GDM's: what a person orders the device.
    Order(usize, Order),
    /// The process's: all of its threads make progress.
    Beat,
    /// The process's: the backend serves no longer, and the next one is wanted.
    Next(usize),
    /// The process's: the backend cannot be used, and is to be tried again.
    Again(usize),
    /// The process's: the answer to the device's oldest order.
    Answer(usize, Answer),
}

impl Message {
    /// Returns kind, channel, number and text.
    fn fields(&self) -> (u32, usize, u64, String) {
        let plain = |kind, channel| (kind, channel, 0, String::new());
        match self {
            Self::Kick(channel) => plain(1, *channel),
            Self::Part(channel) => plain(2, *channel),
            Self::Backend(channel) => plain(3, *channel),
            Self::Beat => plain(4, 0),
            Self::Next(channel) => plain(5, *channel),
            Self::Again(channel) => plain(6, *channel),
            Self::Order(channel, order) => (7, *channel, 0, order.to_string()),
            Self::Runs(channel, runs) => (10, *channel, u64::from(*runs), String::new()),
            Self::Answer(channel, Ok(number)) => (8, *channel, *number, String::new()),
            Self::Answer(channel, Err(sentence)) => (9, *channel, 0, sentence.clone()),
        }
    }

    /// Returns the message as it is sent. All have one size, and a text that is too long is cut: a
    /// sentence for a person bears that.
    fn bytes(&self) -> [u8; SIZE] {
        let (kind, channel, number, text) = self.fields();
        let text = text.as_bytes();
        let text = text.get(..text.len().min(SIZE - TEXT)).unwrap_or_default();
        let head = [kind.to_le_bytes(), (channel as u32).to_le_bytes()].concat();
        let length = (text.len() as u32).to_le_bytes();
        let parts = [&head, number.to_le_bytes().as_slice(), &length, text].concat();
        let mut bytes = [0; SIZE];
        for (to, from) in bytes.iter_mut().zip(parts) {
            *to = from;
        }
        bytes
    }

    /// Reads a message; `None`: it is none. A guest may have subverted its process, so each
    /// field is judged.
    fn of(bytes: &[u8; SIZE]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<4>();
        let mut words = words.iter().map(|word| u32::from_le_bytes(*word));
        let mut next = || words.next().unwrap_or(0);
        let (kind, channel) = (next(), next() as usize);
        let number = u64::from(next()) | u64::from(next()) << 32;
        let text = bytes.get(TEXT..)?.get(..next() as usize)?;
        Some(match kind {
            1 => Self::Kick(channel),
            2 => Self::Part(channel),
            3 => Self::Backend(channel),
            4 => Self::Beat,
            5 => Self::Next(channel),
            6 => Self::Again(channel),
            7 => {
                let text = String::from_utf8_lossy(text);
                let words: Vec<&str> = text.split(' ').collect();
                Self::Order(channel, Order::parse(&words)?)
            }
            8 => Self::Answer(channel, Ok(number)),
            9 => Self::Answer(channel, Err(sentence(text))),
            10 => Self::Runs(channel, number != 0),
            _ => return None,
        })
    }
}

/// Returns what a process says, as one line: `gearctl` prints it.
fn sentence(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars().filter(|each| !each.is_control()).collect()
}

/// One end of the way between GDM and a process.
#[derive(Debug)]
pub(crate) struct Link(UnixStream);

impl Link {
    /// Makes both ends.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Self(ours), theirs.into()))
    }

    /// Takes an end that the process was started with.
    pub(crate) fn of(descriptor: OwnedFd) -> Self {
        Self(descriptor.into())
    }

    /// Sends a message. A process that does not read is waited for by threads of its own alone.
    pub(crate) fn send(
        &self,
        message: Message,
        descriptor: Option<&dyn AsRawFd>,
    ) -> io::Result<()> {
        let bytes = message.bytes();
        let descriptors: Vec<RawFd> = descriptor.iter().map(|one| one.as_raw_fd()).collect();
        let sent = self.0.send_with_fds(&[bytes.as_slice()], &descriptors)?;
        if sent != SIZE {
            return Err(io::Error::other("a message was sent in part"));
        }
        Ok(())
    }

    /// Receives a message, with the descriptor that came along; `None`: the other side has ended.
    pub(crate) fn receive(&self) -> io::Result<Option<(Message, Option<File>)>> {
        let mut bytes = [0; SIZE];
        let (length, descriptor) = sys::receive(&self.0, &mut bytes)?;
        match length {
            0 => Ok(None),
            SIZE => {
                let message = Message::of(&bytes);
                let message = message.ok_or_else(|| io::Error::other("no such message"))?;
                Ok(Some((message, descriptor.map(File::from))))
            }
            _ => Err(io::Error::other("a message came in part")),
        }
    }
}

impl AsRawFd for Link {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
