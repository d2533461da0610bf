//! Where requests lie, and offers that attacks on several kinds of device make.

use crate::Platform;
use crate::arena::{self, buffer, table};
use crate::device::{Device, Expect, INDIRECT, Link, NEXT, register};

/// Address of a request's header, behind all indirect tables.
pub(crate) const HEADER: u64 = table(0x6_0000);
/// Address of the data, with room before it. The room is for a guard, which must not change.
pub(crate) const DATA: u64 = buffer(0x1000);

/// Address at which a disk, or a card that does a command, puts its status. Far behind the data, so
/// that what is written beyond them does not look like an answer.
pub(crate) const STATUS: u64 = buffer(0x7_f000);
/// A disk has done a request (virtio 1.2, 5.2.6), or a card a command (5.1.6.5).
pub(crate) const OK: u8 = 0;

/// A piece of a request: its place, its bytes, whether the device writes it.
pub(crate) type Piece = (u64, u32, bool);

/// A request of as many pieces as a request may have.
pub(crate) fn segments<P: Platform>(device: &mut Device<'_, P>) {
    const ENTRIES: u16 = 1024;
    for index in 0..ENTRIES {
        let address = device.at(buffer(u64::from(index) * 8));
        let flags = if index + 1 == ENTRIES { 0 } else { NEXT };
        let link = Link::new(address, 8, flags, index + 1);
        device.describe(table(0), index, link);
    }
    let length = 16 * u32::from(ENTRIES);
    let chain = Link::new(device.at(table(0)), length, INDIRECT, 0);
    let before = device.used();
    device.describe_all(&[chain]);
    device.offer(0);
    device.conclude("1024 pieces", before, Expect::Served(1));
}

/// Offers the same buffer four times in the queue for reception. More than one, since the first may
/// be taken for an earlier frame.
pub(crate) fn offer_receive_buffers<P: Platform>(device: &mut Device<'_, P>, link: Link) {
    for index in 0..4_u16 {
        device.describe(arena::descriptors(0), index, link);
        let entry = arena::available(0) + 4 + 2 * u64::from(index);
        device.store(entry, &index.to_le_bytes());
    }
    device.store(arena::available(0) + 2, &4_u16.to_le_bytes());
    device.write(register::QUEUE_NOTIFY, 0);
}
