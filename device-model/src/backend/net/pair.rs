//! A pair of queues of a network card: one by which the guest receives, and one by which it sends.

use std::fs::File;
use std::io::Read as _;
use std::time::Duration;

use super::link::Link;
use crate::backend::{Progress, TURN};
use crate::rate::Shared;
use crate::state::Word;
use crate::sys::{self, Direction};
use crate::vring::{Broken, Chain, Used, Vring};

/// `struct virtio_net_hdr_mrg_rxbuf`.
pub(super) const HEADER: usize = 12;
/// Offset of the number of buffers in it.
const BUFFERS_AT: usize = 10;
/// Longest frame with its header: a segmented packet of 64 KiB.
/// Between them are the Ethernet header (14 bytes) and a VLAN tag (4 bytes).
const MOST: usize = HEADER + 14 + 4 + 0x1_0000;
/// Most requests that one frame is spread over.
const MOST_CHAINS: usize = 64;

/// State that the pairs of a card share.
#[derive(Debug)]
pub(super) struct Common {
    /// Whether the link is up: as the tap device is, or as a person has ordered.
    pub(super) link: Link,
    /// Whether a frame may use several requests (VIRTIO_NET_F_MRG_RXBUF).
    pub(super) merge: bool,
    /// Limits of what the guest sends, and of what it receives.
    sending: Shared,
    receiving: Shared,
    /// Where a frame of the guest's is in this process, for the kernel.
    vectors: Vec<libc::iovec>,
}

// SAFETY: the vectors are filled and used within one request; between requests they mean nothing.
unsafe impl Send for Common {}

impl Common {
    /// Makes what the pairs of a card with these limits and this link share.
    pub(super) fn new(limits: [u32; 3], link: Link) -> Self {
        Self {
            link,
            merge: false,
            sending: Shared::new(limits),
            receiving: Shared::new(limits),
            vectors: Vec::new(),
        }
    }
}

/// A pair of queues.
#[derive(Debug)]
pub(super) struct Pair {
    /// Number of the pair, by which it stands in the lines of the limits.
    number: usize,
    /// Frame of the guest's that was taken and waits for its share of the limits.
    held: Option<Chain>,
    /// The frame that comes in has its share.
    is_admitted: bool,
    /// The frame that comes in, with its header.
    frame: Vec<u8>,
    /// Bytes of that frame; 0: there is none.
    frame_length: usize,
    /// Taken for receiving, and not completed yet.
    chains: Vec<Chain>,
    /// The frame's buffers, between two frames those of the last one.
    used: Vec<Used>,
}

impl Pair {
    /// Makes a pair without any frame.
    pub(super) fn new(number: usize) -> Self {
        Self {
            number,
            held: None,
            is_admitted: false,
            // Allocated once: a guest under load costs no memory.
            frame: vec![0; MOST],
            frame_length: 0,
            chains: Vec::new(),
            used: Vec::with_capacity(MOST_CHAINS),
        }
    }

    /// Forgets all requests: chains of the old rings mean nothing to the driver that comes next.
    pub(super) fn reset(&mut self, common: &mut Common) {
        self.close(common, true);
        self.close(common, false);
    }

    /// Forgets the requests of one queue, by which the guest receives or sends, and their share of
    /// the limits: other pairs would wait for a queue that has no turn any longer.
    pub(super) fn close(&mut self, common: &mut Common, receives: bool) {
        if receives {
            self.drop_frame(common);
            self.chains.clear();
        } else {
            self.held = None;
            common.sending.leave(self.number);
        }
    }

    /// Lets the frame that came in go, with its share of the limits.
    pub(super) fn drop_frame(&mut self, common: &mut Common) {
        self.frame_length = 0;
        self.is_admitted = false;
        common.receiving.leave(self.number);
    }

    /// Returns for how long the frames that wait for their share of the limits have to wait.
    pub(super) fn pauses(&self, common: &Common) -> impl Iterator<Item = Duration> + use<> {
        let sends = self.held.as_ref().and_then(|_| common.sending.pause());
        let waits = self.frame_length > 0 && !self.is_admitted;
        let receives = common.receiving.pause().filter(|_| waits);
        sends.into_iter().chain(receives)
    }

