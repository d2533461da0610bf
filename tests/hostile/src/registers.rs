//! Attacks with registers: status, features, configuration, what cannot be written.
//!
//! Registers are emulated: each access is an exit, and the device model sees address, size and
//! value. A driver of a usual system writes few of them, in one order, so most of what is tried
//! here is code that nothing else reaches.

use crate::device::{Device, Expect, register, status};
use crate::{Kind, Platform, net};

/// Read-only, and the first thing that a driver looks at. Four letters, which show that a range is
/// a device at all.
const MAGIC: u32 = u32::from_le_bytes(*b"virt");

/// Makes all attacks on registers. Registers last as long as the device: each attack restores what
/// it changed.
pub(crate) fn all<P: Platform>(device: &mut Device<'_, P>) {
    statuses(device);
    features(device);
    sizes(device);
    selectors(device);
    read_only(device);
    notifications(device);
    device.recover_all("attacks with registers");
    device.look_at_memory("attacks with registers");
}

/// Every combination of the status's bits, from each state that a driver passes. A driver sets bits
/// one after the other (virtio 1.2, 3.1.1); a device cannot trust it to. DEVICE_NEEDS_RESET and
/// bits that do not exist are among them: the device alone sets the first, and there are none of
/// the second.
fn statuses<P: Platform>(device: &mut Device<'_, P>) {
    for value in (1..64).chain([0x40, 0x4f, 0x7f, 0x80, 0x8f, 0xc0, 0xff, 0x100, u32::MAX]) {
        for from in [0, 1, status::DRIVER] {
            if value % 16 != 0xf && from != 0 {
                continue;
            }
            device.reset();
            device.write(register::STATUS, from);
            device.write(register::STATUS, value);
            device.judge("any status", 0, Expect::Any);
            no_queues(device);
        }
    }
    bits_taken_back(device);
    device.recover("any status");
}

/// Bits that the driver takes back do not break a device that works. Linux never does so; a device
/// that trusted it would be without rings and at work.
fn bits_taken_back<P: Platform>(device: &mut Device<'_, P>) {
    device.initialise();
    for value in [1, 3, 0xb, 7, 0x40, 0x80] {
        device.write(register::STATUS, value);
        device.counts.operations += 1;
    }
    let known = status::DRIVER_OK | 0x80;
    let now = device.read(register::STATUS);
    if now & status::NEEDS_RESET != 0 || now & !known != 0 {
        device.mistake("bits taken back", format_args!("status {now:#x}"));
    }
}

/// Whatever the driver says, a device without queues does nothing. A notification of rings that
/// were never named must not lead to address 0.
fn no_queues<P: Platform>(device: &mut Device<'_, P>) {
    let before = device.used();
    device.notify();
    if device.used() != before {
        device.mistake("a device without queues", format_args!("it works"));
    }
}

/// A driver must not accept what was not offered (virtio 1.2, 2.2.1). A feature that was not
/// offered has no code behind it that checks what it allows.
fn features<P: Platform>(device: &mut Device<'_, P>) {
    for halves in ABSENT_FEATURES {
        select_absent(device, halves);
        device.judge("features that are not there", 0, Expect::Any);
    }
    device.negotiate();
    for selector in [2, 3, 0x8000_0000, u32::MAX] {
        no_features(device, selector);
    }
    device.recover("features that are not there");
}

/// Selects features that the device must not accept, and goes on as if it had accepted them.
/// FEATURES_OK must not stay set then (virtio 1.2, 3.1.1, step 6). The driver goes on to DRIVER_OK,
/// as one that does not read the status back.
fn select_absent<P: Platform>(device: &mut Device<'_, P>, halves: [u32; 2]) {
    device.reset();
    device.write(register::STATUS, status::DRIVER);
    for (half, value) in (0..).zip(halves) {
        device.write(register::DRIVER_FEATURES_SEL, half);
        device.write(register::DRIVER_FEATURES, value);
    }
    device.write(register::STATUS, status::FEATURES_OK);
    if device.read(register::STATUS) & 8 != 0 {
        device.mistake("features", format_args!("{halves:x?} are accepted"));
    }
    device.write(register::STATUS, status::DRIVER_OK);
}

/// Selections of features of which a device lacks some, or which lack VIRTIO_F_VERSION_1. A legacy
/// driver selects no VIRTIO_F_VERSION_1, and the device has no legacy interface.
const ABSENT_FEATURES: [[u32; 2]; 7] = [
    [0, 0],
    [u32::MAX, 0],
    [0, u32::MAX],
    [u32::MAX, u32::MAX],
    [1 << 31, 1],
    [0, 3],
    [0, 1 << 31 | 1],
];

/// Features are two halves; another half has none. Selectors beyond 1 name features that nobody has
/// defined.
fn no_features<P: Platform>(device: &mut Device<'_, P>, selector: u32) {
    device.write(register::DRIVER_FEATURES_SEL, selector);
    device.write(register::DRIVER_FEATURES, u32::MAX);
    device.write(register::DEVICE_FEATURES_SEL, selector);
    if device.read(0x10) != 0 {
        device.mistake("features", format_args!("half {selector} has some"));
    }
    device.counts.operations += 1;
}

