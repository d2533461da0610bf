//! Attacks with the frames of a network card, and with the commands of its control queue (virtio
//! 1.2, 5.1.6).
//!
//! A frame goes to a tap device as it is, so nothing in it can be wrong; the header before it
//! speaks of offloads, which the kernel of the device VM would act on if they were passed on.

use crate::Platform;
use crate::device::{Device, Expect, Link, WRITE, register};
use crate::offers::{DATA, HEADER, OK, Piece, STATUS, offer_receive_buffers, segments};

/// An address resolution request for the device VM's address on the bridge, behind an empty header.
/// A frame that every host answers: its answer is what arrives at the card afterwards.
pub const ARP: [u8; 72] = {
    let mut frame = [0; 72];
    let parts: [(usize, &[u8]); 5] = [
        (12, &[0xff; 6]),
        (18, &[2, b'G', b'V', 0, 0xff, 1, 8, 6]),
        (26, &[0, 1, 8, 0, 6, 4, 0, 1, 2, b'G', b'V', 0, 0xff, 1]),
        (40, &[10, 0, 2, 77]),
        (50, &[10, 0, 2, 100]),
    ];
    let mut part = 0;
    while part < parts.len() {
        let (at, bytes) = parts[part];
        let mut index = 0;
        while index < bytes.len() {
            frame[at + index] = bytes[index];
            index += 1;
        }
        part += 1;
    }
    frame
};

/// The command to use one pair of queues. Class 4, command 0, and the number in two bytes.
pub(crate) const ONE_PAIR: [u8; 4] = [4, 0, 1, 0];
/// Pairs of the card that is attacked, if it has several. The least number that makes a control
/// queue useful.
const PAIRS: u8 = 2;
/// VIRTIO_NET_ERR. The answer to a command that is not carried out. A card that did half a command
/// would have another number of queues than its driver thinks.
const ERROR: u8 = 1;

/// Makes all attacks with frames.
pub(crate) fn all<P: Platform>(device: &mut Device<'_, P>) {
    device.store(DATA, &ARP);
    for length in [
        0, 1, 11, 12, 13, 25, 26, 0x1_0000, 0x1_001d, 0x1_0020, 0x4_0000,
    ] {
        let pieces = [(DATA, length, false)];
        device.odd("a frame of any length", &pieces, Expect::Served(1));
    }
    headers(device);
    device.odd("a writable frame", &[(DATA, 72, true)], Expect::Served(1));
    segments(device);
    small_receive_buffers(device);
}

/// Segmentation and checksums of absent headers (virtio 1.2, 5.1.6). A device that offered no
/// offload must not act on such fields. Places of checksums that lie behind the frame's end are
/// among them.
fn headers<P: Platform>(device: &mut Device<'_, P>) {
    for (flags, kind) in [(1, 0), (1, 1), (0, 1), (1, 4), (3, 0x81), (0xff, 0xff)] {
        for words in [
            [0, 0, 0, 0],
            [0xffff; 4],
            [12, 1, 60, 70],
            [54, 0xffff, 0xfffe, 0],
        ] {
            let mut header = [flags, kind, 0, 0, 0, 0, 0, 0, 0, 0];
            for (bytes, word) in header[2..].chunks_mut(2).zip(words) {
                bytes.copy_from_slice(&u16::to_le_bytes(word));
            }
            device.store(DATA, &header);
            let pieces = [(DATA, 72, false)];
            device.odd("a header of nonsense", &pieces, Expect::Served(1));
        }
    }
}

/// Buffers that no frame, and not even its header, has room in; the answer to an honest request is
/// what arrives. A frame that does not fit is lost; a part of it in the wrong place is not.
fn small_receive_buffers<P: Platform>(device: &mut Device<'_, P>) {
    for (length, flags) in [(0, WRITE), (1, WRITE), (11, WRITE), (12, WRITE), (2000, 0)] {
        let name = "a receive buffer without room";
        let link = Link::new(device.at(DATA), length, flags, 0);
        offer_receive_buffers(device, link);
        let before = device.used();
        device.store(HEADER, &ARP);
        device.offer_pieces(&[(HEADER, ARP.len() as u32, false)]);
        for _ in 0..4 {
            device.conclude(name, before, Expect::Any);
        }
        device.recover_all(name);
    }
}

