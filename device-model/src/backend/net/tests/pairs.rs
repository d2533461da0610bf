//! Tests of a card with several pairs of queues, on a tap device of this kernel's.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::backend::Backend as _;
use crate::backend::net::link::Link;
use crate::backend::net::pair::HEADER;
use crate::backend::net::{MAX_PAIRS, Net, make_tap};
use crate::board::DeviceNode;
use crate::state::Word;
use crate::sys::tap::testing::{Wire, leave_network, opened, until};
use crate::testing::{DATA, Guest, RAM, RAM_SIZE};
use crate::transport::register;

use super::node;

/// Features: MRG_RXBUF is not among them, so that each frame is one request.
const CTRL_VQ: u64 = 1 << 17;
const MQ: u64 = 1 << 22;
const NEEDS_RESET: u32 = 0x40;
/// Class, command and answers of the control queue (virtio 1.2, 5.1.6.5).
const MQ_CLASS: u8 = 4;
const OK: u8 = 0;
const ERR: u8 = 1;
/// Type of IPv4 frames, and of those that guests send here: an experiment's.
const IPV4: u16 = 0x0800;
const EXPERIMENT: u16 = 0x88b5;
/// Flows that the kernel spreads: the chance that one of two queues gets none is 1 in 2^63.
const FLOWS: u16 = 64;
/// Where a command and its answer lie, and the buffers of queues.
const COMMAND: u64 = DATA;
const ANSWER: u64 = DATA + 0x100;
const BUFFERS: u64 = DATA + 0x1000;
const BUFFER: u64 = 0x800;

/// A card with several pairs, and the wire behind it.
struct Card {
    guest: Guest,
    wire: Wire,
    pairs: usize,
    /// Descriptors that were offered, by queue.
    heads: [u16; 2 * MAX_PAIRS + 1],
}

pub(super) fn several(pairs: usize) -> (Net, Wire) {
    let (taps, wire) = opened(pairs);
    (Net::over(taps, &described(pairs), Link::by(None)), wire)
}

fn described(pairs: usize) -> DeviceNode {
    DeviceNode {
        queues: pairs,
        ..node([0; 3], 0)
    }
}

impl Card {
    /// Makes a card whose driver has chosen nothing yet; none where no network can be made.
    fn new(pairs: usize) -> Option<Self> {
        if !leave_network() {
            return None;
        }
        let (net, wire) = several(pairs);
        Some(Self::of(net, wire, pairs))
    }

    fn of(net: Net, wire: Wire, pairs: usize) -> Self {
        let mut card = Self {
            guest: Guest::new(Box::new(net)),
            wire,
            pairs,
            heads: [0; 2 * MAX_PAIRS + 1],
        };
        card.initialise();
        card
    }

    /// Sets all queues up, as a driver of several pairs does.
    fn initialise(&mut self) {
        self.guest.write(register::STATUS, 0);
        for ring in &mut self.guest.rings {
            ring.added = 0;
        }
        for queue in 0..self.guest.rings.len() {
            let ring = self.guest.rings[queue];
            self.guest.put(ring.available(), &[0; 4]);
            self.guest.put(ring.used(), &[0; 4]);
        }
        self.heads = [0; 2 * MAX_PAIRS + 1];
        self.guest.initialise(CTRL_VQ | MQ, 2 * self.pairs + 1);
        assert_eq!(self.guest.status(), 0xf);
    }

    /// Has the driver close a queue that the card uses.
    fn close(&mut self, queue: usize) {
        self.guest.write(register::QUEUE_SEL, queue as u32);
        self.guest.write(register::QUEUE_READY, 0);
    }

    /// Lets the card take turns until something has happened.
    fn turn_until(&mut self, happened: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !happened(self) {
            assert!(begin.elapsed() < Duration::from_secs(20), "it starves");
            self.guest.turn();
        }
    }

    /// Ends GDM with all that it has open, and starts the next one.
    fn kill_gdm(&mut self) {
        self.guest.kill_gdm();
        let (net, wire) = several(self.pairs);
        self.wire = wire;
        self.guest.start_gdm(Box::new(net));
    }

    /// Returns the next descriptor of a queue, and where its buffer is.
    fn buffer(&mut self, queue: usize) -> (u16, u64) {
        let head = self.heads[queue] % 16;
        self.heads[queue] += 1;
        let number = 16 * queue as u64 + u64::from(head);
        (head, BUFFERS + BUFFER * number)
    }

    /// Gives a command, and returns the answer.
    fn command(&mut self, command: &[u8]) -> u8 {
        self.guest.put(COMMAND, command);
        self.guest.put(ANSWER, &[0xff]);
        let pieces = [(COMMAND, command.len() as u32, false), (ANSWER, 1, true)];
        let queue = 2 * self.pairs;
        let before = self.guest.used_index(queue);
        self.guest.request(queue, 0, &pieces);
        self.guest.work();
        assert_eq!(self.guest.used_index(queue), before.wrapping_add(1));
        assert_eq!(self.guest.used(queue, before), (0, 1));
        self.guest.get(ANSWER, 1)[0]
    }

