//! Tests of the disk on temporary files: each request type, refusals, hostile rings, resumption.

use std::fs;

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof, proptest};
use proptest::sample::select;

use super::Block;
use crate::backend::{Backend, Progress};
use crate::board::DeviceKind;
use crate::state::Word;
use crate::testing::{DATA, Directory, Guest, INDIRECT, NEXT, RAM, RAM_SIZE, WRITE};
use crate::transport::{Identity, register};
use crate::vring::{Broken, Vring};

mod media;

const SECTORS: usize = 64;
const HEADER: u64 = DATA;
const STATUS: u64 = DATA + 0x800;
const BUFFER: u64 = DATA + 0x1000;
const FLUSH: u64 = 1 << 9;
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
    assert_eq!(disk.guest.read(register::CONFIG + 12), 254);
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

#[test]
fn a_chain_that_breaks_a_rule_breaks_the_device_until_its_reset() {
    let end = RAM + RAM_SIZE as u64;
    let chains: &[&[(u64, u32, u16, u16)]] = &[
        // A loop; a next outside the table; memory outside the guest's, by a byte and by much.
        &[(HEADER, 16, NEXT, 0)],
        &[(HEADER, 16, NEXT, 16)],
        &[(end - 15, 16, NEXT, 1), (STATUS, 1, WRITE, 0)],
        &[(u64::MAX - 3, 16, NEXT, 1), (STATUS, 1, WRITE, 0)],
        &[(HEADER, 16, NEXT, 1), (BUFFER, u32::MAX, WRITE, 0)],
        &[(HEADER, 16, NEXT, 1), (end, 1, WRITE, 0)],
        // Readable behind writable; no header; no status; an indirect table of odd size.
        &[(STATUS, 1, WRITE | NEXT, 1), (HEADER, 16, 0, 0)],
        &[(STATUS, 1, WRITE, 0)],
        &[(HEADER, 16, 0, 0)],
        &[(HEADER, 15, INDIRECT, 0)],
        &[(HEADER, 0, INDIRECT, 0)],
        &[(end, 32, INDIRECT, 0)],
    ];
    let mut disk = Disk::new();
    for chain in chains {
        let table = disk.guest.rings[0].descriptors();
        for (index, descriptor) in chain.iter().enumerate() {
            disk.guest.describe(table, index as u16, *descriptor);
        }
        let used = disk.guest.used_index(0);
        disk.guest.offer(0, 0);
        disk.guest.work();
        assert_eq!(disk.guest.used_index(0), used, "{chain:?}");
        assert_eq!(disk.guest.status() & NEEDS_RESET, NEEDS_RESET, "{chain:?}");
        disk.guest.put(disk.guest.rings[0].available(), &[0; 4]);
        disk.guest.put(disk.guest.rings[0].used(), &[0; 4]);
        disk.guest.rings[0].added = 0;
        disk.guest.initialise(FLUSH, 1);
        assert_eq!(disk.request(0, 1, &[(BUFFER, 512, true)]), 0);
    }
}

