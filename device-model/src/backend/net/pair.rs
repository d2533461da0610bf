//! A pair of queues of a network card: one by which the guest receives, and one by which it sends.
//!
//! The kernel stores a frame that comes in into the guest's buffers, as far as those reach that the
//! pair has taken ahead, and stores the rest into memory of this process. No frame is lost by a
//! guess that was too small, and none is seen before all of it is in the guest's buffers: the used
//! index tells of all buffers of a frame at once.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
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
/// Vectors of the guest's buffers that the kernel is given for a frame; it takes 1,024 at most.
const MOST_VECTORS: usize = 256;
/// Part by which a guess of a frame's length shrinks with each shorter frame. A guess that is too
/// large costs a look at each buffer, and one that is too small a copy of the rest.
const SHRINK: usize = 8;

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
    /// The thread tells of news of the tap device.
    pub(super) is_told: bool,
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
            is_told: false,
            vectors: Vec::new(),
        }
    }

    /// Returns how many requests a frame may use.
    const fn most_chains(&self) -> usize {
        if self.merge { MOST_CHAINS } else { 1 }
    }
}

/// A pair of queues.
#[derive(Debug)]
pub(super) struct Pair {
    /// Number of the pair, by which it stands in the lines of the limits.
    number: usize,
    /// The tap device's queue was empty, and the thread has not told of news since: to read is a
    /// call of the kernel for nothing.
    pub(super) is_dry: bool,
    /// Frame of the guest's that was taken and waits for its share of the limits.
    held: Option<Box<Chain>>,
    /// The frame that comes in has its share.
    is_admitted: bool,
    /// The frame that comes in, with its header, from the first byte on that has no place in the
    /// guest's buffers yet.
    frame: Vec<u8>,
    /// Bytes of that frame; 0: there is none.
    frame_length: usize,
    /// Bytes of it that are in the guest's buffers.
    placed: usize,
    /// Length that the next frame is likely to have.
    likely: usize,
    /// Taken for receiving, and not completed yet.
    chains: VecDeque<Box<Chain>>,
    /// Chains without a request: what they have allocated serves for the next requests.
    spare: VecDeque<Box<Chain>>,
    /// The frame's buffers, between two frames those of the last one.
    used: Vec<Used>,
}