    /// Passes frames to the guest. A frame that found no buffers stays, and the tap device's queue
    /// behind it: what is too much is dropped there, as by any card.
    pub(super) fn receive(
        &mut self,
        common: &mut Common,
        wire: &File,
        ring: &mut Vring,
    ) -> Result<Progress, Broken> {
        for _ in 0..TURN {
            self.read_frame(common, wire);
            if self.frame_length < HEADER {
                self.frame_length = 0;
                return Ok(Progress::Waits);
            }
            if !self.may_receive(common) {
                return Ok(held_back(&common.receiving));
            }
            if !self.deliver(common, ring)? {
                return Ok(Progress::Drained);
            }
            self.drop_frame(common);
        }
        Ok(Progress::More)
    }

    /// Reads the next frame, unless there is one. A frame of a link that is down is lost.
    fn read_frame(&mut self, common: &Common, mut wire: &File) {
        while self.frame_length == 0 {
            // An error says that no frame waits, or that the tap device is down: either ends the
            // turn.
            let length = wire.read(&mut self.frame).unwrap_or(0);
            // planted: a link that is down receives
            if length == 0 || common.link.is_up() {
                self.frame_length = length;
                return;
            }
        }
    }

    /// Tells whether the frame that came in may pass now. The tap device drops what is too much, as
    /// any card does.
    fn may_receive(&mut self, common: &mut Common) -> bool {
        let bytes = self.frame_length.saturating_sub(HEADER) as u64;
        self.is_admitted = self.is_admitted || common.receiving.admit(self.number, bytes);
        self.is_admitted
    }

    /// Gives the frame to the guest; false if it has too few buffers now.
    fn deliver(&mut self, common: &Common, ring: &mut Vring) -> Result<bool, Broken> {
        let Some(count) = self.take_room(common, ring)? else {
            return Ok(false);
        };
        // No number of buffers is enough: the frame is lost, and the next one is not held up.
        if count == 0 {
            return Ok(true);
        }
        self.set_buffer_count(count as u16);
        let mut rest = self.frame.get(..self.frame_length).unwrap_or_default();
        self.used.clear();
        for chain in self.chains.drain(..count.min(self.chains.len())) {
            let written = chain.writable.write(ring.memory(), 0, rest);
            rest = rest.get(written..).unwrap_or_default();
            ring.state().count(Word::BytesIn, written as u64);
            self.used.push(Used::new(chain.head, written as u64));
        }
        ring.complete_all(&self.used)?;
        Ok(true)
    }

    /// Completes the frame's header: the tap device does not know the number of buffers (virtio 1.2,
    /// 5.1.6.4).
    fn set_buffer_count(&mut self, count: u16) {
        let field = self.frame.get_mut(BUFFERS_AT..HEADER).unwrap_or_default();
        for (to, from) in field.iter_mut().zip(count.to_le_bytes()) {
            *to = from;
        }
    }

    /// Returns how many requests the frame needs, all taken. `None`: there are too few yet;
    /// those taken are kept. 0: they will never be enough, the frame is dropped.
    fn take_room(&mut self, common: &Common, ring: &mut Vring) -> Result<Option<usize>, Broken> {
        let most = if common.merge { MOST_CHAINS } else { 1 };
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
    pub(super) fn transmit(
        &mut self,
        common: &mut Common,
        wire: &File,
        ring: &mut Vring,
    ) -> Result<Progress, Broken> {
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
            if !common.sending.admit(self.number, cost) {
                self.held = Some(chain);
                return Ok(held_back(&common.sending));
            }
            // A frame that the tap device does not take is lost, as on any wire.
            let (word, count) = match send(common, wire, ring, &chain) {
                Some(length) => (Word::BytesOut, length),
                None => (Word::Errors, 1),
            };
            ring.state().count(word, count);
            ring.complete(chain.head, 0)?;
        }
        Ok(Progress::More)
    }
}

/// Returns when the queue of a frame that waits for its share of the limits is looked at again: when
/// the limits say, or at once, as nobody has asked them while another pair came first.
fn held_back(limits: &Shared) -> Progress {
    match limits.pause() {
        Some(_) => Progress::Waits,
        None => Progress::More,
    }
}

/// Sends a frame out of the guest's memory; returns the frame's length if the tap device took
/// it. The kernel copies the frame during the call: what the guest changes later is not sent.
fn send(common: &mut Common, wire: &File, ring: &Vring, chain: &Chain) -> Option<u64> {
    let length = chain.readable.length();
    // No offload makes a frame longer: the kernel is not asked to copy it.
    // planted: a link that is down sends
    if length > MOST as u64 || !common.link.is_up() {
        return None;
    }
    let vectors = &mut common.vectors;
    chain.readable.vectors(ring.memory(), 0, length, vectors);
    let sent = sys::stream(wire, Direction::Write, vectors);
    sent.is_ok().then_some(length)
}
