//! virtio-net (virtio 1.2, 5.1) on a tap device, which the init script bridges.
//!
//! This process copies no frame that leaves the guest, and of one that enters the guest at most
//! the end (`pair.rs`). Checksum and segmentation offloads are the tap device's, which checks the
//! headers that come from the guest as it checks those of any process.
//!
//! A card has a queue of the tap device for each pair of its queues. The kernel spreads frames over
//! the queues that are attached, which are those of the pairs that the driver has chosen.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use gear2_protocol::virtio::MAX_QUEUES;
use virtio_bindings::bindings::virtio_net::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_CTRL_VQ, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_TSO4,
    VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_MAC,
    VIRTIO_NET_F_MQ, VIRTIO_NET_F_MRG_RXBUF, VIRTIO_NET_F_MTU, VIRTIO_NET_F_STATUS,
};
use virtio_bindings::virtio_ids::VIRTIO_ID_NET;

use super::{Backend, Opened, Parts, Progress};
use crate::address::Mac;
use crate::board::DeviceNode;
use crate::order::{Answer, Order};
use crate::state::{DeviceState, Word};
use crate::sys::tap;
use crate::transport::{Dependency, Identity};
use crate::vring::{Broken, Vring};
use link::Link;
use pair::{Common, HEADER, Pair};

mod control;
mod link;
mod pair;
#[cfg(test)]
mod tests;

/// Type in the register DeviceID (virtio 1.2, 5.1.1).
pub(super) const DEVICE_ID: u32 = VIRTIO_ID_NET;
/// Longest queue that a driver may choose.
pub(super) const QUEUE_SIZE: u16 = 256;
/// Most pairs of queues of a card: a device has no more queues, one of which is the control queue.
pub(super) const MAX_PAIRS: usize = (MAX_QUEUES - 1) / 2;
/// Dependencies of the offered features (virtio 1.2, 5.1.3.1).
pub(crate) const DEPENDENCIES: &[Dependency] = &[
    needs(VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_CSUM),
    needs(VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_CSUM),
    needs(VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_CSUM),
    needs(VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_CSUM),
    needs(VIRTIO_NET_F_MQ, VIRTIO_NET_F_CTRL_VQ),
];

/// Features of a card with several pairs.
const SEVERAL: u64 = bit(VIRTIO_NET_F_CTRL_VQ) | bit(VIRTIO_NET_F_MQ);
/// Offloads of TUNSETOFFLOAD (Linux, include/uapi/linux/if_tun.h): frames that the tap device may
/// pass to the guest without a checksum, or unsegmented.
const TUN_F_CSUM: u32 = 1;
const TUN_F_TSO4: u32 = 2;
const TUN_F_TSO6: u32 = 4;

/// A network card.
#[derive(Debug)]
pub struct Net {
    /// A queue of the tap device for each pair. A read or a write is one frame with a
    /// `virtio_net_hdr_mrg_rxbuf` before it.
    taps: Vec<File>,
    /// Queues of the tap device that are attached, from the first one on: as many as the driver has
    /// chosen pairs.
    attached: usize,
    /// Whether others are attached than the thread watches.
    is_watch_old: bool,
    pairs: Vec<Pair>,
    /// State that the pairs share.
    common: Common,
    /// Pairs that the driver knows of: one, unless it has accepted VIRTIO_NET_F_MQ.
    known: usize,
    /// Number of the control queue, if the driver has accepted one.
    control: Option<usize>,
    /// Address that the driver reads in the configuration.
    mac: Mac,
    /// Longest packet that the driver is told of; 0: none.
    mtu: u16,
    /// The device's page, which keeps the driver's choice.
    state: Option<DeviceState>,
}

/// Returns how many pairs of queues a card has.
pub(crate) fn pairs_of(node: &DeviceNode) -> usize {
    node.queues.clamp(1, MAX_PAIRS)
}

/// Makes the tap device of the manifest's card, which then outlives this program.
pub(crate) fn make_tap(node: &DeviceNode) -> Result<(), String> {
    let taps = tap::open(&node.backend, pairs_of(node), HEADER)?;
    let kept = taps.first().map_or(Ok(()), tap::persist);
    kept.map_err(|error| format!("tap device {}: {error}", node.backend))
}

