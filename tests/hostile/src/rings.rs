//! Attacks with queues themselves: their size, where their rings lie, when they are ready.
//!
//! A queue that is set up wrongly must not become ready: the device model maps its rings once, and
//! uses the mapping without a look at each access. What is accepted here is accessible for ever
//! after.
//!
//! | attack | mistake that it finds |
//! |---|---|
//! | sizes that no queue has | a mask made of a size that is no power of two |
//! | rings outside of memory | a check of the address without the length |
//! | rings out of line | atomic accesses that fault |
//! | rings over each other | a value that was checked and is read again |
//! | changes while in use | a mapping that is used after the queue was closed |

use crate::arena::{self, buffer, table};
use crate::device::{Device, Expect, Link, NEXT, QUEUE_SIZE, WRITE, register, status};
use crate::{Kind, Platform};

/// Makes all attacks on rings. Queues are set up anew for each attack.
pub(crate) fn all<P: Platform>(device: &mut Device<'_, P>) {
    sizes(device);
    places(device);
    overlaps(device);
    moments(device);
    device.recover_all("attacks with rings");
    device.look_at_memory("attacks with rings");
}

/// Makes a queue ready that cannot be one. The device may refuse at once or break: it may not use
/// such a queue. DRIVER_OK is written all the same, as a driver would that does not read back.
fn refused<P: Platform>(device: &mut Device<'_, P>, name: &str, size: u32, rings: [u64; 3]) {
    device.negotiate();
    let queue = device.queue();
    device.set_up(queue, size, rings);
    device.write(register::QUEUE_READY, 1);
    if device.read(register::QUEUE_READY) != 0 {
        device.mistake(name, format_args!("the queue is ready"));
    }
    device.write(register::STATUS, status::DRIVER_OK);
    device.conclude(name, 0, Expect::Broken);
}

/// A power of two, and no more than QueueNumMax (virtio 1.2, 2.7 and 4.2.2). Sizes beyond 16 bits
/// are cut to a good one by a device that stores them in a word.
fn sizes<P: Platform>(device: &mut Device<'_, P>) {
    let most = device.read(register::QUEUE_NUM_MAX);
    let rings = device.rings(device.queue());
    for size in [
        0,
        3,
        15,
        2 * most,
        0x8000,
        65535,
        0x1_0000,
        0x1_0010,
        u32::MAX,
    ] {
        refused(device, "a size that no queue has", size, rings);
    }
    for size in [1, most] {
        served(device, size);
    }
}

/// A queue of this size works. The largest and the smallest queue: an entry of a queue of one wraps
/// with each request.
fn served<P: Platform>(device: &mut Device<'_, P>, size: u32) {
    device.negotiate();
    for queue in 0..device.queue() + 1 {
        device.set_up(queue, size, device.rings(queue));
        device.write(register::QUEUE_READY, 1);
    }
    device.write(register::STATUS, status::DRIVER_OK);
    let now = device.read(register::STATUS);
    if now != status::DRIVER_OK {
        device.mistake("a size that a queue may have", format_args!("{now:#x}"));
    }
    device.counts.operations += 1;
    if size >= 2 {
        device.honest_request("a size that a queue may have");
    }
}

/// The three rings have alignments of 16, 2 and 4 (virtio 1.2, 2.7). Every ring by itself: the
/// three have different lengths, and each has its own check.
fn places<P: Platform>(device: &mut Device<'_, P>) {
    let good = device.rings(device.queue());
    let bad = outside(device);
    for ring in 0..3 {
        for address in bad {
            let mut rings = good;
            rings[ring] = address;
            refused(device, "a ring outside of memory", QUEUE_SIZE.into(), rings);
        }
    }
    // Descriptors, available and used; 8 is a multiple of everything but 16.
    for (ring, odd) in [(0, 8), (0, 1), (1, 1), (2, 2), (2, 1)] {
        let mut rings = good;
        rings[ring] += odd;
        refused(device, "a ring out of line", QUEUE_SIZE.into(), rings);
    }
    // The last descriptor, the last entries, lie behind the end.
    let most = device.read(register::QUEUE_NUM_MAX);
    let end = device.layout.ram.end;
    for (ring, room) in [(0, 16 * most - 16), (1, 2 * most), (2, 8 * most)] {
        let mut rings = good;
        rings[ring] = (end - u64::from(room)) & !15;
        refused(device, "a ring across the end of memory", most, rings);
    }
}

/// Returns addresses at which no ring may lie. Behind the guest's memory, before it, and where
/// other things lie. Two of the addresses are registers of the board and a page of the device
/// model, as the device VM has them.
fn outside<P: Platform>(device: &Device<'_, P>) -> [u64; 12] {
    let (start, end) = (device.layout.ram.start, device.layout.ram.end);
    [
        0,
        start - 0x1000,
        start - 16,
        end - 16,
        end,
        end + 0x1000,
        !15,
        !0xfff - 0x1000,
        1 << 48,
        device.layout.registers & !0xfff,
        0x1000_0000,
        0x0c08_0000,
    ]
}

