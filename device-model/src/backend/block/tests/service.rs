//! A disk's services beside moving data: its serial number, its cache, its size, its limits.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::*;
use crate::backend::Backend;
use crate::order::Order;
use crate::orders::Desk;
use crate::rate::Shared;

/// VIRTIO_BLK_F_CONFIG_WCE.
const WCE: u64 = 1 << 11;
/// Place of `writeback`, in the word of which it is the first byte.
const WRITEBACK: usize = register::CONFIG + 32;

impl Disk {
    /// Makes a disk that `change` has changed before its guest sees it.
    fn changed(features: u64, change: impl FnOnce(&mut Block)) -> Self {
        let directory = Directory::new("disk");
        let content: Vec<u8> = (0..SECTORS * 512).map(|i| (i / 512) as u8).collect();
        let path = directory.file("disk", &content);
        let mut block = Block::open(&path, false).unwrap();
        change(&mut block);
        let mut guest = Guest::new(Box::new(block));
        guest.initialise(features, 1);
        Self {
            guest,
            path,
            _directory: directory,
        }
    }

    fn capacity(&self) -> u32 {
        self.guest.read(register::CONFIG)
    }

    /// Changes the size of the file behind the disk.
    fn resize(&self, sectors: usize) {
        let file = fs::OpenOptions::new().write(true).open(&self.path);
        file.unwrap().set_len(sectors as u64 * 512).unwrap();
    }

    /// Starts another GDM, whose device takes orders.
    fn restart(&mut self) -> Desk {
        self.guest.kill_gdm();
        let block = Block::open(&self.path, false).unwrap();
        self.guest.start_gdm_with_orders(Box::new(block))
    }
}

#[test]
fn a_serial_number_is_the_manifests() {
    let mut disk = Disk::changed(FLUSH, |block| {
        block.id = crate::backend::block::id_of("A-1")
    });
    assert_eq!(disk.request(8, 0, &[(BUFFER, 20, true)]), 0);
    let mut id = b"A-1".to_vec();
    id.resize(20, 0);
    assert_eq!(disk.guest.get(BUFFER, 20), id);
}

#[test]
fn a_disk_that_grows_tells_its_guest() {
    let mut disk = Disk::new();
    let desk = disk.restart();
    disk.guest.interrupted();
    assert_eq!(disk.request(0, SECTORS as u64, &[(BUFFER, 512, true)]), 1);
    disk.resize(2 * SECTORS);
    let answer = std::thread::scope(|scope| {
        let answer = scope.spawn(|| desk.give(Order::Resize));
        let begin = Instant::now();
        while disk.capacity() == SECTORS as u32 && begin.elapsed() < Duration::from_secs(5) {
            disk.guest.work();
        }
        answer.join().unwrap()
    });
    assert_eq!(answer, Ok(2 * SECTORS as u64 * 512));
    assert_eq!(disk.capacity(), 2 * SECTORS as u32);
    assert!(disk.guest.interrupted());
    assert_eq!(disk.guest.read(register::INTERRUPT_STATUS) & 2, 2);
    assert_eq!(disk.request(0, SECTORS as u64, &[(BUFFER, 512, true)]), 0);
    let noted = disk.guest.state().get(Word::Capacity);
    assert_eq!(noted, 2 * SECTORS as u64 * 512);
}

/// A look each second finds what nobody ordered, and a disk that shrinks.
#[test]
fn a_size_is_noticed() {
    let mut disk = Disk::changed(FLUSH, |block| {
        block.looked = Instant::now().checked_sub(Duration::from_secs(2)).unwrap();
    });
    assert_eq!(disk.capacity(), SECTORS as u32);
    // The device has looked by now, and looks again when the second is over.
    disk.resize(SECTORS / 2);
    let begin = Instant::now();
    while disk.capacity() == SECTORS as u32 {
        assert!(begin.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(20));
        disk.guest.work();
    }
    assert_eq!(disk.capacity(), SECTORS as u32 / 2);
    let beyond = SECTORS as u64 / 2;
    disk.guest.put(BUFFER, &[1; 512]);
    assert_eq!(disk.request(1, beyond, &[(BUFFER, 512, false)]), 1);
    assert_eq!(disk.file().len(), SECTORS * 512 / 2);
}

#[test]
fn a_disk_that_grew_while_gdm_was_away_tells_its_guest() {
    let mut disk = Disk::new();
    disk.guest.kill_gdm();
    disk.resize(3 * SECTORS);
    let generation = disk.guest.read(register::CONFIG_GENERATION);
    disk.restart();
    assert_eq!(disk.capacity(), 3 * SECTORS as u32);
    assert_eq!(disk.guest.read(register::INTERRUPT_STATUS) & 2, 2);
    assert_ne!(disk.guest.read(register::CONFIG_GENERATION), generation);
    // Once is enough.
    disk.guest.write(register::INTERRUPT_ACK, 2);
    disk.restart();
    assert_eq!(disk.guest.read(register::INTERRUPT_STATUS) & 2, 0);
}

