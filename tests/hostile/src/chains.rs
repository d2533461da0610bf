//! Attacks with descriptor chains and with the indices of the rings.
//!
//! Every descriptor is read from memory that the guest may change meanwhile, and every field may
//! lie. A device that follows a chain without a limit of its own never comes back; one that checks
//! an address without its length, or the sum without its overflow, writes to memory that is not the
//! guest's.

use crate::arena::{BUFFER_SIZE, buffer, table};
use crate::device::{Device, Expect, INDIRECT, Link, NEXT, QUEUE_SIZE, WRITE};
use crate::requests::IO_ERROR;
use crate::{Kind, Platform};

/// Addresses at which device registers, the device VM's window, the device model's pages and Gear2
/// may lie. Fixed addresses of GearV and of QEMU's machine. An access there from the device VM
/// would reach a device, and not fault.
const FOREIGN: [u64; 8] = [
    0,
    0x0800_0000,
    0x0900_0000,
    0x0c00_0000,
    0x0c08_0000,
    0x0c09_0000,
    0x1000_0000,
    0x3000_0000,
];
/// The board's memory: Gear1's, Gear2's, the device VM's and the other guests' is somewhere in it.
/// An attack that reaches another VM is seen there: each VM of the test checks its own memory.
const BOARD: core::ops::Range<u64> = 0x4000_0000..0xc000_0000;
/// Each VM has at least a step's memory somewhere in between.
const STEP: usize = 128 << 20;

/// Makes all attacks on descriptor chains. Each kind leaves the device working.
pub(crate) fn all<P: Platform>(device: &mut Device<'_, P>) {
    loops(device);
    addresses(device);
    order(device);
    tables(device);
    indices(device);
    device.recover_all("attacks with chains");
    device.look_at_memory("attacks with chains");
}

/// Offers a chain that breaks a rule. virtio 1.2, 2.1.2: a device that cannot go on sets
/// DEVICE_NEEDS_RESET. The whole chain is refused, with what was right in it: half a request is
/// none.
fn refused<P: Platform>(device: &mut Device<'_, P>, name: &str, links: &[Link]) {
    device.describe_all(links);
    offered(device, name, 0);
}

/// Offers a head that leads to what breaks a rule. Nothing may be completed of such a chain.
fn offered<P: Platform>(device: &mut Device<'_, P>, name: &str, head: u16) {
    let before = device.used();
    device.offer(head);
    device.conclude(name, before, Expect::Broken);
    device.recover(name);
}

/// virtio 1.2, 2.7.5.2 and 2.7.5.1: a chain has no loop, and is no longer than the queue. A loop of
/// empty buffers adds no byte, so a limit of bytes alone would not end it.
fn loops<P: Platform>(device: &mut Device<'_, P>) {
    let data = device.at(buffer(0));
    for flags in [NEXT, NEXT | WRITE] {
        refused(device, "a loop of one", &[Link::new(data, 16, flags, 0)]);
        let two = [Link::new(data, 16, flags, 1), Link::new(data, 16, flags, 0)];
        refused(device, "a loop of two", &two);
        let all: [Link; QUEUE_SIZE as usize] =
            core::array::from_fn(|i| Link::new(data, 16, flags, (i as u16 + 1) % QUEUE_SIZE));
        refused(device, "a loop of the whole table", &all);
        let empty = [Link::new(data, 0, flags, 0)];
        refused(device, "a loop without a byte", &empty);
        for next in [QUEUE_SIZE, 0x7fff, u16::MAX] {
            let out = [Link::new(data, 16, flags, next)];
            refused(device, "a next outside of the table", &out);
        }
    }
}

/// Memory that is not the guest's, wholly or by a byte. The end of a buffer is looked at like its
/// start; both may overflow. Steps over the whole board find a VM wherever init has placed it.
fn addresses<P: Platform>(device: &mut Device<'_, P>) {
    let ram = device.layout.ram.clone();
    for (address, length) in edges(ram.start, ram.end) {
        both_ways(device, "the edge of memory", address, length);
    }
    let registers = device.layout.registers;
    for address in FOREIGN.into_iter().chain([registers, registers & !0xfff]) {
        both_ways(device, "what is no memory", address, 16);
    }
    for address in BOARD.step_by(STEP) {
        let other = address + 0x20_0000;
        if !ram.contains(&address) && !ram.contains(&other) {
            let chain = [Link::new(address, 64, WRITE, 0)];
            refused(device, "memory of others", &chain);
            both_ways(device, "memory of others", other, 4096);
        }
    }
}

