//! A disk over kills of GDM: what goes on, what fails, and whose requests end GDM.

use std::sync::{Arc, Mutex};

use super::*;
use crate::backend::{Backend, Progress};
use crate::state::DeviceState;
use crate::transport::Identity;
use crate::vring::{Broken, Vring};

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

    fn keep(&mut self, state: DeviceState) {
        self.disk.keep(state);
    }

    fn poll(&mut self) {
        self.disk.poll();
    }

    fn process(&mut self, queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        if self.disk.expired == [0; crate::state::NOTED_QUEUES] && ring.pending() > 0 {
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

#[test]
fn a_register_write_posted_while_gdm_was_away_is_answered() {
    let mut disk = Disk::new();
    disk.guest.kill_gdm();
    let slot = &disk.guest.region.slots[0][0];
    let posted = disk.guest.access(register::STATUS, 6, 0);
    assert_eq!(posted, gear2_protocol::slot::POSTED);
    slot.set_state(posted);
    disk.guest
        .start_gdm(Box::new(Block::open(&disk.path, false).unwrap()));
    disk.guest.work();
    assert_eq!(slot.state(), gear2_protocol::slot::DONE);
    assert_eq!(disk.guest.status(), 0);
}