/// The driver's choice of the cache survives a kill, and ends with a reset.
#[test]
fn a_driver_chooses_the_cache() {
    let mut disk = Disk::changed(FLUSH | WCE, |_| ());
    assert_eq!(disk.guest.read(WRITEBACK) & 0xff, 1);
    assert_eq!(
        disk.guest.access(WRITEBACK, 4, 0),
        gear2_protocol::slot::DONE
    );
    assert_eq!(disk.guest.read(WRITEBACK) & 0xff, 0);
    disk.restart();
    assert_eq!(disk.guest.read(WRITEBACK) & 0xff, 0);
    disk.guest.put(disk.guest.rings[0].available(), &[0; 4]);
    disk.guest.put(disk.guest.rings[0].used(), &[0; 4]);
    disk.guest.initialise(FLUSH | WCE, 1);
    assert_eq!(disk.guest.read(WRITEBACK) & 0xff, 1);
    // A driver that cannot flush has no cache to choose.
    disk.guest.initialise(WCE, 1);
    assert_eq!(disk.guest.read(WRITEBACK) & 0xff, 0);
}

/// Other fields stay what they are, whatever a hostile driver writes.
#[test]
fn the_rest_of_the_configuration_is_not_written() {
    let mut disk = Disk::new();
    let before = crate::transport::Transport::shown_config(&disk.guest.page);
    for at in (0..0x100).step_by(4).filter(|at| *at != 32) {
        disk.guest.access(register::CONFIG + at, 6, 0xffff_ffff);
    }
    disk.guest.access(WRITEBACK, 6, 0);
    disk.guest.access(WRITEBACK + 1, 4, 0);
    let after = crate::transport::Transport::shown_config(&disk.guest.page);
    assert_eq!(after, before);
    assert_eq!(disk.guest.status(), 0xf);
}

/// Requests beyond the limit wait their time, and none is lost. On a busy host two of them pass at
/// once, and end in either order.
#[test]
fn limits_hold_requests_back() {
    let begin = Instant::now();
    let mut disk = Disk::changed(FLUSH, |block| block.limits = Shared::new([100, 0, 20]));
    for number in 0..5 {
        offer_one_of_many(&mut disk, number, 0, number.into());
    }
    while disk.guest.used_index(0) < 5 {
        assert!(begin.elapsed() < Duration::from_secs(10), "it starves");
        disk.guest.work();
        std::thread::sleep(Duration::from_millis(1));
    }
    // The bucket begins empty: five tokens of 10 ms each, less a step of the clock.
    assert!(begin.elapsed() >= Duration::from_millis(49));
    assert_eq!(disk.guest.get(STATUS, 5), [0; 5]);
    let heads: BTreeSet<u32> = (0..5).map(|index| disk.guest.used(0, index).0).collect();
    assert_eq!(heads, BTreeSet::from([0, 3, 6, 9, 12]));
}

/// A reset forgets a request that waits for its limits; after a kill the next GDM does the request.
#[test]
fn what_is_held_back_survives_a_kill_and_no_reset() {
    let slow = |block: &mut Block| block.limits = Shared::new([1, 0, 1]);
    let mut disk = Disk::changed(FLUSH, slow);
    disk.offer(0, 3, &[(BUFFER, 512, true)]);
    disk.guest.work();
    assert_eq!(disk.guest.used_index(0), 0);
    disk.restart();
    disk.guest.work();
    assert_eq!(
        (disk.guest.used_index(0), disk.guest.get(BUFFER, 1)),
        (1, vec![3])
    );
    let mut disk = Disk::changed(FLUSH, slow);
    disk.offer(0, 3, &[(BUFFER, 512, true)]);
    disk.guest.work();
    disk.guest.write(register::STATUS, 0);
    std::thread::sleep(Duration::from_millis(1100));
    disk.guest.work();
    assert_eq!(
        (disk.guest.used_index(0), disk.guest.get(STATUS, 1)),
        (0, vec![0xff])
    );
}

/// A thread whose guest waits sleeps no longer than the wait.
#[test]
fn what_is_held_back_says_for_how_long() {
    let mut disk = Disk::new();
    disk.guest.kill_gdm();
    let mut block = Block::open(&disk.path, false).unwrap();
    assert_eq!(block.pause(), None);
    block.limits = Shared::new([10, 0, 1]);
    block.held[0] = Some((Default::default(), 0));
    assert!(!block.limits.admit(0, 0));
    assert!(block.pause().unwrap() <= Duration::from_millis(100));
    block.reset();
    assert_eq!(block.pause(), None);
}

/// A request that moves nothing costs no bytes: a guest cannot buy a wait of years.
#[test]
fn a_request_that_fails_costs_no_bytes() {
    let mut disk = Disk::changed(FLUSH, |block| block.limits = Shared::new([0, 65_536, 1]));
    let huge = [(RAM, RAM_SIZE as u32, true)];
    for sector in [0, u64::MAX] {
        assert_eq!(disk.request(0, sector, &huge), 1);
    }
    let begin = Instant::now();
    disk.offer(0, 1, &[(BUFFER, 512, true)]);
    while disk.guest.used_index(0) < 3 {
        assert!(begin.elapsed() < Duration::from_secs(5));
        disk.guest.work();
    }
    assert_eq!(disk.guest.state().get(Word::Errors), 2);
}