/// Returns addresses and lengths at the edges of the guest's memory and of the address space. By a
/// byte, since comparisons fail by one. A sum of address and length that overflows is small again,
/// and would pass a comparison with the end. The last two are beyond every guest's address space:
/// an address that is cut to 48 bits is a good one again.
const fn edges(start: u64, end: u64) -> [(u64, u32); 16] {
    [
        (end - 15, 16),
        (end - 1, 2),
        (end, 1),
        (end - 0x1000, 0x1001),
        (end - 0x1000, u32::MAX),
        (start - 1, 1),
        (start - 1, 2),
        (start - 16, 32),
        (start, u32::MAX),
        (u64::MAX, 1),
        (u64::MAX, 2),
        (u64::MAX - 3, 16),
        (0_u64.wrapping_sub(0x1000), 0x1000),
        (u64::MAX - 0xffff_ffff + start, u32::MAX),
        (1 << 48, 16),
        (1 << 63 | start, 16),
    ]
}

/// Names an address for reading and, behind a good header, for writing. Reading leaks what a device
/// sends on, and writing destroys. Reads matter as much as writes: a frame that is sent has what
/// was read.
fn both_ways<P: Platform>(device: &mut Device<'_, P>, name: &str, address: u64, length: u32) {
    let data = device.at(buffer(0));
    refused(device, name, &[Link::new(address, length, 0, 0)]);
    let chain = [
        Link::new(data, 16, NEXT, 1),
        Link::new(address, length, NEXT | WRITE, 2),
        Link::new(data, 1, WRITE, 0),
    ];
    // The chain as a whole must not be longer than 4 GiB.
    if device.kind == Kind::Block && length != u32::MAX {
        fails(device, name, &chain);
    } else {
        refused(device, name, &chain);
    }
}

/// Reads the first sector of a disk into what the device model does not reach: the request fails by
/// itself, since a guest may well own that memory.
fn fails<P: Platform>(device: &mut Device<'_, P>, name: &str, chain: &[Link]) {
    device.store(buffer(0), &[0; 16]);
    device.describe_all(chain);
    let before = device.used();
    device.offer(0);
    device.conclude(name, before, Expect::Served(1));
    let [status] = device.load(buffer(0));
    if status != IO_ERROR {
        device.mistake(name, format_args!("status {status}, not {IO_ERROR}"));
    }
}

/// virtio 1.2, 2.7.4.2: device-writable descriptors stand behind all readable ones. A device that
/// sorts by the flag would take the readable part for data.
fn order<P: Platform>(device: &mut Device<'_, P>) {
    let data = device.at(buffer(0));
    let chain = [
        Link::new(data, 512, WRITE | NEXT, 1),
        Link::new(data, 16, 0, 0),
    ];
    refused(device, "readable behind writable", &chain);
    // The sum of lengths is a number of 32 bits in the used ring, and would be 0.
    let half = 0x8000_0000;
    let long = [Link::new(data, half, NEXT, 1), Link::new(data, half, 0, 0)];
    refused(device, "4 GiB in one chain", &long);
    refused(
        device,
        "an endless buffer",
        &[Link::new(data, u32::MAX, WRITE, 0)],
    );
}

/// Attacks with indirect tables. virtio 1.2, 2.7.5.3.1: no table within a table, and no chain
/// behind one. A table has its own size: an index within it is compared with that, and not with the
/// queue's.
fn tables<P: Platform>(device: &mut Device<'_, P>) {
    places_of_tables(device);
    nested_tables(device);
    let data = device.at(buffer(0));
    let end = device.layout.ram.end;
    let chain = [Link::new(device.at(table(0)), 16, INDIRECT, 0)];
    device.describe(table(0), 0, Link::new(data, 16, NEXT, 0));
    refused(device, "a loop in an indirect table", &chain);
    device.describe(table(0), 0, Link::new(data, 16, NEXT, 1));
    refused(device, "a next outside of an indirect table", &chain);
    device.describe(table(0), 0, Link::new(end - 1, 2, 0, 0));
    refused(device, "an indirect buffer outside of memory", &chain);
    too_many(device);
}

/// An indirect table that leads to itself, as the first link of a chain and behind a buffer. A
/// table that may lie in itself is a recursion without an end.
fn nested_tables<P: Platform>(device: &mut Device<'_, P>) {
    let data = device.at(buffer(0));
    let place = device.at(table(0));
    device.describe(table(0), 0, Link::new(place, 32, INDIRECT, 0));
    let chain = [Link::new(place, 16, INDIRECT, 0)];
    refused(device, "an indirect table in itself", &chain);
    let behind = [
        Link::new(data, 16, NEXT, 1),
        Link::new(place, 16, INDIRECT, 0),
    ];
    refused(device, "nested tables behind a buffer", &behind);
}

