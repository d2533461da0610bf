//! virtio-vsock (virtio 1.2, 5.10): connections between a guest and programs of the device VM, on
//! unix sockets, as crosvm and Firecracker have them.
//!
//! A program connects to `SOCKET`, writes `CONNECT PORT` and a line feed, and reads `OK` with a
//! port when the guest has accepted. A guest that connects to port P of the device VM (CID 2)
//! reaches the program that listens on `SOCKET_P`. Connections are this GDM's: they end with it,
//! and the guest is told (5.10.6.7).

use std::os::fd::RawFd;
use std::time::Instant;

use virtio_bindings::virtio_ids::VIRTIO_ID_VSOCK;

use self::links::{LONGEST, Links};
use self::opening::Opened;
use self::packet::{HEADER, Header};
use super::{Backend, Confine, Parts, Progress, TURN};
use crate::board::DeviceNode;
use crate::state::Word;
use crate::transport::Identity;
use crate::vring::{Broken, Chain, Vring};

mod link;
mod links;
mod opening;
mod packet;
#[cfg(test)]
pub(crate) mod tests;

/// Type in the register DeviceID (virtio 1.2, 5.10.1).
pub(super) const DEVICE_ID: u32 = VIRTIO_ID_VSOCK;
/// Longest queue that a driver may choose.
pub(super) const QUEUE_SIZE: u16 = 128;
/// Queues: to the guest, from the guest, and events (virtio 1.2, 5.10.2).
pub(super) const QUEUES: usize = 3;
/// Queues of packets: 0 has those to the guest, and 1 those from the guest.
const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;

/// VIRTIO_VSOCK_F_STREAM.
const STREAM_SOCKETS: u64 = 1;
/// VIRTIO_VSOCK_EVENT_TRANSPORT_RESET: all connections are gone.
const TRANSPORT_RESET: [u8; 4] = 0_u32.to_le_bytes();
/// Most bytes of data in a packet to the guest.
const MOST: usize = 0x1_0000;

/// A guest's sockets.
#[derive(Debug)]
pub struct Vsock {
    /// Identifier of the guest (virtio 1.2, 5.10.4), by which it is addressed.
    cid: u64,
    /// Connections of the guest, and the sockets of the device VM.
    links: Links,
    /// A packet from the guest, or to it with its header. Allocated once: a guest under load costs
    /// no memory.
    bytes: Vec<u8>,
    /// A buffer of the guest's that was taken for a packet that there was not.
    spare: Option<Chain>,
    /// The queue to the guest had its turn in this turn of the device, and buffers were left.
    can_receive: bool,
    /// The guest does not know yet that connections of an earlier GDM are gone.
    owes_reset: bool,
}

impl Vsock {
    /// Makes the socket that programs connect to, and what connects to programs. Needs root.
    pub(super) fn claim(path: &str, confine: Confine) -> Result<super::Opened, String> {
        Ok(super::Opened {
            parts: opening::claim(path, confine)?.into(),
            claim: None,
        })
    }

    /// Makes the sockets of a guest of what is open.
    pub(super) fn of(parts: &mut Parts, node: &DeviceNode) -> Result<Self, String> {
        let parts = [parts.take()?, parts.take()?];
        let served = Opened::of(parts).and_then(|opened| Self::serving(node.cid.into(), opened));
        served.map_err(|error| error.to_string())
    }

    /// Serves a guest by sockets that are open.
    fn serving(cid: u64, opened: Opened) -> std::io::Result<Self> {
        Ok(Self {
            cid,
            links: Links::new(cid, opened)?,
            bytes: vec![0; LONGEST.max(HEADER + MOST)],
            spare: None,
            can_receive: false,
            owes_reset: false,
        })
    }

    /// Passes packets to the guest.
    fn receive(&mut self, ring: &mut Vring) -> Result<Progress, Broken> {
        let now = Instant::now();
        self.can_receive = true;
        for _ in 0..TURN {
            if !self.links.has_news() {
                return Ok(Progress::Waits);
            }
            let Some(chain) = self.take_room(ring)? else {
                return Ok(Progress::Drained);
            };
            let room = (chain.writable.length() as usize - HEADER).min(MOST);
            let (header, data) = self.bytes.split_at_mut(HEADER);
            let data = data.get_mut(..room).unwrap_or_default();
            let Some(packet) = self.links.next(data, now) else {
                self.spare = Some(chain);
                return Ok(Progress::Waits);
            };
            header.copy_from_slice(&packet.to_bytes());
            let length = HEADER + packet.length as usize;
            let bytes = self.bytes.get(..length).unwrap_or_default();
            let written = chain.writable.write(ring.memory(), 0, bytes);
            ring.state().count(Word::BytesIn, packet.length.into());
            ring.complete(chain.head, written as u64)?;
        }
        Ok(Progress::More)
    }

