//! Honest requests by hand, and attacks with what a request says rather than with its rings.
//!
//! The rings are right here, so a device may not break: it has to answer each request, with an
//! error if need be, and the answer is judged. An honest request after each attack shows that the
//! device still does what a good driver asks, byte by byte: a device that ignores its driver has
//! survived nothing.

use crate::arena::{self, BUFFER_SIZE, table};
use crate::device::{Device, Expect, Link, NEXT, QUEUE_SIZE, WRITE, register};
use crate::offers::{DATA, HEADER, OK, Piece, STATUS, segments};
use crate::{Kind, Platform, SECTOR, WRITTEN_SECTORS, fs, gpu, input, net, sector_byte, vsock};

/// Address of a range to discard. Apart from the header, as a driver has it.
const RANGE: u64 = table(0x6_1000);
/// Bytes before and behind the data that must not change. A device that writes too much does so
/// right behind the buffer, as a rule. A cache line, so that a copy of whole lines shows.
const GUARD: u64 = 64;
/// Types of a disk's requests (virtio 1.2, 5.2.6). The type is the first word of a request's
/// header.
mod request {
    /// Reads sectors.
    pub(super) const IN: u32 = 0;
    /// Writes sectors.
    pub(super) const OUT: u32 = 1;
    /// Makes earlier writes last.
    pub(super) const FLUSH: u32 = 4;
    /// Reads the serial number, of 20 bytes.
    pub(super) const GET_ID: u32 = 8;
    /// Gives up ranges of sectors.
    pub(super) const DISCARD: u32 = 11;
    /// Writes zeroes to ranges of sectors.
    pub(super) const WRITE_ZEROES: u32 = 13;
}

/// VIRTIO_BLK_S_IOERR. A place that the disk does not have.
pub(crate) const IO_ERROR: u8 = 1;
/// VIRTIO_BLK_S_UNSUPP. A type that a device does not know has an answer of its own, which tells a
/// driver from a disk with a fault.
const UNSUPPORTED: u8 = 2;

/// Makes all attacks. The device has to work before, or its failures would be taken for effects.
pub(crate) fn all<P: Platform>(device: &mut Device<'_, P>) {
    device.recover_all("before attacks with requests");
    match device.kind {
        Kind::Block => block(device),
        Kind::Net => net::all(device),
        Kind::Control => net::commands(device),
        Kind::Console => console(device),
        Kind::Rng => rng(device),
        Kind::Input => input::all(device),
        Kind::Vsock => vsock::all(device),
        Kind::Fs => fs::all(device),
        Kind::Gpu => gpu::all(device),
        Kind::Cursor => gpu::cursors(device),
    }
    device.recover_all("attacks with requests");
    device.look_at_memory("attacks with requests");
}