impl Net {
    /// Attaches to the tap device of the manifest's card, for the process that serves it.
    pub(super) fn claim(node: &DeviceNode) -> Result<Opened, String> {
        let name = &node.backend;
        let taps = tap::open(name, pairs_of(node), HEADER)?;
        if node.mtu > 0 {
            // A card must not pass on longer packets than it announces (virtio 1.2, 5.1.4.1).
            let set = tap::set_mtu(name, node.mtu);
            set.map_err(|error| format!("tap device {name}: {error}"))?;
        }
        let parts = taps.into_iter().chain(link::flags_of(name));
        Ok(Opened {
            parts: parts.map(Into::into).collect(),
            claim: None,
        })
    }

    /// Makes the card of the queues of a tap device, of which the first one is attached.
    pub(super) fn of(parts: &mut Parts, node: &DeviceNode) -> Result<Self, String> {
        let taps = (0..pairs_of(node)).map(|_| Ok(parts.take()?.into()));
        let taps = taps.collect::<Result<_, String>>()?;
        let flags = parts.take_last().map(Into::into);
        Ok(Self::over(taps, node, Link::by(flags)))
    }

    /// Makes the card over the open queues of a tap device.
    fn over(taps: Vec<File>, node: &DeviceNode, link: Link) -> Self {
        Self {
            attached: 1,
            is_watch_old: false,
            pairs: (0..taps.len()).map(Pair::new).collect(),
            taps,
            common: Common::new(node.limits, link),
            known: 1,
            control: None,
            mac: node.mac,
            mtu: node.mtu,
            state: None,
        }
    }

    /// Has the kernel use the queues of so many pairs. The order is that of the pairs, because the
    /// kernel moves the last queue to the place of one that is detached.
    fn attach(&mut self, wanted: usize) -> io::Result<()> {
        let wanted = wanted.clamp(1, self.taps.len().max(1));
        // planted: pairs that a driver adds wake nobody
        self.is_watch_old |= wanted != self.attached;
        while self.attached > wanted {
            self.attached -= 1;
            // One that cannot be detached is not attached: its tap device is gone.
            let _ = self.taps.get(self.attached).map(tap::detach);
            if let Some(pair) = self.pairs.get_mut(self.attached) {
                // No frame may come in once the driver's command is done (virtio 1.2, 5.1.6.5.6).
                pair.drop_frame(&mut self.common);
            }
        }
        while let Some(queue) = self.taps.get(self.attached)
            && self.attached < wanted
        {
            tap::attach(queue)?;
            if let Some(pair) = self.pairs.get_mut(self.attached) {
                pair.is_dry = false;
            }
            self.attached += 1;
        }
        Ok(())
    }

    /// Has the tap device pass to the guest what its driver takes.
    fn choose_offloads(&self, features: u64) -> Result<(), String> {
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
        let set = self.taps.first().map(|tap| tap::set_offload(tap, flags));
        set.unwrap_or(Ok(()))
            .map_err(|error| format!("tap device: offloads {flags:#x} refused: {error}"))
    }

    /// Has the driver use so many pairs, as the next GDM will; an error changes nothing.
    fn choose(&mut self, pairs: usize) -> io::Result<()> {
        let before = self.attached;
        let result = self.attach(pairs);
        if result.is_err() {
            // This cannot fail: none is added.
            let _ = self.attach(before);
        }
        if let Some(state) = self.state {
            // planted: a killed gdm forgets the pairs
            state.set(Word::Pairs, self.attached as u64);
        }
        result
    }

    /// Serves a queue of a pair. A driver may take pairs away and still have frames to send by them,
    /// which go out by the first one's tap queue.
    fn serve_pair(&mut self, queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        let number = queue / 2;
        let is_attached = number < self.attached;
        let wire = self.taps.get(if is_attached { number } else { 0 });
        let pair = self.pairs.get_mut(number).filter(|_| number < self.known);
        let (Some(pair), Some(wire)) = (pair, wire) else {
            return Ok(Progress::Waits);
        };
        // The even ones receive (virtio 1.2, 5.1.2).
        match queue % 2 {
            0 if is_attached => pair.receive(&mut self.common, wire, ring),
            0 => Ok(Progress::Waits),
            _ => pair.transmit(&mut self.common, wire, ring),
        }
    }
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
fn config(mac: Mac, link_is_up: bool, pairs: usize, mtu: u16) -> Vec<u8> {
    let mut config = mac.to_vec();
    config.extend(u16::from(link_is_up).to_le_bytes());
    config.extend((pairs as u16).to_le_bytes());
    config.extend(mtu.to_le_bytes());
    config
}

impl Backend for Net {
    fn keep(&mut self, state: DeviceState) {
        self.state = Some(state);
        self.common.link.keep(state);
    }

