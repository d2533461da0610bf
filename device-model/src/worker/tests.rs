//! Tests of a device's turns: a queue that waits for the host does not spin, one that breaks
//! leaves the rest alone.

mod hostile;

use gear2_protocol::slot;

use crate::backend::{Absent, Backend, Progress};
use crate::state::Word;
use crate::testing::{DATA, Guest};
use crate::transport::{Identity, register};
use crate::vring::{Broken, Chain, Vring};

/// Completes what it takes, a request a turn; queue 1 waits for ever.
struct Echo;

impl Backend for Echo {
    fn identity(&self) -> Identity {
        Identity {
            device_id: 42,
            features: 0,
            queue_sizes: vec![16, 16],
            config: vec![1, 2, 3],
        }
    }

    fn process(&mut self, queue: usize, ring: &mut Vring) -> Result<Progress, Broken> {
        let mut chain = Chain::default();
        if queue == 1 {
            return Ok(Progress::Waits);
        }
        if !ring.take(&mut chain)? {
            return Ok(Progress::Drained);
        }
        ring.complete(chain.head, 0)?;
        Ok(Progress::More)
    }
}

#[test]
fn all_requests_are_served_and_a_queue_that_waits_is_left() {
    let mut guest = Guest::new(Box::new(Echo));
    guest.initialise(0, 2);
    assert_eq!(guest.read(register::CONFIG), 0x03_0201);
    for head in 0..8 {
        guest.request(0, head, &[(DATA, 8, false)]);
        guest.request(1, head, &[(DATA, 8, true)]);
    }
    guest.work();
    assert_eq!((guest.used_index(0), guest.used_index(1)), (8, 0));
    assert_eq!(guest.state().get(Word::Requests), 8);
}

#[test]
fn a_broken_device_answers_its_registers() {
    let mut guest = Guest::new(Box::new(Echo));
    guest.initialise(0, 2);
    guest.rings[0].added = 1000;
    guest.offer(0, 0);
    guest.work();
    assert_eq!(guest.state().get(Word::Breaks), 1);
    assert_eq!(guest.status(), 0x4f);
    guest.rings[0].added = 0;
    guest.put(guest.rings[0].available(), &[0; 4]);
    guest.initialise(0, 2);
    guest.request(0, 0, &[(DATA, 8, false)]);
    guest.work();
    assert_eq!(guest.used_index(0), 1);
}

#[test]
fn a_device_without_a_backend_is_none() {
    let mut guest = Guest::new(Box::new(Absent));
    assert_eq!(guest.read(register::DEVICE_ID), 0);
    assert_eq!(guest.access(register::STATUS, 6, 3), slot::DONE);
    assert_eq!(guest.read(register::QUEUE_NUM_MAX), 0);
}

#[test]
fn slots_of_other_devices_are_left_alone() {
    let mut guest = Guest::new(Box::new(Echo));
    let slot = &guest.region.slots[0];
    slot.device.store(7, std::sync::atomic::Ordering::Relaxed);
    slot.set_state(slot::POSTED);
    guest.work();
    assert_eq!(slot.state(), slot::POSTED);
}

#[test]
fn what_waited_fails_unless_the_device_vm_was_away_too() {
    use super::is_too_long;
    assert!(!is_too_long(29, 1000));
    assert!(is_too_long(30, 1000) && is_too_long(40, 40));
    assert!(!is_too_long(40, 39), "it was booted meanwhile");
    assert!(crate::sys::uptime() > 0);
}