/// Offers request number `number` beside others: a kind, a sector, and 512 bytes for `kind` 0 and 1.
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
fn requests_that_are_there_together_are_all_done_and_completed_in_order() {
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
    let heads: Vec<u32> = (0..5).map(|index| disk.guest.used(0, index).0).collect();
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
fn a_broken_chain_leaves_those_before_it_done() {
    let mut disk = Disk::new();
    offer_one_of_many(&mut disk, 0, 0, 1);
    offer_one_of_many(&mut disk, 1, 0, 2);
    let table = disk.guest.rings[0].descriptors();
    disk.guest.describe(table, 6, (HEADER, 16, NEXT, 6));
    disk.guest.offer(0, 6);
    disk.guest.work();
    assert_eq!(disk.guest.used_index(0), 2);
    assert_eq!(disk.guest.get(STATUS, 2), [0; 2]);
    assert_eq!(disk.guest.status() & NEEDS_RESET, NEEDS_RESET);
}

#[test]
fn a_new_gdm_goes_on_where_the_old_one_died() {
    let mut disk = Disk::new();
    disk.guest.put(BUFFER, &[0xbb; 512]);
    assert_eq!(disk.request(1, 1, &[(BUFFER, 512, false)]), 0);
    disk.guest.kill_gdm();
    disk.guest.interrupted();
    disk.offer(1, 2, &[(BUFFER, 512, false)]);
    disk.guest.work();
    assert_eq!(disk.guest.used_index(0), 1);
    disk.guest
        .start_gdm(Box::new(Block::open(&disk.path, false).unwrap()));
    assert!(disk.guest.interrupted());
    assert_eq!(disk.guest.status(), 0xf);
    disk.guest.work();
    assert_eq!(disk.guest.used_index(0), 2);
    assert_eq!(disk.guest.get(STATUS, 1), [0]);
    assert_eq!(disk.file()[512..3 * 512], [0xbb; 1024]);
    assert_eq!(disk.request(0, 5, &[(BUFFER, 512, true)]), 0);
}

#[test]
fn what_waited_for_half_a_minute_fails_and_the_next_request_does_not() {
    let mut disk = Disk::new();
    let before = disk.file();
    disk.guest.put(BUFFER, &[0xbb; 512]);
    disk.guest.kill_gdm();
    disk.offer(1, 2, &[(BUFFER, 512, false)]);
    let long_ago = crate::mapping::counter() - 31_000_000_000;
    disk.guest.state().set(Word::LastSeen, long_ago);
    disk.guest
        .start_gdm(Box::new(Block::open(&disk.path, false).unwrap()));
    disk.guest.work();
    assert_eq!(
        (disk.guest.used_index(0), disk.guest.get(STATUS, 1)),
        (1, vec![1])
    );
    assert_eq!(disk.file(), before);
    assert_eq!(disk.request(1, 2, &[(BUFFER, 512, false)]), 0);
    assert_ne!(disk.file(), before);
}

/// A disk of whose first request GDM dies, or whatever is done instead.
struct Deadly {
    disk: Block,
    deed: Box<dyn FnMut() + Send>,
}

impl Deadly {
    fn new(path: &str, deed: impl FnMut() + Send + 'static) -> Box<Self> {
        Box::new(Self {
            disk: Block::open(path, false).unwrap(),
            deed: Box::new(deed),
        })
    }
}

impl Backend for Deadly {
    fn identity(&self) -> Identity {
        self.disk.identity()
    }

    fn expire(&mut self, queue: usize, pending: u16) {
        self.disk.expire(queue, pending);
    }

    fn process(&mut self, queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        if self.disk.expired == 0 && ring.pending() > 0 {
            (self.deed)();
        }
        self.disk.process(queue, ring)
    }
}

/// Lets the device work; tells whether GDM died of it.
fn dies(guest: &mut Guest) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| guest.work())).is_err()
}

#[test]
fn a_request_that_gdm_dies_of_again_and_again_fails() {
    let mut disk = Disk::new();
    disk.guest.put(BUFFER, &[0xbb; 512]);
    disk.guest.kill_gdm();
    disk.offer(1, 2, &[(BUFFER, 512, false)]);
    for _ in 0..8 {
        disk.guest
            .start_gdm(Deadly::new(&disk.path, || panic!("gdm dies")));
        assert!(dies(&mut disk.guest));
        assert_eq!(disk.guest.used_index(0), 0);
        disk.guest.kill_gdm();
    }
    disk.guest
        .start_gdm(Deadly::new(&disk.path, || panic!("gdm dies")));
    disk.guest.work();
    assert_eq!(
        (disk.guest.used_index(0), disk.guest.get(STATUS, 1)),
        (1, vec![1])
    );
    disk.guest.kill_gdm();
    disk.guest
        .start_gdm(Box::new(Block::open(&disk.path, false).unwrap()));
    assert_eq!(disk.request(1, 2, &[(BUFFER, 512, false)]), 0);
}

/// Starts with nothing to do, and those that somebody else ended, say nothing about a disk.
#[test]
fn an_idle_disk_does_not_fail_after_many_starts() {
    let mut disk = Disk::new();
    assert_eq!(disk.request(0, 1, &[(BUFFER, 512, true)]), 0);
    for _ in 0..20 {
        disk.guest.kill_gdm();
        disk.guest
            .start_gdm(Box::new(Block::open(&disk.path, false).unwrap()));
        disk.guest.work();
    }
    disk.guest.kill_gdm();
    // Asked, and GDM dies before it looks.
    disk.offer(1, 3, &[(BUFFER, 512, false)]);
    for _ in 0..20 {
        disk.guest
            .start_gdm(Box::new(Block::open(&disk.path, false).unwrap()));
        disk.guest.kill_gdm();
    }
    disk.guest
        .start_gdm(Box::new(Block::open(&disk.path, false).unwrap()));
    disk.guest.work();
    assert_eq!(disk.guest.used_index(0), 2);
    assert_eq!(disk.guest.get(STATUS, 1), [0]);
}