    fn identity(&self) -> Identity {
        let mtu = if self.mtu > 0 {
            bit(VIRTIO_NET_F_MTU)
        } else {
            0
        };
        let pairs = self.pairs.len();
        // A card with one pair has nothing to be told by a control queue.
        let (several, control) = if pairs > 1 { (SEVERAL, 1) } else { (0, 0) };
        Identity {
            device_id: DEVICE_ID,
            features: mtu
                | several
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
            queue_sizes: vec![QUEUE_SIZE; 2 * pairs + control],
            config: config(self.mac, self.common.link.is_up(), pairs, self.mtu),
        }
    }

    fn activate(&mut self, features: u64) -> Result<(), String> {
        // The header has the field in either case: VERSION_1 makes it part of each (virtio 1.2,
        // 5.1.6.1).
        self.common.merge = features & bit(VIRTIO_NET_F_MRG_RXBUF) != 0;
        let has_several = features & bit(VIRTIO_NET_F_MQ) != 0;
        self.known = if has_several { self.pairs.len() } else { 1 };
        let has_control = features & bit(VIRTIO_NET_F_CTRL_VQ) != 0;
        // The control queue follows those pairs that the driver knows of (virtio 1.2, 5.1.2).
        self.control = has_control.then_some(2 * self.known);
        let chosen = self.state.map_or(0, |state| state.get(Word::Pairs));
        let chosen = usize::try_from(chosen).unwrap_or(1).min(self.known);
        let attached = self.attach(chosen);
        let attached = attached.map_err(|error| format!("tap device: no {chosen} queues: {error}"));
        attached.and(self.choose_offloads(features))
    }

    fn reset(&mut self) {
        // A driver begins with one pair (virtio 1.2, 5.1.6.5.6.2). This cannot fail: none is added.
        let _ = self.attach(1);
        self.known = 1;
        self.control = None;
        for pair in &mut self.pairs {
            pair.reset(&mut self.common);
        }
    }

    fn close(&mut self, queue: usize, _ring: Option<&mut Vring>) -> Result<(), Broken> {
        if let Some(pair) = self.pairs.get_mut(queue / 2) {
            pair.close(&mut self.common, queue.is_multiple_of(2));
        }
        Ok(())
    }

    fn news_of_config(&mut self) -> Option<(Vec<u8>, bool)> {
        let is_up = self.common.link.news()?;
        let config = config(self.mac, is_up, self.pairs.len(), self.mtu);
        Some((config, true))
    }

    fn pause(&self) -> Option<Duration> {
        let pauses = self.pairs.iter().flat_map(|pair| pair.pauses(&self.common));
        pauses.min()
    }

    fn obey(&mut self, order: Order) -> Answer {
        match order {
            Order::Link(is_up) => Ok(self.common.link.order(is_up).into()),
            Order::Detach | Order::Attach(_) => Err(
                "a network card has no medium; `gearctl device link` takes its link down".into(),
            ),
            Order::Resize => Err("a network card has no size".into()),
            Order::Power => Err("a network card has no power button".into()),
        }
    }

    fn poll(&mut self) {
        self.common.link.poll();
    }

    fn watch(&self) -> Vec<RawFd> {
        // A queue that is attached anew is watched anew: while it was detached, the kernel told of
        // nothing.
        let attached = self.taps.iter().take(self.attached);
        attached.map(AsRawFd::as_raw_fd).collect()
    }

    fn woken(&mut self, by: &[RawFd]) {
        self.common.is_told = true;
        for (pair, tap) in self.pairs.iter_mut().zip(&self.taps) {
            // Each second makes up for news that were lost.
            // planted: news of a tap device are for nobody
            pair.is_dry &= !by.is_empty() && !by.contains(&tap.as_raw_fd());
        }
    }

    fn watch_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_watch_old)
    }

    fn may_tell_late(&self, queue: usize) -> bool {
        // Frames that have left the guest: the odd ones send, and the control queue, which follows
        // pairs, is an even one (virtio 1.2, 5.1.2).
        queue % 2 == 1
    }

    fn process(&mut self, queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        match self.control == Some(queue) {
            true => self.serve_control(ring),
            false => self.serve_pair(queue, ring),
        }
    }
}