/// Indirect tables of a length that no table has, and outside of memory. A table's length is a
/// multiple of 16 and not 0. The table is read before any buffer is, so it is the first thing to
/// leave memory by.
fn places_of_tables<P: Platform>(device: &mut Device<'_, P>) {
    let data = device.at(buffer(0));
    let place = device.at(table(0));
    // Garbage in the table that a length of another size would reach.
    device.describe(table(0), 0, Link::new(data, 16, NEXT, 1));
    device.describe(table(0), 1, Link::new(data, 1, WRITE, 0));
    for length in [0, 1, 15, 17, 31, 0x10_0000, 0xffff_fff0, u32::MAX] {
        let chain = [Link::new(place, length, INDIRECT, 0)];
        refused(device, "an indirect table of no length", &chain);
    }
    let (end, registers) = (device.layout.ram.end, device.layout.registers);
    for address in [end, 0, u64::MAX - 15, !15, registers] {
        let chain = [Link::new(address, 32, INDIRECT, 0)];
        refused(device, "an indirect table outside of memory", &chain);
    }
}

/// More segments than a request may have, and a table of as many entries as can be. A chain is no
/// longer than the queue, in tables as well. Each segment costs the device model an entry of a
/// list: the number has to be bounded before the list grows.
fn too_many<P: Platform>(device: &mut Device<'_, P>) {
    const ENTRIES: u16 = 2000;
    let data = device.at(buffer(0));
    for index in 0..ENTRIES {
        let link = Link::new(data + u64::from(index) * 16, 16, NEXT | WRITE, index + 1);
        device.describe(table(0), index, link);
    }
    let last = Link::new(data, 1, WRITE, 0);
    device.describe(table(0), ENTRIES - 1, last);
    let place = device.at(table(0));
    let chain = [Link::new(place, 16 * u32::from(ENTRIES), INDIRECT, 0)];
    refused(device, "2000 segments", &chain);
    device.describe(table(0), ENTRIES - 1, Link::new(data, 0, NEXT | WRITE, 0));
    for index in 0..ENTRIES - 1 {
        let link = Link::new(data, 0, NEXT | WRITE, index + 1);
        device.describe(table(0), index, link);
    }
    refused(device, "2000 segments without a byte", &chain);
}

/// The available index may run ahead of the device by a queue's size at most (2.7.6). A device that
/// trusts the index takes 65,535 requests of a ring with 16 entries.
fn indices<P: Platform>(device: &mut Device<'_, P>) {
    let data = device.at(buffer(0));
    device.describe_all(&[Link::new(data, 16, 0, 0)]);
    for head in [QUEUE_SIZE, QUEUE_SIZE + 1, 0x7fff, u16::MAX] {
        offered(device, "a head outside of the table", head);
    }
    for jump in [QUEUE_SIZE + 1, 0x100, 0x7fff, 0x8000, u16::MAX] {
        let before = device.used();
        let added = device.added().wrapping_add(jump);
        device.set_added(added);
        device.conclude("an index that jumps", before, Expect::Broken);
        device.recover("an index that jumps");
    }
    back_and_forth(device);
    same_head(device);
}

/// Withdraws an offer, before and after the device has read it. The index never decrements (virtio
/// 1.2, 2.7.6.1). The difference of both indices is 65,535 then.
fn back_and_forth<P: Platform>(device: &mut Device<'_, P>) {
    let before = device.used();
    let added = device.added();
    device.offer(0);
    device.set_added(added);
    device.conclude("an offer taken back", before, Expect::Withdrawn);
    if device.needs_reset() {
        device.recover("an offer taken back");
    } else {
        device.honest_request("an offer taken back");
    }
    let added = device.added().wrapping_sub(1);
    let before = device.used();
    device.set_added(added);
    device.conclude("an index that goes back", before, Expect::Broken);
    device.recover("an index that goes back");
}

/// Offers the same request as often as the ring has entries. A descriptor that is in flight may not
/// be offered again; a device cannot rely on it. Two requests with one buffer are two writers of
/// it.
fn same_head<P: Platform>(device: &mut Device<'_, P>) {
    let place = device.at(buffer(0));
    device.describe_all(&[
        Link::new(place, BUFFER_SIZE as u32, NEXT, 1),
        Link::new(place, 1, WRITE, 0),
    ]);
    let before = device.used();
    for _ in 0..QUEUE_SIZE {
        device.offer(0);
    }
    // A disk that has the request under way breaks; one that is fast has served it by then.
    let expect = match device.kind {
        Kind::Block => Expect::Any,
        _ => Expect::Served(QUEUE_SIZE),
    };
    device.conclude("one head many times", before, expect);
}