impl<P: Platform> Device<'_, P> {
    /// Does a request as a good driver would, and checks all that came of it. A device that
    /// survived an attack by ignoring its driver has not survived.
    pub(crate) fn honest_request(&mut self, name: &str) {
        self.is_honest(name);
    }

    /// Does an honest request; returns whether the device did it.
    pub(crate) fn is_honest(&mut self, name: &str) -> bool {
        self.counts.honest += 1;
        // An attack's requests may still be under way, and their ends are not this request's.
        self.settle();
        let before = self.used();
        let guard = [0xa5; GUARD as usize];
        let guards = [DATA - GUARD, DATA + self.honest_length()];
        for place in guards {
            self.store(place, &guard);
        }
        let written = self.offer_honest();
        self.notify();
        self.settle_patiently();
        let done = self.used().wrapping_sub(before);
        if done != 1 {
            let now = self.read(register::STATUS);
            let seen = format_args!("{done} completed, status {now:#x}");
            self.mistake(name, format_args!("then an honest request: {seen}"));
            return false;
        }
        self.look_at_used(name, before, written);
        let mut guards = guards.into_iter();
        if !guards.all(|place| self.load(place) == guard) {
            self.mistake(name, format_args!("more than the buffer was written"));
        }
        self.look_at_data(name)
    }

    /// Checks what the used ring tells of an honest request. Only queues of the usual size tell
    /// where the entry is. The length in a used entry tells a driver how much to trust (virtio 1.2,
    /// 2.7.8).
    fn look_at_used(&mut self, name: &str, before: u16, written: u32) {
        let entry = arena::used(self.queue()) + 4 + 8 * u64::from(before % QUEUE_SIZE);
        let [head, told] = [0, 4].map(|at| u32::from_le_bytes(self.load(entry + at)));
        if before < QUEUE_SIZE && (head != 0 || told != written) {
            let seen = format_args!("{told} bytes of {written}, head {head}");
            self.mistake(name, format_args!("then an honest request: {seen}"));
        }
    }

    /// Bytes that the device writes as data. 0: the answer is a status or a frame, and stands
    /// elsewhere.
    fn honest_length(&self) -> u64 {
        match self.kind {
            Kind::Block => SECTOR,
            Kind::Rng => 100,
            _ => 0,
        }
    }

    /// Offers an honest request; returns how many bytes the device is to write. The least that each
    /// type of device answers: a sector, a frame, a line, a light.
    fn offer_honest(&mut self) -> u32 {
        let out = |device: &mut Self, bytes: &[u8]| {
            device.store(HEADER, bytes);
            device.offer_pieces(&[(HEADER, bytes.len() as u32, false)]);
            0
        };
        match self.kind {
            Kind::Block => {
                let sector = self.honest_sector();
                self.store(DATA, &[0; SECTOR as usize]);
                self.offer_block(request::IN, sector, &[(DATA, SECTOR as u32, true)]);
                SECTOR as u32 + 1
            }
            Kind::Rng => {
                self.store(DATA, &[0; 100]);
                self.offer_pieces(&[(DATA, 100, true)]);
                100
            }
            Kind::Net => out(self, &net::ARP),
            Kind::Control => {
                self.store(STATUS, &[0xff]);
                self.offer_command(&net::ONE_PAIR);
                1
            }
            Kind::Console => out(self, b"an honest line\n"),
            Kind::Input => out(self, &input::LIGHT),
            Kind::Fs => {
                self.offer_mount();
                0
            }
            Kind::Gpu => {
                self.offer_displays();
                0
            }
            Kind::Cursor => {
                self.offer_cursor();
                0
            }
            Kind::Vsock => {
                let packet = vsock::honest(self.cid());
                out(self, &packet)
            }
        }
    }

    /// Data must be what the disk holds: a sector has a known content. Returns whether it is.
    /// Entropy of zeroes is taken for none: the chance of so many is nil.
    fn look_at_data(&mut self, name: &str) -> bool {
        let good = match self.kind {
            Kind::Block => {
                let byte = sector_byte(self.honest_sector());
                let data: [u8; SECTOR as usize] = self.load(DATA);
                self.load::<1>(STATUS) == [OK] && data == [byte; SECTOR as usize]
            }
            Kind::Rng => self.load::<100>(DATA) != [0; 100],
            Kind::Control => self.load::<1>(STATUS) == [OK],
            Kind::Fs => self.has_answer(),
            Kind::Gpu => self.has_displays(),
            Kind::Net | Kind::Console | Kind::Input | Kind::Vsock | Kind::Cursor => true,
        };
        if !good {
            self.mistake(name, format_args!("then an honest request: wrong data"));
        }
        good
    }

    /// Returns the sector of this honest request: over time all that the attacks must not write. A
    /// stride that shares no factor with most sizes visits all of them.
    fn honest_sector(&mut self) -> u64 {
        let sectors = self.sectors();
        let rest = sectors.saturating_sub(WRITTEN_SECTORS).max(1);
        sectors - 1 - self.counts.honest * 7919 % rest
    }

    /// Returns the sectors of the disk. `capacity` is the first field of the configuration (virtio
    /// 1.2, 5.2.4).
    pub(crate) fn sectors(&mut self) -> u64 {
        let low = self.read(register::CONFIG);
        u64::from(self.read(register::CONFIG + 4)) << 32 | u64::from(low)
    }

    /// Offers a chain of pieces. Readable pieces come first, unless an attack says otherwise
    /// (virtio 1.2, 2.7.4.2).
    pub(crate) fn offer_pieces(&mut self, pieces: &[Piece]) {
        let table = arena::descriptors(self.queue());
        for (index, (place, length, writable)) in pieces.iter().enumerate() {
            let index = index as u16;
            let last = usize::from(index) + 1 == pieces.len();
            let link = Link {
                address: self.at(*place),
                length: *length,
                flags: if *writable { WRITE } else { 0 } | if last { 0 } else { NEXT },
                next: index + 1,
            };
            self.describe(table, index, link);
        }
        self.offer(0);
    }

    /// Writes a disk's header into the tables.
    pub(crate) fn header(&mut self, kind: u32, sector: u64) {
        let mut header = [0; 16];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..].copy_from_slice(&sector.to_le_bytes());
        self.store(HEADER, &header);
    }

    /// Returns where [`Self::header`] puts it.
    pub(crate) fn header_address(&self) -> u64 {
        self.at(HEADER)
    }

    /// Writes a range to discard. virtio 1.2, 5.2.6: sector, number of sectors, flags. One entry of
    /// the list that DISCARD and WRITE_ZEROES take.
    fn range(&mut self, sector: u64, count: u32, flags: u32) {
        let mut range = [0; 16];
        range[..8].copy_from_slice(&sector.to_le_bytes());
        range[8..12].copy_from_slice(&count.to_le_bytes());
        range[12..].copy_from_slice(&flags.to_le_bytes());
        self.store(RANGE, &range);
    }

    /// Header, data, status: the framing of every request of a disk. The status is spoilt before,
    /// or an answer that never came would look like the last one.
    fn offer_block(&mut self, kind: u32, sector: u64, pieces: &[Piece]) {
        self.header(kind, sector);
        self.store(STATUS, &[0xff]);
        let mut all = [(STATUS, 1, true); 6];
        all[0] = (HEADER, 16, false);
        all[1..=pieces.len()].copy_from_slice(pieces);
        self.offer_pieces(&all[..pieces.len() + 2]);
    }

    /// Offers some requests that take their time, without a notification. For attacks on a device
    /// that is busy.
    pub(crate) fn long_requests(&mut self) {
        // Half of the queue, each of 256 KiB.
        for _ in 0..8 {
            match self.kind {
                Kind::Block => self.offer_block(request::IN, 0, &[(DATA, 0x4_0000, true)]),
                Kind::Rng => self.offer_pieces(&[(DATA, 0x4_0000, true)]),
                _ => self.offer_pieces(&[(DATA, 0x4_0000, false)]),
            }
        }
    }

    /// Makes a request that the rings allow. Allowed by the rings, and odd in content: the device
    /// may refuse by status, and not break.
    pub(crate) fn odd(&mut self, name: &str, pieces: &[Piece], expect: Expect) {
        let before = self.used();
        self.offer_pieces(pieces);
        self.conclude(name, before, expect);
        if expect != Expect::Served(1) {
            self.recover(name);
        }
    }
}

