//! Tests of the network card on a socket that carries frames as a tap device does.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use super::Net;
use super::link::Link;
use super::pair::HEADER;
use crate::backend::Backend as _;
use crate::board::{DeviceKind, DeviceNode};
use crate::order::Order;
use crate::orders::Desk;
use crate::testing::{self, CHANNEL, DATA, Directory, Guest};
use crate::transport::register;

mod hostile;
mod pairs;
mod placing;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const FEATURES: u64 = 1 << 3 | 1 << 5 | 1 << 16;
/// Place of the status and of the MTU in the configuration.
const STATUS: usize = register::CONFIG + 4;
const MTU: usize = register::CONFIG + 8;

fn node(limits: [u32; 3], mtu: u16) -> DeviceNode {
    DeviceNode {
        channel: CHANNEL,
        kind: DeviceKind::Net,
        backend: "tap0".into(),
        mac: MAC,
        mtu,
        limits,
        ..testing::node()
    }
}

/// A card, the other end of its wire, and the file that stands for the tap device's flags.
struct Card {
    guest: Guest,
    wire: UnixDatagram,
    desk: Desk,
    directory: Directory,
}

impl Card {
    fn new(limits: [u32; 3], mtu: u16) -> Self {
        let directory = Directory::new("card");
        directory.file("flags", b"0x1003\n");
        let mut guest = Guest::new(Box::new(net(&directory, limits, mtu).0));
        guest.kill_gdm();
        let (net, wire) = net(&directory, limits, mtu);
        let desk = guest.start_gdm_with_orders(Box::new(net));
        guest.initialise(
            if mtu > 0 {
                FEATURES
            } else {
                FEATURES & !(1 << 3)
            },
            2,
        );
        Self {
            guest,
            wire,
            desk,
            directory,
        }
    }

    /// Sends a frame of so many bytes by the guest's descriptor `head`.
    fn send(&mut self, head: u16, bytes: u32) {
        self.guest
            .request(1, head, &[(DATA, HEADER as u32 + bytes, false)]);
    }

    /// Has the guest offer a buffer.
    fn offer(&mut self, head: u16) {
        let at = DATA + 0x1_0000 + 0x1000 * u64::from(head);
        self.guest.request(0, head, &[(at, 2048, true)]);
    }

    /// Returns the bytes of the next frame on the wire.
    fn on_wire(&self) -> Option<usize> {
        self.wire.recv(&mut [0; 4096]).ok()
    }

    /// Puts a frame on the wire.
    fn arrive(&self, bytes: usize) {
        self.wire.send(&vec![0; HEADER + bytes]).unwrap();
    }

    fn link_is_up(&self) -> bool {
        self.guest.read(STATUS) >> 16 & 1 == 1
    }

    /// Gives an order while the device works.
    fn order(&mut self, order: Order) -> crate::order::Answer {
        let desk = &self.desk;
        let guest = &mut self.guest;
        std::thread::scope(|scope| {
            let answer = scope.spawn(move || desk.give(order));
            while !answer.is_finished() {
                guest.work();
            }
            answer.join().unwrap()
        })
    }
}

fn net(directory: &Directory, limits: [u32; 3], mtu: u16) -> (Net, UnixDatagram) {
    let (tap, wire) = UnixDatagram::pair().unwrap();
    tap.set_nonblocking(true).unwrap();
    wire.set_nonblocking(true).unwrap();
    let flags = File::open(directory.path().join("flags")).unwrap();
    let tap = File::from(OwnedFd::from(tap));
    (
        Net::over(vec![tap], &node(limits, mtu), Link::by(Some(flags))),
        wire,
    )
}

#[test]
fn the_configuration_has_address_status_and_mtu() {
    let card = Card::new([0; 3], 9000);
    let words = [register::CONFIG, STATUS, MTU].map(|at| card.guest.read(at));
    assert_eq!(words, [0x0000_0002, 0x0001_0900, 9000 << 16 | 1]);
    let card = Card::new([0; 3], 0);
    assert_eq!(card.guest.read(MTU), 1);
}

#[test]
fn mtu_is_offered_where_there_is_one() {
    let offers = |mtu| {
        let mut card = Card::new([0; 3], mtu);
        card.guest.write(register::DEVICE_FEATURES_SEL, 0);
        card.guest.read(register::DEVICE_FEATURES) >> 3 & 1 == 1
    };
    assert!(offers(1500) && !offers(0));
}

