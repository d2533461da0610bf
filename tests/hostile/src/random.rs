//! Random attacks: chains, indices and registers made up from a seed.
//!
//! Lists have what somebody has thought of. Random attacks have combinations: a good header before
//! a bad chain, a chain that is changed while it is read, a reset among them. No verdict is
//! foretold; what must hold always is judged: memory outside of the arena is as it was, a broken
//! device says so, and a reset brings it back.

use crate::arena::{self, BUFFER_SIZE, buffer, table};
use crate::device::{Device, Expect, INDIRECT, Link, NEXT, QUEUE_SIZE, WRITE, register, status};
use crate::{Kind, Platform};

/// Attacks between two checks of all memory and resets of a working device. All memory is much to
/// look at.
const LOOK: u64 = 64;
/// A device that broke stays so until its reset.
const FRESH: u64 = 8;
/// Entries of a random indirect table, which lies behind those of the lists. As many as a queue
/// has, so that indices fit or do not fit alike.
const ENTRIES: u64 = 16;
const TABLE: u64 = table(0x4_0000);
/// Distances from its start at which a device is told that the table begins. With other distances
/// parts of two fields could form an address of the guest's own memory.
const SHIFTS: [u64; 8] = [0, 0, 0, 0, 1, 2, 8, 12];
/// One name for all: the seed tells what was done.
const NAME: &str = "a random attack";

/// A linear congruential generator. The upper bits of Knuth's multiplier are good enough, and a
/// failure is repeated by its seed on any machine.
pub(crate) struct Random(u64);

impl Random {
    /// Seeds of small numbers differ in few bits.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// Returns a number below `limit`, which is not 0.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % limit
    }

    /// Chances are in percent, which reads like a recipe.
    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// One of a list. Edges are likelier to find something than numbers of chance.
    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// Makes random attacks. The weights favour chains, which have most ways to lie.
pub(crate) fn all<P: Platform>(device: &mut Device<'_, P>, mut random: Random, operations: u64) {
    device.recover_all(NAME);
    for number in 1..=operations {
        match random.below(100) {
            0..65 => chain(device, &mut random),
            65..75 => index(device, &mut random),
            75..95 => write(device, &mut random),
            95..98 => storm(device, &mut random),
            _ => interrupted(device, &mut random),
        }
        // A random attack may leave more requests in the rings than a queue has room for.
        if device.read(register::STATUS) != status::DRIVER_OK || number.is_multiple_of(FRESH) {
            device.recover(NAME);
        }
        if number.is_multiple_of(LOOK) {
            device.look_at_memory(NAME);
        }
    }
    device.recover_all(NAME);
}

/// Offers random chains, of which some lead through a random table. A good header lets the rest be
/// looked at.
fn chain<P: Platform>(device: &mut Device<'_, P>, random: &mut Random) {
    header(device, random);
    let main = arena::descriptors(device.queue());
    for index in 0..QUEUE_SIZE {
        let first = device.kind == Kind::Block && index == 0 && random.percent(80);
        let link = if first {
            Link::new(device.header_address(), 16, NEXT, 1)
        } else {
            link(device, random, index)
        };
        device.describe(main, index, link);
    }
    for index in 0..ENTRIES as u16 {
        let link = link(device, random, index);
        device.describe(TABLE, index, link);
    }
    for _ in 0..1 + random.below(4) {
        let head = random.below(u64::from(QUEUE_SIZE)) as u16;
        let head = if random.percent(50) { 0 } else { head };
        device.offer(head);
    }
    device.conclude(NAME, 0, Expect::Any);
}

/// Writes the header of a random request. A write of a random chain's length ends before the
/// checked sectors.
fn header<P: Platform>(device: &mut Device<'_, P>, random: &mut Random) {
    let sectors = device.sectors();
    let kind = random.of(&[0, 0, 0, 1, 4, 8, 11, 13, 99]);
    let sector = match kind {
        0 => random.of(&[0, 7, sectors.wrapping_sub(1), sectors, u64::MAX]),
        _ => random.of(&[0, 7, sectors, u64::MAX]),
    };
    device.header(kind, sector);
}

/// Returns a random descriptor. Two thirds go on to a next one, so that chains have a few links, as
/// a rule.
fn link<P: Platform>(device: &Device<'_, P>, random: &mut Random, index: u16) -> Link {
    let mut flags = 0;
    for (flag, chance) in [(NEXT, 65), (WRITE, 50), (INDIRECT, 12)] {
        flags |= if random.percent(chance) { flag } else { 0 };
    }
    let next = match random.below(8) {
        0 => random.of(&[QUEUE_SIZE, u16::MAX]),
        1 => random.below(18) as u16,
        _ => index + 1,
    };
    let (address, length) = place(device, random, flags);
    Link::new(address, length as u32, flags, next)
}

