//! virtio-net (virtio 1.2, 5.1) on a tap device, which the init script bridges.
//!
//! Frames leave the guest without a copy and enter it with one. Checksum and
//! segmentation offloads are the tap device's, which checks the headers that come
//! from the guest as it checks those of any process.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use virtio_bindings::bindings::virtio_net::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO6,
    VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_MAC, VIRTIO_NET_F_MRG_RXBUF,
    VIRTIO_NET_F_MTU, VIRTIO_NET_F_STATUS,
};
use virtio_bindings::virtio_ids::VIRTIO_ID_NET;

use super::{Backend, Opened, Parts, Progress, TURN};
use crate::address::Mac;
use crate::board::DeviceNode;
use crate::order::{Answer, Order};
use crate::rate::Limits;
use crate::state::{DeviceState, Word};
use crate::sys::{self, Direction};
use crate::transport::{Dependency, Identity};
use crate::vring::{Broken, Chain, Vring};
use link::Link;

mod link;
#[cfg(test)]
mod tests;

/// Type in the register DeviceID (virtio 1.2, 5.1.1).
pub(super) const DEVICE_ID: u32 = VIRTIO_ID_NET;
/// Longest queue that a driver may choose.
pub(super) const QUEUE_SIZE: u16 = 256;
/// Dependencies of the offered features (virtio 1.2, 5.1.3.1).
pub(crate) const DEPENDENCIES: &[Dependency] = &[
    needs(VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_CSUM),
    needs(VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_CSUM),
    needs(VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_CSUM),
    needs(VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_CSUM),
];

/// Queue 0 receives, queue 1 transmits (virtio 1.2, 5.1.2).
const RECEIVE: usize = 0;
/// Offloads of TUNSETOFFLOAD (Linux, include/uapi/linux/if_tun.h): frames that the tap device may
/// pass to the guest without a checksum, or unsegmented.
const TUN_F_CSUM: u32 = 1;
const TUN_F_TSO4: u32 = 2;
const TUN_F_TSO6: u32 = 4;
/// `struct virtio_net_hdr_mrg_rxbuf`.
const HEADER: usize = 12;
/// Offset of the number of buffers in it.
const BUFFERS_AT: usize = 10;
/// Longest frame with its header: a segmented packet of 64 KiB.
/// Between them are the Ethernet header (14 bytes) and a VLAN tag (4 bytes).
const MOST: usize = HEADER + 14 + 4 + 0x1_0000;
/// Most requests that one frame is spread over.
const MOST_CHAINS: usize = 64;

/// A network card.
#[derive(Debug)]
pub struct Net {
    /// A read or a write is one frame with a `virtio_net_hdr_mrg_rxbuf` before it.
    tap: File,
    /// Address that the driver reads in the configuration.
    mac: Mac,
    /// Longest packet that the driver is told of; 0: none.
    mtu: u16,
    /// Whether the link is up: as the tap device is, or as a person has ordered.
    link: Link,
    /// Limits of what the guest sends, and of what it receives.
    sending: Limits,
    receiving: Limits,
    /// Frame of the guest's that was taken and waits for its share of the limits.
    held: Option<Chain>,
    /// The frame that comes in has its share.
    is_admitted: bool,
    /// Whether a frame may use several requests (VIRTIO_NET_F_MRG_RXBUF).
    merge: bool,
    /// The frame that comes in, with its header.
    frame: Vec<u8>,
    /// Bytes of that frame; 0: there is none.
    frame_length: usize,
    /// Taken for receiving, and not completed yet.
    chains: Vec<Chain>,
    /// Where a frame of the guest's is in this process, for the kernel.
    vectors: Vec<libc::iovec>,
}

// SAFETY: the vectors are filled and used within one request; between requests they mean nothing.
unsafe impl Send for Net {}

