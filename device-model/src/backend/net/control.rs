//! The control queue of a network card (virtio 1.2, 5.1.6.5): how many pairs of queues the driver
//! uses.
//!
//! A command that the card does not know, or cannot do, is answered with VIRTIO_NET_ERR and changes
//! nothing. A request that has no room for the answer breaks the device.

use std::io;

use virtio_bindings::bindings::virtio_net::{
    VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, VIRTIO_NET_ERR, VIRTIO_NET_OK,
};

use super::Net;
use crate::backend::{Progress, TURN};
use crate::state::Word;
use crate::vring::{Broken, Chain, Vring};

/// Class and command of the one that is known.
const SET_PAIRS: [u8; 2] = [
    VIRTIO_NET_CTRL_MQ as u8,
    VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET as u8,
];
/// Bytes of that command.
const COMMAND: usize = 4;

impl Net {
    /// Does the driver's commands.
    pub(super) fn serve_control(&mut self, ring: &mut Vring) -> Result<Progress, Broken> {
        for _ in 0..TURN {
            let mut chain = Chain::default();
            if !ring.take(&mut chain)? {
                // Queues that were attached are watched before the thread sleeps.
                return Ok(match self.is_watch_old {
                    true => Progress::More,
                    false => Progress::Drained,
                });
            }
            if chain.writable.is_empty() {
                return Err(Broken::Request);
            }
            let status = match self.command(ring, &chain) {
                Ok(()) => VIRTIO_NET_OK,
                Err(_) => {
                    ring.state().count(Word::Errors, 1);
                    VIRTIO_NET_ERR
                }
            };
            ring.answer(&chain, 0, status as u8, 0)?;
        }
        Ok(Progress::More)
    }

    /// Does a command; an error changes nothing.
    fn command(&mut self, ring: &Vring, chain: &Chain) -> io::Result<()> {
        let mut bytes = [0; COMMAND];
        let read = chain.readable.read(ring.memory(), 0, &mut bytes);
        let [class, command, low, high] = bytes;
        let pairs = usize::from(u16::from_le_bytes([low, high]));
        let is_whole = read == COMMAND && chain.readable.length() == COMMAND as u64;
        // planted: a card takes any number of pairs
        let is_known = [class, command] == SET_PAIRS && (1..=self.known).contains(&pairs);
        // A driver without VIRTIO_NET_F_MQ has no such command.
        if !is_whole || !is_known || self.known == 1 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.choose(pairs)
    }
}
