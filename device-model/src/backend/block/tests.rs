//! Tests of the disk on temporary files: each request type, refusals, several requests at once.

use std::fs;

use super::Block;
use crate::state::Word;
use crate::testing::{DATA, Directory, Guest, INDIRECT, NEXT, RAM, RAM_SIZE, WRITE};
use crate::transport::register;

mod exchange;
mod flight;
mod hostile;
mod late;
mod media;
mod pauses;
mod resumption;
mod service;

const SECTORS: usize = 64;
const HEADER: u64 = DATA;
const STATUS: u64 = DATA + 0x800;
const BUFFER: u64 = DATA + 0x1000;
const FLUSH: u64 = 1 << 9;
const MQ: u64 = 1 << 12;
const NEEDS_RESET: u32 = 0x40;

struct Disk {
    // Removed last.
    guest: Guest,
    path: String,
    _directory: Directory,
}

impl Disk {
    fn new() -> Self {
        Self::with(false)
    }

    fn with(read_only: bool) -> Self {
        let directory = Directory::new("disk");
        let content: Vec<u8> = (0..SECTORS * 512).map(|i| (i / 512) as u8).collect();
        let path = directory.file("disk", &content);
        let block = Block::open(&path, read_only).unwrap();
        let mut guest = Guest::new(Box::new(block));
        guest.initialise(FLUSH, 1);
        Self {
            guest,
            path,
            _directory: directory,
        }
    }

    /// Does a request with these pieces between header and status; returns the status.
    fn request(&mut self, kind: u32, sector: u64, pieces: &[(u64, u32, bool)]) -> u8 {
        let before = self.guest.used_index(0);
        self.offer(kind, sector, pieces);
        self.guest.work();
        assert_eq!(self.guest.used_index(0), before.wrapping_add(1));
        self.guest.get(STATUS, 1)[0]
    }

    fn offer(&mut self, kind: u32, sector: u64, pieces: &[(u64, u32, bool)]) {
        self.guest.put(HEADER, &u64::from(kind).to_le_bytes());
        self.guest.put(HEADER + 8, &sector.to_le_bytes());
        self.guest.put(STATUS, &[0xff]);
        let mut all = vec![(HEADER, 16, false)];
        all.extend(pieces);
        all.push((STATUS, 1, true));
        self.guest.request(0, 0, &all);
    }

    fn file(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }
}

#[test]
fn capacity_and_features_show() {
    let disk = Disk::new();
    assert_eq!(disk.guest.read(register::DEVICE_ID), 2);
    assert_eq!(disk.guest.read(register::CONFIG), SECTORS as u32);
    assert_eq!(disk.guest.read(register::CONFIG + 12), 126);
    assert_eq!(disk.guest.read(register::CONFIG + 20), 512);
}

#[test]
fn a_read_fills_all_segments() {
    let mut disk = Disk::new();
    let pieces = [
        (BUFFER, 512, true),
        (BUFFER + 0x2004, 100, true),
        (BUFFER + 0x4000, 412, true),
    ];
    assert_eq!(disk.request(0, 7, &pieces), 0);
    assert_eq!(disk.guest.get(BUFFER, 512), [7; 512]);
    assert_eq!(disk.guest.get(BUFFER + 0x2004, 100), [8; 100]);
    assert_eq!(disk.guest.get(BUFFER + 0x4000, 413)[411..], [8, 0]);
    assert_eq!(disk.guest.used(0, 0), (0, 1025));
}

#[test]
fn a_write_reaches_the_file_and_a_flush_succeeds() {
    let mut disk = Disk::new();
    disk.guest.put(BUFFER, &[0xaa; 1024]);
    assert_eq!(
        disk.request(1, 3, &[(BUFFER, 1000, false), (BUFFER + 1000, 24, false)]),
        0
    );
    assert_eq!(disk.guest.used(0, 0), (0, 1));
    assert_eq!(disk.request(4, 0, &[]), 0);
    let file = disk.file();
    assert_eq!(file[3 * 512..5 * 512], [0xaa; 1024]);
    assert_eq!((file[3 * 512 - 1], file[5 * 512]), (2, 5));
}

#[test]
fn a_read_only_disk_is_not_written() {
    let mut disk = Disk::with(true);
    let before = disk.file();
    assert_eq!(disk.guest.read(register::DEVICE_FEATURES) & 1 << 5, 1 << 5);
    assert_eq!(disk.request(1, 0, &[(BUFFER, 512, false)]), 1);
    assert_eq!(disk.request(13, 0, &[(BUFFER, 16, false)]), 1);
    assert_eq!(disk.file(), before);
}