impl Net {
    /// Attaches to the tap device of the manifest's card, for the process that serves it.
    pub(super) fn claim(node: &DeviceNode) -> Result<Opened, String> {
        let name = &node.backend;
        let in_words = |error: std::io::Error| format!("tap device {name}: {error}");
        let tap = open_tun()?;
        sys::open_tap(&tap, name, HEADER).map_err(in_words)?;
        if node.mtu > 0 {
            // A card must not pass on longer packets than it announces (virtio 1.2, 5.1.4.1).
            sys::set_mtu(name, node.mtu).map_err(in_words)?;
        }
        let parts = std::iter::once(tap).chain(link::flags_of(name));
        Ok(Opened {
            parts: parts.map(Into::into).collect(),
            claim: None,
        })
    }

    /// Makes the card of a tap device that is attached.
    pub(super) fn of(parts: &mut Parts, node: &DeviceNode) -> Result<Self, String> {
        let tap = parts.take()?.into();
        let flags = parts.take_last().map(Into::into);
        Ok(Self::over(tap, node, Link::by(flags)))
    }

    /// Makes the card over an open tap device.
    fn over(tap: File, node: &DeviceNode, link: Link) -> Self {
        Self {
            tap,
            mac: node.mac,
            mtu: node.mtu,
            link,
            sending: Limits::new(node.limits),
            receiving: Limits::new(node.limits),
            held: None,
            is_admitted: false,
            merge: false,
            // Allocated once: a guest under load costs no memory.
            frame: vec![0; MOST],
            frame_length: 0,
            chains: Vec::new(),
            vectors: Vec::new(),
        }
    }

    /// Reads the next frame, unless there is one. A frame of a link that is down is lost.
    fn read_frame(&mut self) {
        while self.frame_length == 0 {
            // An error says that no frame waits, or that the tap device is down: either ends the
            // turn.
            let length = self.tap.read(&mut self.frame).unwrap_or(0);
            // planted: a link that is down receives
            if length == 0 || self.link.is_up() {
                self.frame_length = length;
                return;
            }
        }
    }

    /// Tells whether the frame that came in may pass now. The tap device drops what is too much, as
    /// any card does.
    fn may_receive(&mut self) -> bool {
        let bytes = self.frame_length.saturating_sub(HEADER) as u64;
        self.is_admitted = self.is_admitted || self.receiving.admit(bytes);
        self.is_admitted
    }

    /// Passes frames to the guest. A frame that found no buffers stays, and the tap device's queue
    /// behind it: what is too much is dropped there, as by any card.
    fn receive(&mut self, ring: &mut Vring) -> Result<Progress, Broken> {
        for _ in 0..TURN {
            self.read_frame();
            if self.frame_length < HEADER {
                self.frame_length = 0;
                return Ok(Progress::Waits);
            }
            if !self.may_receive() {
                return Ok(Progress::Waits);
            }
            if !self.deliver(ring)? {
                return Ok(Progress::Drained);
            }
            self.drop_frame();
        }
        Ok(Progress::More)
    }

    /// Lets the frame that came in go, with its share of the limits.
    fn drop_frame(&mut self) {
        self.frame_length = 0;
        self.is_admitted = false;
    }

    /// Gives the frame to the guest; false if it has too few buffers now.
    fn deliver(&mut self, ring: &mut Vring) -> Result<bool, Broken> {
        let Some(count) = self.take_room(ring)? else {
            return Ok(false);
        };
        // No number of buffers is enough: the frame is lost, and the next one is not held up.
        if count == 0 {
            return Ok(true);
        }
        self.set_buffer_count(count as u16);
        let mut rest = self.frame.get(..self.frame_length).unwrap_or_default();
        for chain in self.chains.drain(..count.min(self.chains.len())) {
            let written = chain.writable.write(ring.memory(), 0, rest);
            rest = rest.get(written..).unwrap_or_default();
            ring.state().count(Word::BytesIn, written as u64);
            ring.complete(chain.head, written as u64)?;
        }
        Ok(true)
    }