impl Pair {
    /// Makes a pair without any frame.
    pub(super) fn new(number: usize) -> Self {
        Self {
            number,
            is_dry: false,
            held: None,
            is_admitted: false,
            // Allocated once: a guest under load costs no memory.
            frame: vec![0; MOST],
            frame_length: 0,
            placed: 0,
            likely: HEADER,
            chains: VecDeque::new(),
            spare: VecDeque::new(),
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
            self.is_dry = false;
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
        self.placed = 0;
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
            self.read_frame(common, wire, ring)?;
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
    fn read_frame(
        &mut self,
        common: &mut Common,
        wire: &File,
        ring: &mut Vring,
    ) -> Result<(), Broken> {
        while self.frame_length == 0 && !self.is_dry {
            let room = self.offer(common, ring)?;
            // Nothing else uses the memory of this pair during the call.
            let own = libc::iovec {
                iov_base: self.frame.as_mut_ptr().cast(),
                iov_len: self.frame.len(),
            };
            common.vectors.push(own);
            // No frame waits, the tap device is down, or this frame cannot be had: each ends the
            // turn. Only the first is news that the thread waits for.
            let read = sys::stream(wire, Direction::Read, &common.vectors);
            let is_empty = matches!(&read, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
            let length = read.unwrap_or(0);
            // planted: a link that is down receives
            if length == 0 || common.link.is_up() {
                self.is_dry = is_empty && common.is_told;
                self.frame_length = length;
                self.placed = length.min(room);
                if length > 0 {
                    let less = self.likely - self.likely / SHRINK;
                    self.likely = length.max(less);
                }
                return Ok(());
            }
        }
        Ok(())
    }

    /// Replaces the vectors by buffers of the guest's for a frame of the likely length; returns how
    /// many bytes they hold. A frame that the guest must not see, or not yet, has none.
    fn offer(&mut self, common: &mut Common, ring: &mut Vring) -> Result<usize, Broken> {
        common.vectors.clear();
        let mut room = 0;
        // planted: a guest sees frames before their time
        if !common.link.is_up() || common.receiving.has_limits() {
            return Ok(room);
        }
        for index in 0..common.most_chains() {
            if room >= self.likely || !self.take_chain(index, ring)? {
                break;
            }
            let buffers = self.chains.get(index).map(|chain| &chain.writable);
            let vectors = &mut common.vectors;
            let added = buffers.map_or(0, |buffers| buffers.add_vectors(vectors, MOST_VECTORS));
            room += added;
            // What is not in a vector has to follow in memory of this process, and nothing else.
            if buffers.is_none_or(|buffers| added as u64 != buffers.length()) {
                break;
            }
        }
        Ok(room)
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
        let memory = ring.memory();
        let mut begin = 0_usize;
        self.used.clear();
        for chain in self.chains.iter().take(count) {
            let room = usize::try_from(chain.writable.length()).unwrap_or(usize::MAX);
            let end = self.frame_length.min(begin.saturating_add(room));
            let from = self.placed.max(begin);
            let rest = from - self.placed..end.saturating_sub(self.placed);
            if let Some(rest) = self.frame.get(rest).filter(|rest| !rest.is_empty()) {
                chain.writable.write(memory, (from - begin) as u64, rest);
            }
            self.used.push(Used::new(chain.head, (end - begin) as u64));
            begin = end;
        }
        if let Some(first) = self.chains.front() {
            // The tap device does not know the number of buffers (virtio 1.2, 5.1.6.4).
            let count = (count as u16).to_le_bytes();
            first.writable.write(memory, BUFFERS_AT as u64, &count);
        }
        ring.state().count(Word::BytesIn, begin as u64);
        for _ in 0..count {
            self.spare.extend(self.chains.pop_front());
        }
        ring.complete_all(&self.used)?;
        Ok(true)
    }

    /// Returns how many requests the frame needs, all taken. `None`: there are too few yet;
    /// those taken are kept. 0: they will never be enough, the frame is dropped.
    fn take_room(&mut self, common: &Common, ring: &mut Vring) -> Result<Option<usize>, Broken> {
        let mut room = 0;
        // Chains that were taken in an earlier turn come first: their order is the driver's. A ring
        // holds no more of them than it has places.
        for index in 0..common.most_chains().min(ring.size().into()) {
            if !self.take_chain(index, ring)? {
                return Ok(None);
            }
            let chain = self.chains.get(index);
            room += chain.map_or(0, |chain| chain.writable.length());
            if room >= self.frame_length as u64 {
                return Ok(Some(index + 1));
            }
        }
        Ok(Some(0))
    }

    /// Takes requests until there is one at this index; false if the driver has made too few
    /// available.
    fn take_chain(&mut self, index: usize, ring: &mut Vring) -> Result<bool, Broken> {
        while self.chains.len() <= index {
            let mut chain = self.spare.pop_back().unwrap_or_default();
            if !ring.take(&mut chain)? {
                self.spare.push_back(chain);
                return Ok(false);
            }
            // A driver owes room for the header in each buffer (virtio 1.2, 5.1.6.3.1).
            if chain.writable.length() < HEADER as u64 {
                return Err(Broken::Request);
            }
            self.chains.push_back(chain);
        }
        Ok(true)
    }

    /// Takes frames from the guest.
    pub(super) fn transmit(
        &mut self,
        common: &mut Common,
        wire: &File,
        ring: &mut Vring,
    ) -> Result<Progress, Broken> {
        for _ in 0..TURN {
            let chain = match self.held.take() {
                Some(held) => held,
                None => {
                    let mut chain = self.spare.pop_back().unwrap_or_default();
                    if !ring.take(&mut chain)? {
                        self.spare.push_back(chain);
                        return Ok(Progress::Drained);
                    }
                    chain
                }
            };
            let bytes = chain.readable.length().saturating_sub(HEADER as u64);
            // What is too long for the tap device is lost, and costs a frame alone.
            let cost = if bytes > MOST as u64 { 0 } else { bytes };
            // planted: a guest sends as fast as it likes
            if !common.sending.admit(self.number, cost) {
                self.held = Some(chain);
                return Ok(held_back(&common.sending));
            }
            // A frame that the tap device does not take is lost, as on any wire.
            let (word, count) = match send(common, wire, &chain) {
                Some(length) => (Word::BytesOut, length),
                None => (Word::Errors, 1),
            };
            ring.state().count(word, count);
            ring.complete(chain.head, 0)?;
            self.spare.push_back(chain);
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
fn send(common: &mut Common, wire: &File, chain: &Chain) -> Option<u64> {
    let length = chain.readable.length();
    // No offload makes a frame longer: the kernel is not asked to copy it.
    // planted: a link that is down sends
    if length > MOST as u64 || !common.link.is_up() {
        return None;
    }
    let vectors = &mut common.vectors;
    chain.readable.vectors(0, length, vectors);
    let sent = sys::stream(wire, Direction::Write, vectors);
    sent.is_ok().then_some(length)
}