    fn choose(&mut self, pairs: u16) -> u8 {
        let [low, high] = pairs.to_le_bytes();
        self.command(&[MQ_CLASS, 0, low, high])
    }

    /// Has the guest send a frame by a pair.
    fn send(&mut self, pair: usize, frame: &[u8]) {
        let (head, at) = self.buffer(2 * pair + 1);
        self.guest.put(at, &[0; HEADER]);
        self.guest.put(at + HEADER as u64, frame);
        let length = (HEADER + frame.len()) as u32;
        self.guest
            .request(2 * pair + 1, head, &[(at, length, false)]);
    }

    /// Tells whether a pair's frame reaches the wire.
    fn sends(&mut self, pair: usize) -> bool {
        let mut frame = ethernet(EXPERIMENT);
        frame.push(pair as u8);
        self.send(pair, &frame);
        self.guest.work();
        self.wire.next(EXPERIMENT) == Some(frame)
    }

    /// Has the guest offer buffers by each pair.
    fn offer(&mut self) {
        for pair in 0..self.pairs {
            for _ in 0..16 {
                let (head, at) = self.buffer(2 * pair);
                self.guest
                    .request(2 * pair, head, &[(at, BUFFER as u32, true)]);
            }
        }
    }

    /// Puts frames of many flows on the wire, and returns how many come in by each pair.
    fn received(&mut self) -> Vec<u16> {
        let count = |card: &Self| -> Vec<u16> {
            let pairs = 0..card.pairs;
            pairs.map(|pair| card.guest.used_index(2 * pair)).collect()
        };
        let before = count(self);
        let mut received = vec![0; self.pairs];
        for flow in 0..FLOWS {
            let sum = received.iter().sum::<u16>();
            self.wire.send(&datagram([9, 9], [flow, 7]));
            // One at a time: none is lost for want of a buffer.
            until(|| {
                self.guest.work();
                let now = count(self);
                for (pair, received) in received.iter_mut().enumerate() {
                    *received = now[pair].wrapping_sub(before[pair]);
                }
                received.iter().sum::<u16>() == sum + 1
            });
            if flow % 8 == 7 {
                self.renew(&received, &before);
            }
        }
        received
    }

    /// Offers as many buffers as were used.
    fn renew(&mut self, received: &[u16], before: &[u16]) {
        for pair in 0..self.pairs {
            let used = before[pair].wrapping_add(received[pair]);
            while self.guest.rings[2 * pair].added < used.wrapping_add(16) {
                let (head, at) = self.buffer(2 * pair);
                self.guest
                    .request(2 * pair, head, &[(at, BUFFER as u32, true)]);
            }
        }
    }
}

/// Returns the start of a frame from one card to all.
fn ethernet(kind: u16) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1]);
    frame.extend(kind.to_be_bytes());
    frame
}

/// Returns an IPv4 frame between two hosts' UDP ports.
fn datagram(hosts: [u8; 2], ports: [u16; 2]) -> Vec<u8> {
    let mut frame = ethernet(IPV4);
    frame.extend([0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0]);
    for host in hosts {
        frame.extend([10, 0, 0, host]);
    }
    for port in ports {
        frame.extend((1000 + port).to_be_bytes());
    }
    frame.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    frame
}

#[test]
fn a_card_shows_its_pairs_and_the_control_queue() {
    let Some(card) = Card::new(4) else {
        return;
    };
    assert_eq!(card.guest.read(register::CONFIG + 8) & 0xffff, 4);
    let offered = card.guest.state().get(Word::Offered);
    assert_eq!(offered & (CTRL_VQ | MQ), CTRL_VQ | MQ);
}

/// Each pair sends, and frames come in by each pair once the driver has chosen it.
#[test]
fn frames_pass_by_all_pairs_that_the_driver_has_chosen() {
    let Some(mut card) = Card::new(2) else {
        return;
    };
    card.offer();
    assert_eq!(card.received(), [FLOWS, 0], "the driver has chosen none");
    assert_eq!(card.choose(2), OK);
    let received = card.received();
    assert!(received.iter().all(|count| *count > 0), "{received:?}");
    assert!(card.sends(0) && card.sends(1));
    // What a driver still sends by a pair that it gave up is sent.
    assert_eq!(card.choose(1), OK);
    assert_eq!(card.received(), [FLOWS, 0]);
    assert!(card.sends(0) && card.sends(1));
    assert_eq!(card.choose(2), OK);
    let received = card.received();
    assert!(received.iter().all(|count| *count > 0), "{received:?}");
}