    /// Completes the frame's header: the tap device does not know the number of buffers (virtio
    /// 1.2,
    /// 5.1.6.4).
    fn set_buffer_count(&mut self, count: u16) {
        let field = self.frame.get_mut(BUFFERS_AT..HEADER).unwrap_or_default();
        for (to, from) in field.iter_mut().zip(count.to_le_bytes()) {
            *to = from;
        }
    }

    /// Returns how many requests the frame needs, all taken. `None`: there are too few yet;
    /// those taken are kept. 0: they will never be enough, the frame is dropped.
    fn take_room(&mut self, ring: &mut Vring) -> Result<Option<usize>, Broken> {
        let most = if self.merge { MOST_CHAINS } else { 1 };
        let mut room = 0;
        // Chains that were taken in an earlier turn come first: their order is the driver's.
        for index in 0..most {
            if self.chains.len() <= index {
                let mut chain = Chain::default();
                if !ring.take(&mut chain)? {
                    return Ok(None);
                }
                // A driver owes room for the header in each buffer (virtio 1.2, 5.1.6.3.1).
                if chain.writable.length() < HEADER as u64 {
                    return Err(Broken::Request);
                }
                self.chains.push(chain);
            }
            let chain = self.chains.get(index);
            room += chain.map_or(0, |chain| chain.writable.length());
            if room >= self.frame_length as u64 {
                return Ok(Some(index + 1));
            }
        }
        Ok(Some(0))
    }

    /// Takes frames from the guest.
    fn transmit(&mut self, ring: &mut Vring) -> Result<Progress, Broken> {
        for _ in 0..TURN {
            let mut chain = Chain::default();
            match self.held.take() {
                Some(held) => chain = held,
                None if ring.take(&mut chain)? => {}
                None => return Ok(Progress::Drained),
            }
            let bytes = chain.readable.length().saturating_sub(HEADER as u64);
            // What is too long for the tap device is lost, and costs a frame alone.
            let cost = if bytes > MOST as u64 { 0 } else { bytes };
            // planted: a guest sends as fast as it likes
            if !self.sending.admit(cost) {
                self.held = Some(chain);
                return Ok(Progress::Waits);
            }
            // A frame that the tap device does not take is lost, as on any wire.
            let (word, count) = match self.send(ring, &chain) {
                Some(length) => (Word::BytesOut, length),
                None => (Word::Errors, 1),
            };
            ring.state().count(word, count);
            ring.complete(chain.head, 0)?;
        }
        Ok(Progress::More)
    }

    /// Sends a frame out of the guest's memory; returns the frame's length if the tap device took
    /// it. The kernel copies the frame during the call: what the guest changes later is not sent.
    fn send(&mut self, ring: &Vring, chain: &Chain) -> Option<u64> {
        let length = chain.readable.length();
        // No offload makes a frame longer: the kernel is not asked to copy it.
        // planted: a link that is down sends
        if length > MOST as u64 || !self.link.is_up() {
            return None;
        }
        let vectors = &mut self.vectors;
        chain.readable.vectors(ring.memory(), 0, length, vectors);
        let sent = sys::stream(&self.tap, Direction::Write, vectors);
        sent.is_ok().then_some(length)
    }
}

/// Reads and writes return at once: a thread that serves a guest waits by `epoll` alone.
fn open_tun() -> Result<File, String> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK);
    let tun = options.open("/dev/net/tun");
    tun.map_err(|error| format!("/dev/net/tun: {error}"))
}

/// Returns the mask of a feature, which the specification gives by its number.
const fn bit(feature: u32) -> u64 {
    1 << feature
}

/// Returns the dependency of a feature on one other.
const fn needs(feature: u32, other: u32) -> Dependency {
    Dependency {
        feature,
        needs_one_of: bit(other),
    }
}