/// Returns the address and the length of a random descriptor: a writable one is in the buffers, or
/// partly outside of the guest's memory. The start is aligned at times: most devices have a faster
/// way for whole pages or sectors.
fn place<P: Platform>(device: &Device<'_, P>, random: &mut Random, flags: u16) -> (u64, u64) {
    if random.percent(8) {
        return outside(device, random);
    }
    if flags & INDIRECT != 0 {
        let length = random.of(&[0, 15, 16, 48, 16 * ENTRIES, 16 * ENTRIES, 0x1000]);
        return (device.at(TABLE + random.of(&SHIFTS)), length);
    }
    let length = random.of(&[0, 1, 16, 511, 512, 513, 4096, 0x4000]);
    let start = random.below(BUFFER_SIZE - length);
    let start = start & !random.of(&[0, 511, 4095]);
    (device.at(buffer(start)), length)
}

/// Returns an address and a length that are not all in the guest's memory. Half in memory and half
/// out is the case that a check of one end misses.
fn outside<P: Platform>(device: &Device<'_, P>, random: &mut Random) -> (u64, u64) {
    let (start, end) = (device.layout.ram.start, device.layout.ram.end);
    let small = 1 + random.below(4096);
    match random.below(8) {
        0 => (end - small, small + 1 + random.below(4096)),
        1 => (start - small, small + random.below(4096)),
        2 => (end + random.below(1 << 30), small),
        3 => (start - 1 - random.below(1 << 30), 1),
        4 => (0_u64.wrapping_sub(small), small + random.below(4096)),
        5 => (1 << (32 + random.below(32)) | start, small),
        6 => (device.at(buffer(0)), u64::from(u32::MAX)),
        _ => (device.layout.registers & !0xfff, small),
    }
}

/// Moves the available index anywhere. Small jumps are plausible, and large ones not. 0x8000 is the
/// sign of a difference of 16 bits.
fn index<P: Platform>(device: &mut Device<'_, P>, random: &mut Random) {
    let jump = random.of(&[1, 2, 15, 16, 17, 0x100, 0x7fff, 0x8000, 0xfffe, 0xffff]);
    let added = device.added().wrapping_add(jump);
    device.set_added(added);
    device.conclude(NAME, 0, Expect::Any);
}

/// Writes anything into any register. An address of a table as a value makes rings of chance.
fn write<P: Platform>(device: &mut Device<'_, P>, random: &mut Random) {
    let at = match random.below(4) {
        0 => random.below(register::END / 8) * 8,
        _ => random.of(&REGISTERS),
    };
    let size = random.of(&[4, 4, 4, 4, 1, 2, 8]);
    let value = match random.below(3) {
        0 => random.below(256),
        1 => device.at(arena::descriptors(0)),
        _ => random.below(1 << 31) << 33 | random.below(1 << 31),
    };
    device.platform.write(at & !(size - 1), size, value);
    device.judge(NAME, 0, Expect::Any);
}

/// Registers that a driver writes.
const REGISTERS: [u64; 10] = [
    register::STATUS,
    register::QUEUE_READY,
    register::QUEUE_SEL,
    register::QUEUE_NUM,
    register::DESCRIPTORS,
    register::AVAILABLE,
    register::USED,
    register::DRIVER_FEATURES,
    register::QUEUE_NOTIFY,
    register::INTERRUPT_ACK,
];

/// Notifies more often than the device looks, with a ring that changes meanwhile. The device looks
/// once for many of them, with a ring that is another one by then.
fn storm<P: Platform>(device: &mut Device<'_, P>, random: &mut Random) {
    for _ in 0..200 {
        if random.percent(10) {
            device.offer(random.below(u64::from(QUEUE_SIZE)) as u16);
        }
        device.notify();
    }
    device.wait();
    device.judge(NAME, 0, Expect::Any);
}

/// Resets the device, or takes its queue away, while it works; a reset device leaves memory alone.
/// The worst moment for a device is between its look at a request and its end.
fn interrupted<P: Platform>(device: &mut Device<'_, P>, random: &mut Random) {
    device.initialise();
    device.long_requests();
    device.notify();
    let opens = random.below(4) == 0;
    if random.percent(50) {
        let queue = device.queue();
        device.write(register::QUEUE_SEL, queue.into());
        device.write(register::QUEUE_READY, opens.into());
        // A queue that is open goes on.
        if opens {
            device.wait();
        } else if !device.buffers_rest(Device::wait) {
            device.violation(
                NAME,
                format_args!("memory was written after its queue was closed"),
            );
        }
    } else {
        device.reset();
        if !device.buffers_rest(Device::wait) {
            device.violation(NAME, format_args!("memory was written after a reset"));
        }
    }
    device.judge(NAME, 0, Expect::Any);
}