/// The kernel notes by which pair a flow sends, and what comes back for it comes by the same pair
/// (virtio 1.2, 5.1.6.5.6: automatic receive steering).
#[test]
fn an_answer_comes_by_the_pair_that_sends() {
    let Some(mut card) = Card::new(2) else {
        return;
    };
    assert_eq!(card.choose(2), OK);
    card.offer();
    for pair in [0, 1, 1, 0] {
        let before = card.guest.used_index(2 * pair);
        card.send(pair, &datagram([9, 8], [5, 6]));
        card.guest.work();
        card.wire.next(IPV4).unwrap();
        card.wire.send(&datagram([8, 9], [6, 5]));
        until(|| {
            card.guest.work();
            card.guest.used_index(2 * pair) == before.wrapping_add(1)
        });
    }
}

/// A reset leaves one pair, and the driver that follows may choose anew.
#[test]
fn a_reset_leaves_one_pair() {
    let Some(mut card) = Card::new(2) else {
        return;
    };
    assert_eq!(card.choose(2), OK);
    card.initialise();
    card.offer();
    assert_eq!(card.received(), [FLOWS, 0]);
    assert_eq!(card.choose(2), OK);
    assert!(card.received()[1] > 0);
}

/// A GDM that is killed leaves the driver's choice to the next one, in both directions.
#[test]
fn a_killed_gdm_leaves_the_pairs_as_they_are() {
    let Some(mut card) = Card::new(3) else {
        return;
    };
    for (chosen, used) in [(3, [true, true, true]), (2, [true, true, false])] {
        assert_eq!(card.choose(chosen), OK);
        card.offer();
        card.kill_gdm();
        let received = card.received().into_iter().map(|count| count > 0);
        assert!(received.eq(used), "{chosen} pairs");
        assert!((0..3).all(|pair| card.sends(pair)));
        card.initialise();
    }
    // The reset in between left one.
    card.offer();
    card.kill_gdm();
    assert_eq!(card.received(), [FLOWS, 0, 0]);
}

/// Commands that the card does not know, or cannot do, are answered, and change nothing.
#[test]
fn commands_out_of_range_are_answered_with_an_error() {
    let Some(mut card) = Card::new(2) else {
        return;
    };
    assert_eq!(card.choose(2), OK);
    let refused: [&[u8]; 13] = [
        &[],
        &[MQ_CLASS],
        &[MQ_CLASS, 0],
        &[MQ_CLASS, 0, 1],
        &[MQ_CLASS, 0, 1, 0, 0],
        &[MQ_CLASS, 0, 0, 0],
        &[MQ_CLASS, 0, 3, 0],
        &[MQ_CLASS, 0, 1, 1],
        &[MQ_CLASS, 0, 0xff, 0xff],
        &[MQ_CLASS, 1, 1, 0],
        &[0, 0, 1, 0],
        &[5, 0, 1, 0],
        &[0xff; 64],
    ];
    for command in refused {
        assert_eq!(card.command(command), ERR, "{command:?}");
    }
    let errors = card.guest.state().get(Word::Errors);
    assert_eq!(errors, refused.len() as u64);
    card.offer();
    assert!(card.received()[1] > 0, "one of them had an effect");
    assert_eq!(card.guest.status(), 0xf);
}

/// A request of the control queue that cannot be answered breaks the device.
#[test]
fn a_command_without_room_for_the_answer_breaks_the_device() {
    let Some(mut card) = Card::new(2) else {
        return;
    };
    card.guest.put(COMMAND, &[MQ_CLASS, 0, 2, 0]);
    let command = (COMMAND, 4, false);
    let behind = RAM + RAM_SIZE as u64;
    let broken: [&[(u64, u32, bool)]; 5] = [
        &[command],
        &[command, (ANSWER, 1, false)],
        &[(ANSWER, 1, true), command],
        &[command, (behind, 1, true)],
        &[(behind - 2, 4, false), (ANSWER, 1, true)],
    ];
    for pieces in broken {
        card.guest.request(4, 0, pieces);
        card.guest.work();
        assert_ne!(card.guest.status() & NEEDS_RESET, 0, "{pieces:?}");
        assert_eq!(card.guest.used_index(4), 0);
        card.initialise();
        card.offer();
        assert_eq!(card.received(), [FLOWS, 0], "{pieces:?} had an effect");
    }
}

