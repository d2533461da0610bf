//! A disk whose backend is late, and resets that wait for it.

use super::*;
use crate::board::DeviceKind;

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
fn a_device_of_a_vm_that_was_stopped_is_reset() {
    let mut disk = Disk::new();
    let page = &disk.guest.region.devices[crate::testing::CHANNEL];
    page[gear2_protocol::device_word::RESET_ASKED].store(1, std::sync::atomic::Ordering::Relaxed);
    disk.offer(1, 2, &[(BUFFER, 512, false)]);
    disk.guest.work();
    assert_eq!((disk.guest.used_index(0), disk.guest.status()), (0, 0));
    assert_eq!(disk.guest.state().reset_asked(), None);
}