/// GDM dies of a request of one guest while it works on another's, start by start.
#[test]
fn a_crash_loop_fails_the_guest_that_causes_it_alone() {
    use std::sync::{Arc, Mutex};
    let (mut good, bad) = (Disk::new(), Arc::new(Mutex::new(Disk::new())));
    good.guest.kill_gdm();
    good.offer(0, 1, &[(BUFFER, 512, true)]);
    let bad_path = {
        let mut bad = bad.lock().unwrap();
        bad.guest.kill_gdm();
        bad.offer(0, 1, &[(BUFFER, 512, true)]);
        bad.path.clone()
    };
    let of_bad = |bad: &Mutex<Disk>, deed: fn(&mut Guest)| {
        let mut bad = bad.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        deed(&mut bad.guest);
        bad.guest.used_index(0)
    };
    let mut starts = 0;
    while of_bad(&bad, |_| ()) == 0 {
        starts += 1;
        assert!(starts < 20, "nobody finds out");
        let deadly = Deadly::new(&bad_path, || panic!("gdm dies"));
        bad.lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .guest
            .start_gdm(deadly);
        // The other device's thread gets on while this one works on its request.
        let beside = Arc::clone(&bad);
        let meets = Deadly::new(&good.path, move || {
            of_bad(&beside, |guest| {
                guest.turn();
            });
        });
        good.guest.start_gdm(meets);
        let died = dies(&mut good.guest) || {
            let mut bad = bad.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            dies(&mut bad.guest)
        };
        good.guest.kill_gdm();
        of_bad(&bad, Guest::kill_gdm);
        assert!(died || starts > 8, "start {starts}");
    }
    assert_eq!(
        (good.guest.used_index(0), good.guest.get(STATUS, 1)),
        (1, vec![0])
    );
    let bad = bad.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    assert_eq!(bad.guest.get(STATUS, 1), [1]);
}

/// A backend that arrives late finds the driver's setup and the waiting requests.
#[test]
fn a_backend_that_is_late_costs_a_guest_nothing() {
    let mut disk = Disk::new();
    assert_eq!(disk.request(0, 1, &[(BUFFER, 512, true)]), 0);
    disk.guest.kill_gdm();
    disk.offer(0, 2, &[(BUFFER, 512, true)]);
    disk.guest.interrupted();
    let before = disk.guest.read(register::CONFIG);
    let arrival = disk.guest.start_gdm_without(DeviceKind::Block);
    disk.guest.work();
    assert_eq!((disk.guest.status(), disk.guest.used_index(0)), (0xf, 1));
    assert_eq!(disk.guest.read(register::DEVICE_ID), 2);
    assert_eq!(disk.guest.read(register::CONFIG), before);
    // Another GDM that finds none either.
    disk.guest.kill_gdm();
    drop(arrival);
    let arrival = disk.guest.start_gdm_without(DeviceKind::Block);
    disk.guest.work();
    arrival
        .send(Box::new(Block::open(&disk.path, false).unwrap()))
        .unwrap();
    disk.guest.work();
    assert_eq!(disk.guest.get(STATUS, 1), [0]);
    assert_eq!((disk.guest.status(), disk.guest.used_index(0)), (0xf, 2));
    assert!(disk.guest.interrupted());
    assert_eq!(disk.guest.get(BUFFER, 512), [2; 512]);
    assert_eq!(disk.request(0, 5, &[(BUFFER, 512, true)]), 0);
}

#[test]
fn a_driver_can_set_a_device_up_whose_backend_is_late() {
    let mut disk = Disk::new();
    disk.guest.kill_gdm();
    let arrival = disk.guest.start_gdm_without(DeviceKind::Block);
    disk.guest.put(disk.guest.rings[0].available(), &[0; 4]);
    disk.guest.put(disk.guest.rings[0].used(), &[0; 4]);
    disk.guest.rings[0].added = 0;
    disk.guest.initialise(FLUSH, 1);
    disk.offer(0, 2, &[(BUFFER, 512, true)]);
    disk.guest.work();
    assert_eq!(disk.guest.used_index(0), 0);
    arrival
        .send(Box::new(Block::open(&disk.path, false).unwrap()))
        .unwrap();
    disk.guest.work();
    assert_eq!(
        (disk.guest.used_index(0), disk.guest.get(STATUS, 1)),
        (1, vec![0])
    );
}

#[test]
fn a_device_that_nobody_uses_is_none_until_its_backend_is_there() {
    let mut disk = Disk::new();
    disk.guest.write(register::STATUS, 0);
    disk.guest.kill_gdm();
    let arrival = disk.guest.start_gdm_without(DeviceKind::Block);
    assert_eq!(disk.guest.read(register::DEVICE_ID), 0);
    disk.guest.write(register::STATUS, 1);
    arrival
        .send(Box::new(Block::open(&disk.path, false).unwrap()))
        .unwrap();
    disk.guest.work();
    assert_eq!(disk.guest.read(register::DEVICE_ID), 2);
    assert_eq!(disk.guest.status(), 0);
}

