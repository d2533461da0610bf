//! Disks whose medium is taken out, and put in again or exchanged.

use super::*;
use crate::backend::Backend;
use crate::backend::block::Medium;
use crate::order::{Answer, Order};
use crate::orders::Desk;

/// A disk that takes orders.
struct Drive {
    disk: Disk,
    orders: Desk,
}

impl Drive {
    fn new() -> Self {
        let mut disk = Disk::new();
        disk.guest.kill_gdm();
        let block = Block::open(&disk.path, false).unwrap();
        let orders = disk.guest.start_gdm_with_orders(Box::new(block));
        disk.guest.interrupted();
        Self { disk, orders }
    }

    fn detach(&mut self) -> Answer {
        let answered = self.orders.ask(Order::Detach);
        self.disk.guest.work();
        answered.try_recv().unwrap()
    }

    /// Puts in a medium of so many sectors, all of this value, as GDM and the process of a guest do.
    fn attach(&mut self, sectors: usize, value: u8) -> Answer {
        let content = vec![value; sectors * 512];
        let path = self
            .disk
            ._directory
            .file(&format!("medium{value}"), &content);
        let mut parts = Block::claim(&path, false).unwrap().into();
        let answered = self.orders.insert(Medium::of(&mut parts).unwrap());
        self.disk.guest.work();
        answered.try_recv().unwrap()
    }

    /// Returns the capacity, once the guest was told of a change.
    fn told(&mut self) -> u32 {
        assert!(self.disk.guest.interrupted());
        assert_eq!(self.disk.guest.read(register::INTERRUPT_STATUS) & 2, 2);
        self.disk.guest.write(register::INTERRUPT_ACK, 3);
        self.disk.guest.read(register::CONFIG)
    }
}

/// Each kind of request fails at once, and none hangs. The identity is the disk's, not the
/// medium's.
#[test]
fn requests_of_a_disk_without_a_medium_fail() {
    let mut drive = Drive::new();
    assert_eq!(drive.detach(), Ok(0));
    assert_eq!(drive.told(), 0);
    assert_eq!(drive.disk.guest.state().get(Word::Capacity), 0);
    let data = [(BUFFER, 512, false)];
    assert_eq!(drive.disk.request(0, 0, &[(BUFFER, 512, true)]), 1);
    assert_eq!(drive.disk.request(1, 0, &data), 1);
    assert_eq!(drive.disk.request(4, 0, &[]), 1);
    let range = [0_u64.to_le_bytes(), 8_u64.to_le_bytes()].concat();
    drive.disk.guest.put(BUFFER, &range);
    for kind in [11, 13] {
        assert_eq!(drive.disk.request(kind, 0, &[(BUFFER, 16, false)]), 1);
    }
    assert_eq!(drive.disk.request(8, 0, &[(BUFFER, 20, true)]), 0);
    assert_eq!(drive.disk.guest.status() & NEEDS_RESET, 0);
}

#[test]
fn a_medium_takes_the_place_of_another_one() {
    let mut drive = Drive::new();
    assert_eq!(drive.attach(8, 9), Ok(8 * 512));
    assert_eq!(drive.told(), 8);
    assert_eq!(drive.disk.request(0, 7, &[(BUFFER, 512, true)]), 0);
    assert_eq!(drive.disk.guest.get(BUFFER, 512), [9; 512]);
    assert_eq!(drive.disk.request(0, 8, &[(BUFFER, 512, true)]), 1);
    // The first medium keeps what it had.
    assert_eq!(drive.disk.file()[..512], [0; 512]);
    assert_eq!(drive.detach(), Ok(0));
    assert_eq!(drive.told(), 0);
    assert_eq!(drive.attach(4, 5), Ok(4 * 512));
    assert_eq!(drive.told(), 4);
    drive.disk.guest.put(BUFFER, &[3; 512]);
    assert_eq!(drive.disk.request(1, 1, &[(BUFFER, 512, false)]), 0);
    assert_eq!(drive.disk.request(4, 0, &[]), 0);
}

/// The process of a guest that starts without a medium gets no descriptor, and its disk is empty.
#[test]
fn a_disk_begins_without_a_medium() {
    let opened = Block::claim("", false).unwrap();
    assert!(opened.parts.is_empty() && opened.claim.is_none());
    let block = Block::of(&mut opened.into(), "", false).unwrap();
    assert_eq!(block.identity().config[..8], [0; 8]);
}

/// A read-only disk stays one, whatever is put in.
#[test]
fn a_read_only_disk_writes_no_medium() {
    let mut disk = Disk::with(true);
    disk.guest.kill_gdm();
    let block = Block::open(&disk.path, true).unwrap();
    let orders = disk.guest.start_gdm_with_orders(Box::new(block));
    let mut drive = Drive { disk, orders };
    assert_eq!(drive.attach(8, 9), Ok(8 * 512));
    drive.disk.guest.put(BUFFER, &[3; 512]);
    assert_eq!(drive.disk.request(1, 1, &[(BUFFER, 512, false)]), 1);
    assert_eq!(drive.disk.request(0, 1, &[(BUFFER, 512, true)]), 0);
    assert_eq!(drive.disk.guest.get(BUFFER, 512), [9; 512]);
}