#[test]
fn what_lies_beyond_the_disk_is_an_error_and_nothing_else() {
    let mut disk = Disk::new();
    let before = disk.file();
    for sector in [SECTORS as u64 - 1, SECTORS as u64, 1 << 55, u64::MAX] {
        assert_eq!(disk.request(0, sector, &[(BUFFER, 1024, true)]), 1);
        assert_eq!(disk.request(1, sector, &[(BUFFER, 1024, false)]), 1);
    }
    assert_eq!(disk.request(1, 0, &[(BUFFER, 511, false)]), 1);
    assert_eq!(disk.file(), before);
}

#[test]
fn the_id_is_the_end_of_the_path() {
    let mut disk = Disk::new();
    assert_eq!(disk.request(8, 0, &[(BUFFER, 20, true)]), 0);
    assert!(disk.path.as_bytes().ends_with(&disk.guest.get(BUFFER, 20)));
}

#[test]
fn discarded_and_zeroed_ranges_read_as_zero() {
    let mut disk = Disk::new();
    let ranges: Vec<u8> = [(1_u64, 2_u32, 0_u32), (8, 1, 0)]
        .iter()
        .flat_map(|(sector, count, flags)| {
            [
                sector.to_le_bytes().to_vec(),
                count.to_le_bytes().to_vec(),
                flags.to_le_bytes().to_vec(),
            ]
        })
        .flatten()
        .collect();
    disk.guest.put(BUFFER, &ranges);
    assert_eq!(disk.request(13, 0, &[(BUFFER, 32, false)]), 0);
    let file = disk.file();
    assert_eq!(file[512..3 * 512], [0; 1024]);
    assert_eq!(
        (file[511], file[3 * 512], file[8 * 512], file[9 * 512]),
        (0, 3, 0, 9)
    );
    assert_eq!(disk.request(11, 0, &[(BUFFER, 32, false)]), 0);
    // Half a range; a range beyond the end; flags that do not exist.
    assert_eq!(disk.request(13, 0, &[(BUFFER, 24, false)]), 1);
    disk.guest.put(BUFFER, &(SECTORS as u64).to_le_bytes());
    assert_eq!(disk.request(11, 0, &[(BUFFER, 16, false)]), 1);
    disk.guest.put(BUFFER + 12, &1_u32.to_le_bytes());
    assert_eq!(disk.request(11, 0, &[(BUFFER, 16, false)]), 2);
}

#[test]
fn unknown_requests_are_unsupported() {
    let mut disk = Disk::new();
    assert_eq!(disk.request(77, 0, &[]), 2);
}

#[test]
fn indirect_descriptors_work() {
    let mut disk = Disk::new();
    let table = DATA + 0x8000;
    disk.guest.put(HEADER, &[0; 16]);
    disk.guest.put(HEADER + 8, &[5]);
    disk.guest.describe(table, 0, (HEADER, 16, NEXT, 1));
    disk.guest
        .describe(table, 1, (BUFFER, 512, NEXT | WRITE, 2));
    disk.guest.describe(table, 2, (STATUS, 1, WRITE, 0));
    let descriptors = disk.guest.rings[0].descriptors();
    disk.guest
        .describe(descriptors, 9, (table, 48, INDIRECT, 0));
    disk.guest.offer(0, 9);
    disk.guest.work();
    assert_eq!(disk.guest.used(0, 0), (9, 513));
    assert_eq!(disk.guest.get(BUFFER, 512), [5; 512]);
}

/// Offers request number `number` beside others: a kind, a sector, and 512 bytes for `kind` 0 and
/// 1.
fn offer_one_of_many(disk: &mut Disk, number: u16, kind: u32, sector: u64) {
    let at = u64::from(number);
    let header = HEADER + 16 * at;
    disk.guest.put(header, &u64::from(kind).to_le_bytes());
    disk.guest.put(header + 8, &sector.to_le_bytes());
    disk.guest.put(STATUS + at, &[0xff]);
    let mut pieces = vec![(header, 16, false)];
    if kind < 2 {
        pieces.push((BUFFER + 512 * at, 512, kind == 0));
    }
    pieces.push((STATUS + at, 1, true));
    disk.guest.request(0, 3 * number, &pieces);
}

