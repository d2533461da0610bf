//! Rules on disks and network cards that the device model serves itself: a serial number that a
//! guest can show, packets that Ethernet carries, and limits that can be kept.

use super::vhost_user;
use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::limits::{BURST_MS, BYTES_PER_SECOND, IOPS, MTU, SERVED_QUEUES};
use crate::model::{VirtioDevice, VirtioKind};

/// Most bytes of a serial number (`VIRTIO_BLK_ID_BYTES`).
const MAX_SERIAL: usize = 20;

/// Judges a device by itself.
pub(super) fn check<'a>(
    device: &VirtioDevice<'a>,
    path: NodePath<'a>,
    report: &mut Report<'_, 'a>,
) {
    // A device without a type has an error for that.
    if device.kind.is_some() {
        check_types(device, path, report);
        check_serial(device, path, report);
        check_numbers(device, path, report);
    }
}

/// Refuses what belongs to another type of device.
fn check_types<'a>(device: &VirtioDevice<'a>, path: NodePath<'a>, report: &mut Report<'_, 'a>) {
    let service = &device.service;
    let is_disk = device.kind == Some(VirtioKind::Block);
    let is_card = device.kind == Some(VirtioKind::Net);
    let limited = is_disk || is_card;
    let all = [
        ("serial", service.serial.is_some(), is_disk),
        ("mtu", service.mtu.is_some(), is_card),
        ("iops-limit", service.iops.is_some(), limited),
        (
            "bytes-per-second-limit",
            service.bytes_per_second.is_some(),
            limited,
        ),
        ("burst-ms", service.burst_ms.is_some(), limited),
    ];
    let misplaced = all.map(|(property, is_there, has_room)| (property, is_there && !has_room));
    vhost_user::refuse_of_other_type(misplaced, path, report);
}

/// Refuses a serial number that a guest would cut off, or could not name a link by.
fn check_serial<'a>(device: &VirtioDevice<'a>, path: NodePath<'a>, report: &mut Report<'_, 'a>) {
    let Some(serial) = device.service.serial else {
        return;
    };
    let is_shown = serial.bytes().all(|byte| byte.is_ascii_graphic());
    // planted: a serial number is cut off
    if !(1..=MAX_SERIAL).contains(&serial.len()) || !is_shown || serial.contains('/') {
        let error = ManifestError::at_property(Rule::SerialText, path, "serial");
        report.error(error.found(Found::Text(serial)));
    }
}

/// Refuses numbers that cannot be kept, and a burst of nothing.
fn check_numbers<'a>(device: &VirtioDevice<'a>, path: NodePath<'a>, report: &mut Report<'_, 'a>) {
    let service = &device.service;
    let numbers = [
        ("mtu", service.mtu, MTU, Rule::NoMtu),
        ("iops-limit", service.iops, IOPS, Rule::RateLimit),
        (
            "bytes-per-second-limit",
            service.bytes_per_second,
            BYTES_PER_SECOND,
            Rule::RateLimit,
        ),
        ("burst-ms", service.burst_ms, BURST_MS, Rule::RateLimit),
    ];
    for (property, number, range, rule) in numbers {
        // planted: a limit of nothing is accepted
        if let Some(number) = number.filter(|number| !range.contains(number)) {
            let error = ManifestError::at_property(rule, path, property);
            report.error(error.found(Found::Number(number.into())));
        }
    }
    let queues = device.vhost_user.queues;
    let queues = queues.filter(|_| vhost_user::has_served_queues(device));
    // planted: a disk has as many queues as it likes
    if let Some(number) = queues.filter(|queues| !SERVED_QUEUES.contains(queues)) {
        let error = ManifestError::at_property(Rule::ServedQueues, path, "queues");
        report.error(error.found(Found::Number(number.into())));
    }
    if service.burst_ms.is_some() && service.limits().is_none() {
        let rule = Rule::RateLimit;
        report.error(ManifestError::at_property(rule, path, "burst-ms"));
    }
}