/// GDM answers a reset only when no request that an earlier GDM left to the kernel can move data
/// any longer.
#[test]
fn a_reset_waits_for_what_an_earlier_gdm_left_to_the_kernel() {
    use gear2_protocol::device_word::RESET_ASKED;
    let mut disk = Disk::new();
    disk.guest.kill_gdm();
    let words = &disk.guest.region.devices[crate::testing::CHANNEL];
    let order = std::sync::atomic::Ordering::Relaxed;
    disk.guest.state().set(Word::InKernel, 1);
    disk.guest
        .state()
        .set(Word::LastSeen, crate::mapping::counter());
    words[RESET_ASKED].store(1, order);
    let arrival = disk.guest.start_gdm_without(DeviceKind::Block);
    disk.guest.work();
    assert_eq!(disk.guest.state().reset_asked(), Some(1));
    arrival
        .send(Box::new(Block::open(&disk.path, false).unwrap()))
        .unwrap();
    disk.guest.work();
    assert_eq!(disk.guest.state().reset_asked(), None);
    // Without any, nobody is waited for.
    disk.guest.kill_gdm();
    words[RESET_ASKED].store(2, order);
    let _arrival = disk.guest.start_gdm_without(DeviceKind::Block);
    disk.guest.work();
    assert_eq!(disk.guest.state().reset_asked(), None);
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

#[test]
fn a_register_write_posted_while_gdm_was_away_is_answered() {
    let mut disk = Disk::new();
    disk.guest.kill_gdm();
    let slot = &disk.guest.region.slots[0];
    let posted = disk.guest.access(register::STATUS, 6, 0);
    assert_eq!(posted, gear2_protocol::slot::POSTED);
    slot.set_state(posted);
    disk.guest
        .start_gdm(Box::new(Block::open(&disk.path, false).unwrap()));
    disk.guest.work();
    assert_eq!(slot.state(), gear2_protocol::slot::DONE);
    assert_eq!(disk.guest.status(), 0);
}

#[test]
fn a_device_of_a_vm_that_was_stopped_is_reset() {
    let mut disk = Disk::new();
    let page = &disk.guest.region.devices[crate::testing::CHANNEL];
    page[gear2_protocol::device_word::RESET_ASKED].store(1, std::sync::atomic::Ordering::Relaxed);
    disk.offer(1, 2, &[(BUFFER, 512, false)]);
    disk.guest.work();
    assert_eq!((disk.guest.used_index(0), disk.guest.status()), (0, 0));
    assert_eq!(disk.guest.state().reset_asked(), None);
}

fn descriptor() -> impl Strategy<Value = (u64, u32, u16, u16)> {
    let address = prop_oneof![
        6 => select(vec![HEADER, STATUS, BUFFER, RAM, RAM + 0x4000, RAM + 0x8000]),
        1 => RAM..RAM + RAM_SIZE as u64,
        1 => any::<u64>(),
    ];
    let length = prop_oneof![
        6 => select(vec![0, 1, 16, 48, 256, 512, 4096]),
        1 => any::<u32>(),
    ];
    (address, length, 0..8_u16, 0..18_u16)
}

proptest! {
    /// Random tables, heads and indices: the device serves, or breaks and can be reset. The memory
    /// behind the guest's does not change (its end is the end of a mapping).
    #[test]
    fn hostile_rings_harm_nobody(
        table in vec(descriptor(), 16),
        heads in vec(0..20_u16, 1..24),
        kind in select(vec![0, 1, 4, 8, 11, 13, 99]),
        jump in prop_oneof![3 => select(vec![0_u16]), 1 => any::<u16>()],
    ) {
        let mut disk = Disk::new();
        let ring = disk.guest.rings[0];
        disk.guest.put(HEADER, &u64::from(kind as u32).to_le_bytes());
        for (index, descriptor) in table.iter().enumerate() {
            disk.guest.describe(ring.descriptors(), index as u16, *descriptor);
        }
        for head in heads {
            disk.guest.offer(0, head);
            disk.guest.work();
        }
        disk.guest.rings[0].added = disk.guest.rings[0].added.wrapping_add(jump);
        disk.guest.offer(0, 0);
        disk.guest.work();
        assert_eq!(disk.file().len(), SECTORS * 512);
        disk.guest.put(ring.available(), &[0; 4]);
        disk.guest.put(ring.used(), &[0; 4]);
        disk.guest.rings[0].added = 0;
        disk.guest.initialise(FLUSH, 1);
        assert_eq!(disk.request(0, 1, &[(BUFFER, 512, true)]), 0);
    }
}