/// Accesses of all sizes everywhere; only whole registers are ones. Control registers have 32 bits
/// (virtio 1.2, 4.2.2.2); the configuration has any size. An access of 8 bytes would write two
/// registers at once, with one of them unchecked.
fn sizes<P: Platform>(device: &mut Device<'_, P>) {
    device.initialise();
    for at in (0..register::CONFIG).step_by(8) {
        for size in [1, 2, 8] {
            // A notification is a channel, and taken at its address.
            let done = device.platform.write(at, size, 0xffff_ffff_ffff_ffff);
            if done && at != register::QUEUE_NOTIFY {
                device.mistake(
                    "a size",
                    format_args!("{size} bytes at {at:#x} are written"),
                );
            }
            device.counts.operations += 1;
        }
    }
    for at in (register::CONFIG..register::END).step_by(8) {
        for size in [1, 2, 4, 8] {
            device.platform.write(at, size, 0xffff_ffff_ffff_ffff);
            device.counts.operations += 1;
        }
    }
    device.honest_request("accesses of all sizes");
}

/// A queue that does not exist reads QueueNumMax 0. Numbers of 32 bits, of which a device that
/// keeps 16 would see a good one.
fn selectors<P: Platform>(device: &mut Device<'_, P>) {
    let behind = match device.kind {
        Kind::Net | Kind::Control => net::queues(device),
        kind => u32::from(kind.queues()),
    };
    for queue in [behind, behind.max(4), 0xff, 0x1_0000, 1 << 31, u32::MAX] {
        absent_queue(device, queue);
        device.honest_request("a queue that is not there");
        device.counts.operations += 1;
    }
}

/// A queue that is not there has no entries, and never becomes ready. Every register of a queue is
/// written, since each is an index into the queues.
fn absent_queue<P: Platform>(device: &mut Device<'_, P>, queue: u32) {
    device.write(register::QUEUE_SEL, queue);
    let most = device.read(register::QUEUE_NUM_MAX);
    if most != 0 {
        device.mistake("a queue", format_args!("{queue} has {most} entries"));
    }
    for (at, value) in [
        (register::QUEUE_NUM, 16),
        (register::DESCRIPTORS, u32::MAX),
        (register::AVAILABLE + 4, u32::MAX),
        (register::USED, 1),
        (register::QUEUE_READY, 1),
    ] {
        device.write(at, value);
    }
    if device.read(register::QUEUE_READY) != 0 {
        device.mistake("a queue", format_args!("{queue} is ready"));
    }
}

/// Registers that only the device writes, and those that do not exist. Magic, version and identity
/// are what a driver finds the device by after the next boot.
fn read_only<P: Platform>(device: &mut Device<'_, P>) {
    let before: [u32; 8] = core::array::from_fn(|i| device.read(4 * i as u64));
    for at in (0..register::CONFIG).step_by(4) {
        if !WRITTEN.contains(&at) {
            device.write(at, u32::MAX);
            device.counts.operations += 1;
        }
    }
    let after: [u32; 8] = core::array::from_fn(|i| device.read(4 * i as u64));
    if before != after || device.read(register::MAGIC) != MAGIC {
        let seen = format_args!("{before:x?}, {after:x?}");
        device.mistake("read-only registers", seen);
    }
    device.honest_request("read-only registers");
}

/// Registers whose writes have an effect that other attacks look at.
const WRITTEN: [u64; 6] = [
    register::DEVICE_FEATURES_SEL,
    register::DRIVER_FEATURES,
    register::DRIVER_FEATURES_SEL,
    register::STATUS,
    register::QUEUE_SEL,
    register::QUEUE_READY,
];

/// Notifications of all kinds, and more than can be looked at. The value is a queue's index, which
/// may be none. A device that counts notifications, or keeps one for each, runs out of something.
fn notifications<P: Platform>(device: &mut Device<'_, P>) {
    for value in [0, 1, 2, 63, 0xffff, 0x1_0000, u32::MAX] {
        device.write(register::QUEUE_NOTIFY, value);
        device.counts.operations += 1;
    }
    device.honest_request("notifications of no queue");
    for _ in 0..2000 {
        device.write(register::QUEUE_NOTIFY, 0);
        device.write(register::INTERRUPT_ACK, 1);
    }
    device.counts.operations += 1;
    device.honest_request("a storm of notifications");
    device.write(register::INTERRUPT_ACK, u32::MAX);
    notification_after_reset(device);
}

/// A notification of a device without queues: nothing happens, and the configuration stays. The
/// configuration is not part of what a reset clears.
fn notification_after_reset<P: Platform>(device: &mut Device<'_, P>) {
    device.reset();
    device.notify();
    device.wait();
    device.judge("notifications of a device that was reset", 0, Expect::Any);
    if device.kind == Kind::Block && device.read(register::CONFIG) == 0 {
        device.mistake("a reset", format_args!("the configuration is gone"));
    }
}