/// A driver that takes the control queue without several pairs finds it behind the first pair, and
/// one that takes neither finds none. Several pairs without a control queue are refused.
#[test]
fn the_control_queue_follows_the_pairs_that_the_driver_knows_of() {
    let Some(mut card) = Card::new(2) else {
        return;
    };
    for (features, used) in [(CTRL_VQ, 1), (0, 0)] {
        card.initialise();
        card.guest.initialise(features, 3);
        card.guest.put(COMMAND, &[MQ_CLASS, 0, 1, 0]);
        card.guest.put(ANSWER, &[0xff]);
        let pieces = [(COMMAND, 4, false), (ANSWER, 1, true)];
        card.guest.request(2, 0, &pieces);
        card.guest.work();
        assert_eq!(card.guest.used_index(2), used);
        let answer = if used == 1 { ERR } else { 0xff };
        assert_eq!(card.guest.get(ANSWER, 1), [answer]);
        assert_eq!(card.guest.status(), 0xf);
    }
    for status in [0, 1, 3] {
        card.guest.write(register::STATUS, status);
    }
    for (half, features) in [(0, MQ as u32), (1, 1)] {
        card.guest.write(register::DRIVER_FEATURES_SEL, half);
        card.guest.write(register::DRIVER_FEATURES, features);
    }
    card.guest.write(register::STATUS, 0xb);
    assert_eq!(card.guest.status(), 3);
}

/// The thread that serves the card is woken by the queues of all pairs that the driver has chosen,
/// and of no others: one that is detached tells of nothing.
#[test]
fn the_queues_of_chosen_pairs_are_watched() {
    if !leave_network() {
        return;
    }
    let (mut net, _wire) = several(3);
    let all: Vec<_> = net.taps.iter().map(AsRawFd::as_raw_fd).collect();
    assert!(net.watch() == all[..1] && !net.watch_changed());
    net.known = 3;
    for chosen in [3, 2, 3] {
        net.choose(chosen).unwrap();
        assert_eq!(net.watch(), all[..chosen]);
        assert!(net.watch_changed() && !net.watch_changed());
    }
    net.choose(3).unwrap();
    assert!(!net.watch_changed(), "nothing was changed");
    net.reset();
    assert!(net.watch() == all[..1] && net.watch_changed());
}

/// A card with two pairs, both chosen, that sends so many frames a second.
fn limited(frames: u32) -> Option<Card> {
    if !leave_network() {
        return None;
    }
    let (taps, wire) = opened(2);
    let node = DeviceNode {
        limits: [frames, 0, 1],
        ..described(2)
    };
    let mut card = Card::of(Net::over(taps, &node, Link::by(None)), wire, 2);
    assert_eq!(card.choose(2), OK);
    Some(card)
}

/// A pair that always has something to send keeps the limits' share from no other.
#[test]
fn a_busy_pair_leaves_others_their_share_of_the_limits() {
    let Some(mut card) = limited(200) else {
        return;
    };
    let begin = Instant::now();
    while card.guest.used_index(1) < 12 {
        for pair in 0..2 {
            while card.guest.rings[2 * pair + 1].added < card.guest.used_index(2 * pair + 1) + 4 {
                card.send(pair, &ethernet(EXPERIMENT));
            }
        }
        let [first, second] = [1, 3].map(|queue| i32::from(card.guest.used_index(queue)));
        assert!((first - second).abs() <= 1, "{first} and {second} frames");
        assert!(begin.elapsed() < Duration::from_secs(20), "it starves");
        card.guest.turn();
    }
}

/// A queue that its driver closes while a frame of it waits for the limits keeps the limits' share
/// from no other pair, in either direction.
#[test]
fn a_closed_queue_keeps_no_place_in_line() {
    let Some(mut card) = limited(20) else {
        return;
    };
    // One frame of each pair waits, that of the second pair first.
    for pair in [1, 0] {
        card.send(pair, &ethernet(EXPERIMENT));
        card.send(pair, &ethernet(EXPERIMENT));
        card.guest.turn();
    }
    card.close(3);
    card.turn_until(|card| card.guest.used_index(1) == 2);
    card.offer();
    for flow in 0..FLOWS {
        card.wire.send(&datagram([9, 9], [flow, 7]));
    }
    card.turn_until(|card| card.guest.used_index(2) > 0);
    // The pair that has just received stands behind the other one.
    for close in [true, false] {
        let before = card.guest.used_index(0);
        card.turn_until(|card| card.guest.used_index(0) != before);
        if close {
            card.close(2);
        }
    }
    assert_eq!(card.guest.status(), 0xf);
}

/// Tap devices are there before the cards are served, with the queues of their cards.
#[test]
fn tap_devices_are_made_for_a_bridge() {
    if !leave_network() {
        return;
    }
    make_tap(&described(3)).unwrap();
    let _wire = Wire::new("tap0").unwrap();
    let parts = Net::claim(&described(3)).unwrap().parts;
    assert!(parts.len() >= 3);
    drop(parts);
    make_tap(&described(3)).unwrap();
    assert!(make_tap(&described(1)).is_ok(), "one queue of several");
}