/// Returns `struct virtio_net_config` (virtio 1.2, 5.1.4).
fn config(mac: Mac, link_is_up: bool, mtu: u16) -> Vec<u8> {
    let mut config = mac.to_vec();
    config.extend(u16::from(link_is_up).to_le_bytes());
    config.extend(1_u16.to_le_bytes()); // pairs of queues
    config.extend(mtu.to_le_bytes());
    config
}

impl Backend for Net {
    fn keep(&mut self, state: DeviceState) {
        self.link.keep(state);
    }

    fn identity(&self) -> Identity {
        let mtu = if self.mtu > 0 {
            bit(VIRTIO_NET_F_MTU)
        } else {
            0
        };
        Identity {
            device_id: DEVICE_ID,
            features: mtu
                | bit(VIRTIO_NET_F_MAC)
                | bit(VIRTIO_NET_F_STATUS)
                | bit(VIRTIO_NET_F_MRG_RXBUF)
                | bit(VIRTIO_NET_F_CSUM)
                | bit(VIRTIO_NET_F_GUEST_CSUM)
                | bit(VIRTIO_NET_F_HOST_TSO4)
                | bit(VIRTIO_NET_F_HOST_TSO6)
                | bit(VIRTIO_NET_F_GUEST_TSO4)
                | bit(VIRTIO_NET_F_GUEST_TSO6),
            dependencies: DEPENDENCIES,
            // One pair of queues: a guest with several vCPUs shares it.
            queue_sizes: vec![QUEUE_SIZE; 2],
            config: config(self.mac, self.link.is_up(), self.mtu),
        }
    }

    fn activate(&mut self, features: u64) -> Result<(), String> {
        // The header has the field in either case: VERSION_1 makes it part of each (virtio 1.2,
        // 5.1.6.1).
        self.merge = features & bit(VIRTIO_NET_F_MRG_RXBUF) != 0;
        let pairs = [
            (VIRTIO_NET_F_GUEST_CSUM, TUN_F_CSUM),
            (VIRTIO_NET_F_GUEST_TSO4, TUN_F_TSO4),
            (VIRTIO_NET_F_GUEST_TSO6, TUN_F_TSO6),
        ];
        let accepted = pairs
            .iter()
            .filter(|(feature, _)| features & bit(*feature) != 0);
        let flags = accepted.fold(0, |flags, (_, flag)| flags | flag);
        // A guest that takes no unsegmented frames gets them segmented by the tap device's kernel.
        sys::set_offload(&self.tap, flags)
            .map_err(|error| format!("tap device: offloads {flags:#x} refused: {error}"))
    }

    // Chains of the old rings mean nothing to the driver that comes next.
    fn reset(&mut self) {
        self.drop_frame();
        self.chains.clear();
        self.held = None;
    }

    fn news_of_config(&mut self) -> Option<(Vec<u8>, bool)> {
        let is_up = self.link.news()?;
        Some((config(self.mac, is_up, self.mtu), true))
    }

    fn pause(&self) -> Option<Duration> {
        let sends = self.held.as_ref().and_then(|_| self.sending.pause());
        let waits = self.frame_length > 0 && !self.is_admitted;
        let receives = self.receiving.pause().filter(|_| waits);
        sends.into_iter().chain(receives).min()
    }

    fn obey(&mut self, order: Order) -> Answer {
        match order {
            Order::Link(is_up) => Ok(self.link.order(is_up).into()),
            Order::Detach | Order::Attach(_) => Err(
                "a network card has no medium; `gearctl device link` takes its link down".into(),
            ),
            Order::Resize => Err("a network card has no size".into()),
        }
    }

    fn poll(&mut self) {
        self.link.poll();
    }

    fn watch(&self) -> Vec<RawFd> {
        vec![self.tap.as_raw_fd()]
    }

    fn process(&mut self, queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        if queue == RECEIVE {
            self.receive(ring)
        } else {
            self.transmit(ring)
        }
    }
}