/// Offers a disk's request and checks its status. One byte, written last. A device that answers has
/// read the type, the sector and the lengths, and believed none of them.
fn verdict<P: Platform>(
    device: &mut Device<'_, P>,
    name: &str,
    (kind, sector): (u32, u64),
    pieces: &[Piece],
    expected: u8,
) {
    let before = device.used();
    device.offer_block(kind, sector, pieces);
    device.conclude(name, before, Expect::Served(1));
    let [status] = device.load(STATUS);
    if status != expected {
        device.mistake(name, format_args!("status {status}, not {expected}"));
    }
}

/// Types that there are not, and those of other devices' features. A disk without data to read or
/// write is no fault: lengths of 0 are multiples of a sector.
fn block<P: Platform>(device: &mut Device<'_, P>) {
    for kind in [2, 3, 5, 6, 7, 9, 10, 12, 14, 0x8000_0000, u32::MAX] {
        let pieces = sectors_of_data(1, true);
        let name = "an unknown type";
        verdict(device, name, (kind, 0), &pieces, UNSUPPORTED);
    }
    let sectors = device.sectors();
    places(device, sectors);
    let [written, read] = [true, false].map(|write| sectors_of_data(1, write));
    let short = [(DATA, 3, true)];
    let allowed: [(&str, (u32, u64), &[Piece]); 8] = [
        ("no data to read", (request::IN, 0), &[]),
        ("no data to write", (request::OUT, 0), &[]),
        ("the wrong way", (request::OUT, 0), &written),
        ("the wrong way", (request::IN, 0), &read),
        ("a flush with data", (request::FLUSH, 7), &written),
        ("a short identity", (request::GET_ID, 0), &short),
        ("no identity", (request::GET_ID, 0), &[]),
        ("a good write", (request::OUT, 5), &read),
    ];
    for (name, asked, pieces) in allowed {
        verdict(device, name, asked, pieces, OK);
    }
    ranges(device, sectors);
    shapes(device);
}