    /// Takes a buffer for a packet; `None` if the guest has none.
    fn take_room(&mut self, ring: &mut Vring) -> Result<Option<Chain>, Broken> {
        if let Some(chain) = self.spare.take() {
            return Ok(Some(chain));
        }
        let mut chain = Chain::default();
        self.can_receive = ring.take(&mut chain)?;
        if !self.can_receive {
            return Ok(None);
        }
        // planted: a packet's buffer has no room for its header
        match chain.writable.length() >= HEADER as u64 {
            true => Ok(Some(chain)),
            false => Err(Broken::Request),
        }
    }

    /// Takes packets of the guest's.
    fn transmit(&mut self, ring: &mut Vring) -> Result<Progress, Broken> {
        let mut chain = Chain::default();
        let now = Instant::now();
        let mut progress = Progress::More;
        for _ in 0..TURN {
            if self.links.is_choked() {
                progress = Progress::Waits;
                break;
            }
            if !ring.take(&mut chain)? {
                progress = Progress::Drained;
                break;
            }
            self.take_packet(&chain, ring, now);
            ring.complete(chain.head, 0)?;
        }
        ring.state()
            .count(Word::Errors, core::mem::take(&mut self.links.errors));
        // The queue to the guest had its turn before these packets made news. A guest without such
        // a queue, or without buffers in it, must not keep this thread busy.
        // planted: a guest without a queue for packets keeps a thread busy
        let can_receive = core::mem::take(&mut self.can_receive);
        let goes_on = can_receive && self.links.has_news();
        Ok(if goes_on { Progress::More } else { progress })
    }

    /// Takes a packet, whose header is copied once.
    fn take_packet(&mut self, chain: &Chain, ring: &Vring, now: Instant) {
        let mut header = [0; HEADER];
        if chain.readable.read(ring.memory(), 0, &mut header) != HEADER {
            self.links.errors += 1;
            return;
        }
        let header = Header::from_bytes(&header);
        let length = (header.length as usize).min(LONGEST);
        let data = self.bytes.get_mut(..length).unwrap_or_default();
        let length = chain.readable.read(ring.memory(), HEADER as u64, data);
        let data = self.bytes.get(..length).unwrap_or_default();
        ring.state().count(Word::BytesOut, length as u64);
        self.links.packet(&header, data, now);
    }

    /// Tells the guest that the connections of an earlier GDM are gone.
    fn tell(&mut self, ring: &mut Vring) -> Result<Progress, Broken> {
        if !self.owes_reset {
            return Ok(Progress::Waits);
        }
        let mut chain = Chain::default();
        if !ring.take(&mut chain)? {
            return Ok(Progress::Drained);
        }
        let written = chain.writable.write(ring.memory(), 0, &TRANSPORT_RESET);
        if written != TRANSPORT_RESET.len() {
            return Err(Broken::Request);
        }
        self.owes_reset = false;
        ring.complete(chain.head, written as u64)?;
        Ok(Progress::Waits)
    }
}

impl Backend for Vsock {
    fn identity(&self) -> Identity {
        Identity {
            device_id: DEVICE_ID,
            features: STREAM_SOCKETS,
            dependencies: &[],
            queue_sizes: vec![QUEUE_SIZE; QUEUES],
            config: self.cid.to_le_bytes().to_vec(),
        }
    }

    fn activate(&mut self, _features: u64) -> Result<(), String> {
        self.links.has_driver = true;
        Ok(())
    }

    fn take_over(&mut self) {
        // planted: a guest is not told that its connections are gone
        self.owes_reset = true;
    }

    fn reset(&mut self) {
        self.links.clear();
        self.links.has_driver = false;
        self.spare = None;
        self.can_receive = false;
        self.owes_reset = false;
    }

    fn watch(&self) -> Vec<RawFd> {
        vec![self.links.descriptor()]
    }

    fn poll(&mut self) {
        self.links.poll(Instant::now());
    }

    fn process(&mut self, queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        match queue {
            RECEIVE => self.receive(ring),
            TRANSMIT => self.transmit(ring),
            _ => self.tell(ring),
        }
    }
}