/// Returns how many queues a card has: with several pairs, one more that controls it. The number of
/// pairs is a field of the configuration (virtio 1.2, 5.1.4).
pub(crate) fn queues<P: Platform>(device: &mut Device<'_, P>) -> u32 {
    let pairs = device.read(register::CONFIG + 8) & 0xffff;
    if pairs > 1 { 2 * pairs + 1 } else { 2 }
}

impl<P: Platform> Device<'_, P> {
    /// Offers a command with room for its answer, without a notification.
    pub(crate) fn offer_command(&mut self, command: &[u8]) {
        self.store(HEADER, command);
        self.offer_pieces(&[(HEADER, command.len() as u32, false), (STATUS, 1, true)]);
    }
}

/// Makes all attacks with commands. VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET (virtio 1.2, 5.1.6.5.5) takes 1
/// to the card's pairs.
pub(crate) fn commands<P: Platform>(device: &mut Device<'_, P>) {
    for pairs in 0..=u16::from(PAIRS) + 1 {
        let [low, high] = pairs.to_le_bytes();
        let is_good = (1..=u16::from(PAIRS)).contains(&pairs);
        let expected = if is_good { OK } else { ERROR };
        verdict(device, "a number of pairs", &[4, 0, low, high], expected);
    }
    for pairs in [0x0100_u16, 0x0200, 0x7fff, 0x8000, 0x8001, u16::MAX] {
        let [low, high] = pairs.to_le_bytes();
        verdict(device, "no number of pairs", &[4, 0, low, high], ERROR);
    }
    for class in [0, 1, 2, 3, 4, 5, 6, 0x7f, 0xff] {
        for command in [0, 1, 2, 0xff] {
            if (class, command) != (4, 0) {
                verdict(device, "another command", &[class, command, 1, 0], ERROR);
            }
        }
    }
    for length in [0, 1, 2, 3, 5, 64] {
        let mut command = [0; 64];
        command[..4].copy_from_slice(&ONE_PAIR);
        let name = "a command of another length";
        verdict(device, name, &command[..length], ERROR);
    }
    shapes(device);
}

/// Gives a command and checks the answer. Class, command and data are one buffer or several, as the
/// driver likes.
fn verdict<P: Platform>(device: &mut Device<'_, P>, name: &str, command: &[u8], expected: u8) {
    let before = device.used();
    device.store(STATUS, &[0xff]);
    device.offer_command(command);
    device.conclude(name, before, Expect::Served(1));
    let [answer] = device.load(STATUS);
    if answer != expected {
        device.mistake(name, format_args!("{command:x?}: {answer}, not {expected}"));
    }
}

/// Commands in crumbs, over their own answers, and without room for one.
fn shapes<P: Platform>(device: &mut Device<'_, P>) {
    device.store(HEADER, &ONE_PAIR);
    let crumbs: [Piece; 5] = core::array::from_fn(|i| match i {
        0..4 => (HEADER + i as u64, 1, false),
        _ => (STATUS, 1, true),
    });
    device.odd("a command in crumbs", &crumbs, Expect::Served(1));
    device.store(DATA, &ONE_PAIR);
    let over = [(DATA, 4, false), (DATA, 4, true)];
    device.odd("an answer over its command", &over, Expect::Served(1));
    without_room(device);
    device.odd("an answer alone", &[(STATUS, 1, true)], Expect::Served(1));
}

/// Commands that have no room for an answer. The answer has one byte; without it the driver would
/// wait for ever.
fn without_room<P: Platform>(device: &mut Device<'_, P>) {
    let broken: [&[Piece]; 4] = [
        &[(HEADER, 4, false)],
        &[(HEADER, 4, false), (STATUS, 1, false)],
        &[(HEADER, 4, false), (STATUS, 0, true)],
        &[(HEADER, 0x4_0000, false)],
    ];
    for pieces in broken {
        device.store(HEADER, &ONE_PAIR);
        device.odd("no room for an answer", pieces, Expect::Broken);
    }
}