/// Returns the piece of this number of sectors. A device takes any framing of it.
const fn sectors_of_data(count: u32, write: bool) -> [Piece; 1] {
    [(DATA, count * SECTOR as u32, write)]
}

/// Reads and writes beyond the end of the disk, and of a part of a sector. Sums of sector and
/// length overflow at several of these. Each is written as well as read: a check of one direction
/// alone is a usual slip.
fn places<P: Platform>(device: &mut Device<'_, P>, sectors: u64) {
    // The last sector with a second one behind it, the first that is not there, and those whose
    // place in bytes does not fit into 64 bits.
    let beyond = [
        sectors - 1,
        sectors,
        1 << 55,
        (1 << 55) - 1,
        u64::MAX / 512,
        u64::MAX,
    ];
    let both = [(request::IN, true), (request::OUT, false)];
    for sector in beyond {
        for (kind, write) in both {
            let pieces = sectors_of_data(2, write);
            verdict(device, "sectors beyond", (kind, sector), &pieces, IO_ERROR);
        }
    }
    for length in [1, 511, 513, 1023] {
        for (kind, write) in both {
            let pieces = [(DATA, length, write)];
            verdict(device, "part of a sector", (kind, 0), &pieces, IO_ERROR);
        }
    }
}

/// VIRTIO_BLK_T_DISCARD takes a list; flags are reserved but for the unmap bit. A length of no
/// whole entry, and none at all, are refused: what is left of a list would be read from the next
/// buffer.
fn ranges<P: Platform>(device: &mut Device<'_, P>, sectors: u64) {
    let cases = [
        (sectors, 1, 0, IO_ERROR),
        (sectors - 1, 2, 0, IO_ERROR),
        (u64::MAX, 1, 0, IO_ERROR),
        (1 << 55, 1, 0, IO_ERROR),
        (0, u32::MAX, 0, IO_ERROR),
        (0, 1, 2, UNSUPPORTED),
        (0, 1, u32::MAX, UNSUPPORTED),
        (8, 0, 0, OK),
        (8, 8, 0, OK),
    ];
    for (sector, count, flags, expected) in cases {
        device.range(sector, count, flags);
        of_range(device, "a range", 16, expected);
    }
    for length in [0, 1, 15, 17, 0x1000] {
        of_range(device, "ranges of no length", length, IO_ERROR);
    }
}

/// Discards a range of this many bytes, and writes zeroes to it.
fn of_range<P: Platform>(device: &mut Device<'_, P>, name: &str, length: u32, expected: u8) {
    for kind in [request::DISCARD, request::WRITE_ZEROES] {
        let pieces = [(RANGE, length, false)];
        verdict(device, name, (kind, 0), &pieces, expected);
    }
}

/// Requests that are cut in odd places, or have not all that they must have. Without a byte for the
/// status there is no way to answer: the device breaks. A header of 15 bytes has no sector; a
/// driver that says so is broken, and so is the queue afterwards.
fn shapes<P: Platform>(device: &mut Device<'_, P>) {
    let header = (HEADER, 16, false);
    let broken: [(&str, &[Piece]); 5] = [
        ("no room for a status", &[header]),
        ("only a status", &[(STATUS, 1, true)]),
        ("a read-only status", &[header, (STATUS, 1, false)]),
        ("a short header", &[(HEADER, 15, false), (STATUS, 1, true)]),
        ("an empty status", &[header, (STATUS, 0, true)]),
    ];
    for (name, pieces) in broken {
        device.header(request::IN, 0);
        device.odd(name, pieces, Expect::Broken);
    }
    in_crumbs(device);
    over_each_other(device);
}