/// Rings over each other and over buffers. What the device makes of it is its own affair, as long
/// as it stays in the arena. A device that reads an index twice may find what it has just written
/// as a used entry.
fn overlaps<P: Platform>(device: &mut Device<'_, P>) {
    let queue = device.queue();
    let [descriptors, available, used] = device.rings(queue);
    let data = device.at(buffer(0));
    let cases = [
        [descriptors, available, descriptors],
        [descriptors, available, available],
        [descriptors, available, available & !3],
        [descriptors, available, descriptors + 16],
        [descriptors, descriptors, used],
        [descriptors, descriptors + 2, used],
        [descriptors, descriptors, descriptors],
        [descriptors, available, data & !3],
    ];
    for rings in cases {
        overlap(device, rings);
    }
}

/// The device reads its own output then. Four requests, so that each ring is read after it was
/// written.
fn overlap<P: Platform>(device: &mut Device<'_, P>, rings: [u64; 3]) {
    device.negotiate();
    let queue = device.queue();
    let name = "rings over each other";
    for queue in 0..queue {
        device.set_up(queue, QUEUE_SIZE.into(), device.rings(queue));
        device.write(register::QUEUE_READY, 1);
    }
    device.set_up(queue, QUEUE_SIZE.into(), rings);
    device.write(register::QUEUE_READY, 1);
    device.write(register::STATUS, status::DRIVER_OK);
    let data = device.at(buffer(0));
    device.store(buffer(0), &[0; 16]);
    let header = Link::new(data, 16, NEXT, 1);
    let sector = Link::new(data + 0x1000, 513, WRITE, 0);
    device.describe_all(&[header, sector]);
    for _ in 0..4 {
        device.offer(0);
        device.conclude(name, 0, Expect::Any);
    }
    if device.kind == Kind::Rng {
        random_rings(device);
    }
    device.recover(name);
}

/// Random bytes as descriptors and indices: the device writes them there itself. The bytes cannot
/// be foretold, and so no list of attacks has what comes of them.
fn random_rings<P: Platform>(device: &mut Device<'_, P>) {
    device.initialise();
    for place in [arena::descriptors(0), arena::available(0), arena::used(0)] {
        let into = Link::new(device.at(place), 0x200, WRITE, 0);
        device.describe_all(&[into]);
        for _ in 0..4 {
            device.offer(0);
            device.conclude("rings as buffers", 0, Expect::Any);
        }
    }
}

/// Changes of a queue while it is in use. QueueReady is 1 for a queue in use; a change of its rings
/// then has no effect. The specification leaves open when the device notices; at no time may it use
/// both.
fn moments<P: Platform>(device: &mut Device<'_, P>) {
    device.recover_all("before a queue is changed");
    // A device with queues behind this one was set up up to the last of them.
    let queue = device.queue();
    device.write(register::QUEUE_SEL, queue.into());
    device.write(register::QUEUE_READY, 0);
    let before = device.used();
    device.offer(0);
    device.conclude("a queue that is not ready", before, Expect::Served(0));
    device.write(register::QUEUE_READY, 1);
    device.conclude("a queue made ready too late", before, Expect::Any);
    device.recover("a queue made ready too late");

    let elsewhere = [device.at(table(0)); 3];
    device.set_up(queue, 1, elsewhere);
    device.honest_request("rings changed while in use");
    device.write(register::QUEUE_READY, 1);
    device.honest_request("ready said twice");
    toggles(device);
    resets(device);
}

/// A queue switched off and on while requests wait. Values beyond 1 are no ready.
fn toggles<P: Platform>(device: &mut Device<'_, P>) {
    for ready in [0, 1, 0, 2, u32::MAX, 0] {
        device.offer(0);
        device.notify();
        device.write(register::QUEUE_READY, ready);
        device.judge("ready in mid-flight", 0, Expect::Any);
    }
    device.recover("ready in mid-flight");
}

/// Resets in the middle of requests, after which the device leaves all memory alone. Eight times,
/// since the request is in another stage at each reset.
fn resets<P: Platform>(device: &mut Device<'_, P>) {
    let name = "a reset in mid-request";
    for _ in 0..8 {
        device.recover(name);
        device.long_requests();
        device.notify();
        device.reset();
        let rests = device.buffers_rest(|device| {
            device.notify();
            device.wait();
        });
        if !rests {
            device.violation(name, format_args!("memory was written after it"));
        }
        device.judge(name, 0, Expect::Any);
    }
    device.recover(name);
}