#[test]
fn frames_pass_both_ways() {
    let mut card = Card::new([0; 3], 1500);
    card.send(0, 60);
    card.offer(3);
    card.arrive(100);
    card.guest.work();
    assert_eq!(card.on_wire(), Some(HEADER + 60));
    assert_eq!(card.guest.used(0, 0), (3, (HEADER + 100) as u32));
}

/// A link that a person orders down carries nothing, and its guest is told, also by the next GDM.
#[test]
fn a_link_goes_down_and_up() {
    let mut card = Card::new([0; 3], 1500);
    assert!(card.link_is_up());
    card.guest.interrupted();
    assert_eq!(card.order(Order::Link(false)), Ok(0));
    assert!(!card.link_is_up() && card.guest.interrupted());
    assert_eq!(card.guest.read(register::INTERRUPT_STATUS) & 2, 2);
    card.send(0, 60);
    card.offer(3);
    card.arrive(100);
    card.guest.work();
    assert_eq!((card.guest.used_index(0), card.guest.used_index(1)), (0, 1));
    assert_eq!(card.on_wire(), None);
    // Neither a reset nor a new GDM ends what a person ordered.
    card.guest.write(register::STATUS, 0);
    assert!(!card.link_is_up());
    card.guest.kill_gdm();
    let (net, wire) = net(&card.directory, [0; 3], 1500);
    card.wire = wire;
    card.desk = card.guest.start_gdm_with_orders(Box::new(net));
    assert!(!card.link_is_up());
    assert_eq!(card.order(Order::Link(true)), Ok(1));
    assert!(card.link_is_up());
    assert!(card.order(Order::Resize).is_err());
}

/// A tap device that goes down takes the link with it within a second or two.
#[test]
fn a_link_follows_its_tap_device() {
    let mut card = Card::new([0; 3], 1500);
    for (flags, is_up) in [(&b"0x1002\n"[..], false), (b"0x1003\n", true), (b"", false)] {
        card.directory.file("flags", flags);
        let begin = Instant::now();
        while card.link_is_up() != is_up {
            assert!(begin.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(20));
            card.guest.work();
        }
        assert!(card.guest.interrupted());
    }
    // An order cannot lift a link whose tap device is down.
    assert_eq!(card.order(Order::Link(true)), Ok(0));
}

/// Frames beyond the limit wait, in each direction for itself, and none is lost here.
#[test]
fn limits_hold_frames_back() {
    let mut card = Card::new([100, 0, 10], 1500);
    let begin = Instant::now();
    for number in 0..4 {
        card.send(number, 60);
        card.offer(number);
        card.arrive(100);
    }
    let mut ends = [None; 2];
    while ends.contains(&None) {
        assert!(begin.elapsed() < Duration::from_secs(10), "it starves");
        card.guest.work();
        for (queue, end) in ends.iter_mut().enumerate() {
            if card.guest.used_index(queue) == 4 {
                end.get_or_insert(begin.elapsed());
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // A slow machine saves the burst, one frame, before the first frame comes.
    let least = Duration::from_millis(29);
    assert!(ends.iter().flatten().all(|end| *end >= least), "{ends:?}");
    let sent = (0..5).map_while(|_| card.on_wire()).count();
    assert_eq!(sent, 4);
}

/// A queue that sends carries news of memory alone. An answer to a command, or a frame that has come
/// in, is what somebody waits for.
#[test]
fn only_news_of_sent_frames_may_wait() {
    /// VIRTIO_NET_F_CTRL_VQ and VIRTIO_NET_F_MQ.
    const CONTROL: u64 = 1 << 17;
    const SEVERAL: u64 = 1 << 22;
    for (pairs, features, control) in [
        (1, 0, None),
        (4, 0, None),
        (4, CONTROL, Some(2)),
        (4, CONTROL | SEVERAL, Some(8)),
    ] {
        // Ends of pipes stand for queues of a tap device, of which none carries a frame here.
        let taps = (0..pairs).map(|_| File::from(OwnedFd::from(std::io::pipe().unwrap().0)));
        let mut net = Net::over(taps.collect(), &node([0; 3], 0), Link::by(None));
        // A pipe has no offloads.
        assert!(net.activate(features).is_err());
        assert_eq!(net.control, control);
        let waits: Vec<usize> = (0..9).filter(|queue| net.may_tell_late(*queue)).collect();
        assert_eq!(waits, [1, 3, 5, 7], "{pairs} pairs, features {features:#x}");
    }
}