/// A request that takes all descriptors of the queue. The framing is the driver's choice (virtio
/// 1.2, 2.7.4): a device that reads a header by its first descriptor reads two bytes here.
fn in_crumbs<P: Platform>(device: &mut Device<'_, P>) {
    device.header(request::IN, 0);
    let crumbs: [Piece; QUEUE_SIZE as usize] = core::array::from_fn(|i| match i {
        0..8 => (HEADER + 2 * i as u64, 2, false),
        8..15 => (DATA + i as u64, 73, true),
        _ => (STATUS, 2, true),
    });
    device.odd("a request in crumbs", &crumbs, Expect::Served(1));
}

/// Pieces of a request over each other: the status over the data, and what is read over what is
/// written. virtio forbids no overlap, so the device must live with it. Which of two writes to one
/// place stays is open; that nothing else is written is not.
fn over_each_other<P: Platform>(device: &mut Device<'_, P>) {
    device.header(request::IN, 0);
    let over = [
        (HEADER, 16, false),
        (DATA, 512, true),
        (DATA, 512, true),
        (DATA, 1, true),
    ];
    device.odd("a status over the data", &over, Expect::Served(1));
    let itself = [(DATA, 512 + 16, false), (DATA, 513, true)];
    device.store(DATA, &[0; 16]);
    device.odd("a request over itself", &itself, Expect::Served(1));
}

/// Output of any length is taken; input has no buffer here. The emergency write is a feature that
/// the device does not offer (virtio 1.2, 5.3.4), and its field is none then.
fn console<P: Platform>(device: &mut Device<'_, P>) {
    for length in [0, 1, 0x1_0000, 0x1_0001, BUFFER_SIZE as u32 - 0x1000] {
        let pieces = [(DATA, length, false)];
        device.odd("output of any length", &pieces, Expect::Served(1));
    }
    device.odd("writable output", &[(DATA, 72, true)], Expect::Served(1));
    segments(device);
    control_queues(device);
    for size in [1, 2, 4, 8] {
        let (at, value) = (register::CONFIG + 8, 0x4141_4141_4141_4141);
        device.platform.write(at, size, value);
        device.honest_request("an emergency write");
    }
}

/// Control messages (virtio 1.2, 5.3.6) to queues that there are only with more ports. They are
/// there with VIRTIO_CONSOLE_F_MULTIPORT alone, which the device does not offer.
fn control_queues<P: Platform>(device: &mut Device<'_, P>) {
    device.store(HEADER, &[0xff; 8]);
    for queue in [2, 3, 4, 5, 64, 0xffff] {
        device.set_up(queue, QUEUE_SIZE.into(), device.rings(0));
        device.write(register::QUEUE_READY, 1);
        device.write(register::QUEUE_NOTIFY, queue.into());
        if device.read(register::QUEUE_READY) != 0 {
            device.mistake("a control queue", format_args!("{queue} is ready"));
        }
        device.honest_request("a control queue");
    }
}

/// The device says how much it wrote; any number is right. A request without room ends with 0
/// bytes, and readable descriptors are passed over.
fn rng<P: Platform>(device: &mut Device<'_, P>) {
    for length in [0, 1, 4095, 4096, 4097, BUFFER_SIZE as u32 - 0x1000] {
        let pieces = [(DATA, length, true)];
        device.odd("entropy of any length", &pieces, Expect::Served(1));
    }
    device.odd("readable entropy", &[(DATA, 72, false)], Expect::Served(1));
    let pieces = [(DATA, 16, false), (DATA, 16, true), (DATA, 16, true)];
    device.odd("entropy over itself", &pieces, Expect::Served(1));
    segments(device);
}