#[test]
fn requests_that_are_there_together_are_all_done() {
    let mut disk = Disk::new();
    let content = disk.file();
    for number in [0_u64, 2] {
        let bytes = [0xa0 + number as u8; 512];
        disk.guest.put(BUFFER + 512 * number, &bytes);
    }
    // Two writes, two reads of other sectors, a flush between them.
    for (number, kind, sector) in [(0, 1, 1), (1, 0, 5), (2, 1, 2), (3, 4, 0), (4, 0, 6)] {
        offer_one_of_many(&mut disk, number, kind, sector);
    }
    disk.guest.work();
    assert_eq!(disk.guest.used_index(0), 5);
    let mut heads: Vec<u32> = (0..5).map(|index| disk.guest.used(0, index).0).collect();
    heads.sort_unstable();
    assert_eq!(heads, [0, 3, 6, 9, 12]);
    assert_eq!(disk.guest.get(STATUS, 5), [0; 5]);
    assert_eq!(disk.guest.get(BUFFER + 512, 512), content[5 * 512..6 * 512]);
    let last = disk.guest.get(BUFFER + 4 * 512, 512);
    assert_eq!(last, content[6 * 512..7 * 512]);
    let file = disk.file();
    assert_eq!(file[512..1024], [0xa0; 512]);
    assert_eq!(file[1024..1536], [0xa2; 512]);
    assert_eq!(file[1536..], content[1536..]);
}

#[test]
fn what_fails_among_others_fails_alone() {
    let mut disk = Disk::new();
    for (number, sector) in [(0, 1), (1, SECTORS as u64), (2, 2), (3, u64::MAX)] {
        offer_one_of_many(&mut disk, number, 0, sector);
    }
    disk.guest.work();
    assert_eq!(disk.guest.get(STATUS, 4), [0, 1, 0, 1]);
    assert_eq!(disk.guest.get(BUFFER, 1), [1]);
    assert_eq!(disk.guest.get(BUFFER + 1024, 1), [2]);
}

#[test]
fn a_disk_has_one_writer_or_some_readers() {
    let directory = Directory::new("shared");
    let path = directory.file("disk", &[0; 4096]);
    let open = |read_only| Block::open(&path, read_only).map(drop);
    let refused = |read_only, why: &str| {
        let error = open(read_only).unwrap_err();
        assert!(error.starts_with(&path) && error.contains(why), "{error}");
    };
    {
        let _writer = Block::open(&path, false).unwrap();
        refused(false, "another guest");
        refused(true, "another guest");
    }
    {
        let _reader = Block::open(&path, true).unwrap();
        let _another = Block::open(&path, true).unwrap();
        refused(false, "another guest");
    }
    // Requests under way of an earlier GDM hold its descriptor, and with it the lock.
    for shared in [false, true] {
        let other = fs::File::open(&path).unwrap();
        if shared {
            other.lock_shared().unwrap();
        } else {
            other.lock().unwrap();
        }
        refused(false, "an earlier gdm");
        refused(true, "an earlier gdm");
    }
    open(false).unwrap();
}

/// A region that a guest shares with another VM is its memory too, though not its RAM.
#[test]
fn data_in_memory_that_is_not_mapped_here_fails_by_itself() {
    let mut disk = Disk::new();
    let before = disk.file();
    let shared = RAM + RAM_SIZE as u64 + 0x1000;
    for kind in [0, 1, 8, 11, 13] {
        assert_eq!(
            disk.request(kind, 1, &[(shared, 512, matches!(kind, 0 | 8))]),
            1
        );
        let across = RAM + RAM_SIZE as u64 - 256;
        assert_eq!(
            disk.request(kind, 1, &[(across, 512, matches!(kind, 0 | 8))]),
            1
        );
    }
    assert_eq!(disk.file(), before);
    // Among others, one that is done together with them.
    for (number, sector) in [(0, 1), (1, 2), (2, 3)] {
        offer_one_of_many(&mut disk, number, 0, sector);
    }
    let table = disk.guest.rings[0].descriptors();
    disk.guest
        .describe(table, 4, (shared, 512, NEXT | WRITE, 5));
    disk.guest.work();
    assert_eq!(disk.guest.get(STATUS, 3), [0, 1, 0]);
    assert_eq!(disk.guest.status(), 0xf);
}
