//! Tests of the handshake, the lock, and who is woken.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use gear2_protocol::device_word::RESET_ASKED;
use gear2_protocol::{DOORBELL_GEAR2, MAGIC, PROTOCOL_VERSION, slot};
use vmm_sys_util::eventfd::EventFd;

use super::{EFD_NONBLOCK, Hub, handshake, lock};
use crate::mapping::Doorbell;
use crate::testing::{Directory, line, page, region};

#[test]
fn another_major_version_is_refused_and_another_minor_is_not() {
    let region = region();
    region.header.magic.store(MAGIC, Ordering::Relaxed);
    let version = &region.header.version;
    version.store(PROTOCOL_VERSION + 7, Ordering::Relaxed);
    assert_eq!(handshake(region), Ok(()));
    version.store(PROTOCOL_VERSION + 0x1_0000, Ordering::Relaxed);
    let error = handshake(region).unwrap_err();
    assert!(
        error.contains("Gear2 speaks protocol version 2.1, this gdm 1."),
        "{error}"
    );
}

#[test]
fn a_second_gdm_is_refused() {
    let directory = Directory::new("lock");
    let first = lock(directory.text()).unwrap();
    let error = lock(directory.text()).unwrap_err();
    assert!(error.contains("another gdm runs"), "{error}");
    drop(first);
    assert!(lock(directory.text()).is_ok());
}

#[test]
fn each_wish_of_gear2_wakes_whom_it_is_for() {
    let region = region();
    region.header.vcpu_count.store(3, Ordering::Relaxed);
    let doorbells = page();
    let event = || EventFd::new(EFD_NONBLOCK).unwrap();
    let hub = Hub {
        region,
        line: line(),
        answer: Doorbell {
            page: doorbells,
            offset: DOORBELL_GEAR2,
        },
        devices: BTreeMap::from([(0, event()), (1, event()), (2, event())]),
        serials: event(),
    };
    let woken = |hub: &Hub| -> Vec<bool> {
        hub.devices
            .values()
            .map(|kick| kick.read().is_ok())
            .collect()
    };
    hub.turn();
    assert_eq!(woken(&hub), [false; 3]);
    region.slots[1].device.store(1, Ordering::Relaxed);
    region.slots[1].set_state(slot::POSTED);
    region.devices[2][RESET_ASKED].store(1, Ordering::Relaxed);
    hub.turn();
    assert_eq!(woken(&hub), [false, true, true]);
    assert_eq!(doorbells.load(DOORBELL_GEAR2), 0);
    // A device that nobody serves must not hold its guest for ever.
    region.slots[2].device.store(31, Ordering::Relaxed);
    region.slots[2].set_state(slot::POSTED);
    hub.turn();
    assert_eq!(region.slots[2].state(), slot::ABORT);
    assert_eq!(doorbells.load(DOORBELL_GEAR2), 1);
}
