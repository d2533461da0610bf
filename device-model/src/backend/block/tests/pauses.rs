//! The pause of a disk's VM: what was begun ends, what waits goes on to wait, and nothing is lost.

use std::sync::atomic::Ordering;

use gear2_protocol::device_word::{HOLD_ASKED, HOLD_SEEN};

use super::*;
use crate::rate::Shared;

impl Disk {
    /// Pauses or resumes the VM, as Gear2 does, and lets the device take note.
    fn hold(&mut self, number: u64) {
        let words = self.guest.state().words();
        words[HOLD_ASKED].store(number, Ordering::Release);
        self.guest.work();
    }

    /// Returns the number that the device has answered.
    fn held(&self) -> u64 {
        self.guest.state().words()[HOLD_SEEN].load(Ordering::Acquire)
    }
}

#[test]
fn a_paused_disk_takes_no_request() {
    let mut disk = Disk::new();
    assert_eq!(disk.request(0, 1, &[(BUFFER, 512, true)]), 0);
    disk.hold(1);
    assert_eq!(disk.held(), 1);
    disk.offer(0, 2, &[(BUFFER, 512, true)]);
    disk.guest.work();
    assert_eq!(disk.guest.used_index(0), 1);
    // Another GDM does not take it either.
    disk.guest.kill_gdm();
    disk.guest
        .start_gdm(Box::new(Block::open(&disk.path, false).unwrap()));
    disk.guest.work();
    assert_eq!((disk.guest.used_index(0), disk.held()), (1, 1));
    disk.hold(2);
    assert_eq!((disk.guest.used_index(0), disk.held()), (2, 2));
    assert_eq!(disk.guest.get(STATUS, 1), [0]);
}

/// Whoever sees the answer finds the memory as it stays: a request is done, or not begun.
#[test]
fn requests_that_were_begun_are_completed_before_the_answer() {
    let mut disk = Disk::new();
    for number in 0..4 {
        offer_one_of_many(&mut disk, number, 0, number.into());
    }
    // One turn begins the requests, and the pause comes before their ends are seen.
    disk.guest.turn();
    disk.guest.interrupted();
    let before = disk.guest.used_index(0);
    disk.hold(1);
    assert_eq!(disk.held(), 1);
    assert_eq!(disk.guest.used_index(0), 4);
    assert_eq!(disk.guest.interrupted(), before != 4);
}

#[test]
fn a_request_that_waits_for_its_limits_waits_on() {
    let mut disk = Disk::new();
    disk.guest.kill_gdm();
    let mut block = Block::open(&disk.path, false).unwrap();
    block.limits = Shared::new([100, 0, 20]);
    disk.guest.start_gdm(Box::new(block));
    let mut done = 0;
    // Up to the first request behind the burst.
    loop {
        disk.offer(0, 2, &[(BUFFER, 512, true)]);
        disk.guest.work();
        if disk.guest.used_index(0) == done {
            break;
        }
        done += 1;
    }
    disk.hold(1);
    std::thread::sleep(std::time::Duration::from_millis(30));
    disk.guest.work();
    assert_eq!((disk.guest.used_index(0), disk.held()), (done, 1));
    disk.hold(2);
    let begin = std::time::Instant::now();
    while disk.guest.used_index(0) == done {
        assert!(begin.elapsed() < std::time::Duration::from_secs(60));
        disk.guest.work();
    }
    assert_eq!(disk.guest.used_index(0), done + 1);
}

/// A driver's reset, whose write was on its way when the VM was paused, is answered.
#[test]
fn a_paused_disk_is_reset() {
    let mut disk = Disk::new();
    disk.hold(1);
    disk.guest.write(register::STATUS, 0);
    assert_eq!(disk.guest.status(), 0);
    disk.guest.initialise(FLUSH, 1);
    disk.offer(0, 3, &[(BUFFER, 512, true)]);
    disk.guest.work();
    assert_eq!(disk.guest.used_index(0), 0);
    disk.hold(2);
    assert_eq!(disk.guest.used_index(0), 1);
}
