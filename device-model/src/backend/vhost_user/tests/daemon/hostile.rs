//! A guest that breaks every rule, on a disk of qemu-storage-daemon. The daemon ends when it meets
//! some of the chains, and is started again: that costs the guest its own disk for a moment, and
//! neither GDM nor memory that the guest did not hand over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use hostile_driver::Kind;

use super::super::{impatient, until};
use super::{Daemon, VIRTIO_BLK_T_OUT, done, offer, reset, start_within, status};
use crate::testing::Guest;
use crate::worker::tests::hostile::Attacked;

/// Random attacks beside the listed ones.
const ATTACKS: u64 = 300;

/// Attacks a disk; returns the guest, and what was done to memory that is not for the device.
fn attack(guest: Guest) -> (Guest, Vec<String>) {
    let mut attacked = Attacked::over(guest);
    let counts = attacked.attack_elsewhere(Kind::Block, ATTACKS, 1);
    assert!(counts.broken > 100, "{counts:?}");
    (attacked.guest, attacked.violations)
}

#[test]
#[ignore = "needs qemu-storage-daemon: a part of the suite runs it"]
fn a_hostile_guest_costs_its_own_disk_alone() {
    let mut daemon = Daemon::with_disk();
    let guest = start_within(&daemon, impatient());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| daemon.keep_alive(&is_over));
        let (mut guest, violations) = attack(guest);
        assert_eq!(violations, [""; 0]);
        reset(&mut guest);
        offer(&mut guest, 0, VIRTIO_BLK_T_OUT, 5, Some(0x55));
        until(&mut guest, "a write", done(1));
        assert_eq!(status(&guest, 0), 0);
        is_over.store(true, Ordering::Relaxed);
        println!("the daemon ended {} times", watch.join().unwrap());
    });
    assert_eq!(daemon.content()[5 * 4096], 0x55);
}
