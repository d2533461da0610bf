//! Attacks with the packets of sockets (virtio 1.2, 5.10.6): each field with what no driver writes.
//!
//! A packet names both ends by number and port, and tells how much data follows and how much room
//! its sender has. The device has to take none of that for granted: the sender is the guest of the
//! queue, whatever the packet says.

use crate::Platform;
use crate::device::{Device, Expect, Link, WRITE, register};
use crate::offers::{DATA, HEADER, offer_receive_buffers, segments};

/// Bytes of a packet without data.
const PACKET: u32 = 44;
/// Operations of packets. VIRTIO_VSOCK_OP_RST. Ends a connection, or refuses one.
const RST: u16 = 3;
/// VIRTIO_VSOCK_OP_RW. Data of a connection; of one that is not there it is refused by RST.
const RW: u16 = 5;
/// Packets that are to be refused, more than a device may keep. Refusals are kept until the guest
/// has a buffer for them, and a guest that never has one must not fill the device's memory.
const STORM: usize = 100;

/// Fields of a packet, by where they begin and their bytes. In the order of struct
/// virtio_vsock_hdr.
const FIELDS: [(usize, usize); 10] = [
    (0, 8),
    (8, 8),
    (16, 4),
    (20, 4),
    (24, 4),
    (28, 2),
    (30, 2),
    (32, 4),
    (36, 4),
    (40, 4),
];

/// Returns a packet from port 1 of the guest to port 1 of the device VM.
fn packet(cid: u32, op: u16) -> [u8; PACKET as usize] {
    let mut bytes = [0; PACKET as usize];
    bytes[..4].copy_from_slice(&cid.to_le_bytes());
    // The device VM is number 2, and a stream is type 1.
    bytes[8] = 2;
    bytes[16] = 1;
    bytes[20] = 1;
    bytes[28] = 1;
    bytes[30..32].copy_from_slice(&op.to_le_bytes());
    bytes
}

/// Returns a packet that asks for no answer: it ends a connection that there is not.
pub(crate) fn honest(cid: u32) -> [u8; PACKET as usize] {
    packet(cid, RST)
}

impl<P: Platform> Device<'_, P> {
    /// Returns the guest's identifier.
    pub(crate) fn cid(&mut self) -> u32 {
        self.read(register::CONFIG)
    }

    /// Sends a packet, which has no data behind it whatever it says. The length field may lie about
    /// data that is not there.
    fn send(&mut self, name: &str, packet: &[u8], expect: Expect) {
        self.store(DATA, packet);
        self.odd(name, &[(DATA, PACKET, false)], expect);
    }
}

/// Makes all attacks.
pub(crate) fn all<P: Platform>(device: &mut Device<'_, P>) {
    fields(device);
    for length in [0, 1, 43, 44, 45, 0x1000, 0x1_0000, 0x2_0001, 0x4_0000] {
        let pieces = [(DATA, length, false)];
        device.odd("a packet of any length", &pieces, Expect::Served(1));
    }
    device.odd("a writable packet", &[(DATA, 72, true)], Expect::Served(1));
    segments(device);
    connections(device);
    refusals(device);
    small_receive_buffers(device);
    for size in [1, 2, 4, 8] {
        device.platform.write(register::CONFIG, size, u64::MAX);
        device.honest_request("a write of the identifier");
    }
}

/// Spoils each field of a packet of each operation. A spoilt sender would be another guest; a
/// spoilt credit, an unlimited queue.
fn fields<P: Platform>(device: &mut Device<'_, P>) {
    let cid = device.cid();
    for op in 0..9 {
        for (at, length) in FIELDS {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut packet = packet(cid, op);
                packet[at..at + length].fill(byte);
                device.send("a spoilt field", &packet, Expect::Served(1));
            }
            // A device keeps few refusals, and nobody takes them here.
            device.recover("a spoilt field");
        }
    }
}

/// Asks for more connections than there can be.
fn connections<P: Platform>(device: &mut Device<'_, P>) {
    let cid = device.cid();
    for port in 0..STORM as u32 {
        let mut packet = packet(cid, 1);
        packet[16..20].copy_from_slice(&port.to_le_bytes());
        device.store(DATA, &packet);
        device.odd("many connections", &[(DATA, PACKET, false)], Expect::Any);
    }
}

/// Sends what is to be refused, and takes no refusal. Each is answered by a reset, for which there
/// is no buffer.
fn refusals<P: Platform>(device: &mut Device<'_, P>) {
    let packet = packet(device.cid(), RW);
    let before = device.used();
    device.store(DATA, &packet);
    for _ in 0..STORM {
        device.offer_pieces(&[(DATA, PACKET, false)]);
        device.conclude("many refusals", before, Expect::Any);
    }
    device.recover_all("many refusals");
}

/// Buffers that no packet, and not even its header, has room in; a refusal is what arrives.
fn small_receive_buffers<P: Platform>(device: &mut Device<'_, P>) {
    for (length, flags) in [(0, WRITE), (1, WRITE), (43, WRITE), (44, WRITE), (2000, 0)] {
        let name = "a receive buffer without room";
        let link = Link::new(device.at(DATA), length, flags, 0);
        offer_receive_buffers(device, link);
        let before = device.used();
        let packet = packet(device.cid(), RW);
        device.store(HEADER, &packet);
        device.offer_pieces(&[(HEADER, PACKET, false)]);
        device.conclude(name, before, Expect::Any);
        device.recover_all(name);
    }
}
