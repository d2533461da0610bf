//! Rules on devices that another program of the device VM serves: a function that the guest sees, a
//! socket, and no more queues and configuration than the registers have room for.

use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::limits::TIMEOUT_MS;
use crate::model::{VhostFunction, VirtioDevice, VirtioKind};
use crate::{MAX_VHOST_CONFIG, MAX_VHOST_QUEUES};

/// Longest path of a socket: Linux's `sun_path`, without the NUL.
const MAX_SOCKET: usize = 107;
/// Longest path of a socket of which `SOCKET_P` for each port P is one, too.
const MAX_PREFIX: usize = MAX_SOCKET - "_4294967295".len();
/// Longest tag of a file system (virtio 1.2, 5.11.4).
const MAX_TAG: usize = 36;
/// Most bytes of a command.
const MAX_COMMAND: usize = 1024;
/// Least number that is no device type.
const DEVICE_IDS: u32 = 64;

/// Judges a device by itself.
pub(super) fn check<'a>(
    device: &VirtioDevice<'a>,
    path: NodePath<'a>,
    report: &mut Report<'_, 'a>,
) {
    match device.kind {
        // A device without a type has an error for that.
        None => {}
        Some(VirtioKind::VhostUser) => {
            check_function(device, path, report);
            check_socket(device, path, report);
            check_sizes(device, path, report);
            check_tag(device, path, report);
            check_timeout(device, path, report);
            check_command(device, path, report);
        }
        Some(_) => check_others(device, path, report),
    }
}

/// Tells whether a device of another type has a socket.
fn is_served_by_socket(device: &VirtioDevice<'_>) -> bool {
    device.kind == Some(VirtioKind::Vsock)
}

/// Tells whether a device that the device model serves itself may have several queues.
pub(super) fn has_served_queues(device: &VirtioDevice<'_>) -> bool {
    matches!(device.kind, Some(VirtioKind::Block | VirtioKind::Net))
}

/// Refuses in a device of another type what says how a program serves it.
fn check_others<'a>(device: &VirtioDevice<'a>, path: NodePath<'a>, report: &mut Report<'_, 'a>) {
    let vhost_user = &device.vhost_user;
    let has_socket = device.socket.is_some() && !is_served_by_socket(device);
    let has_queues = vhost_user.queues.is_some() && !has_served_queues(device);
    let others = [
        ("socket", has_socket),
        ("device", vhost_user.function.is_some()),
        ("device-id", vhost_user.device_id.is_some()),
        ("queues", has_queues),
        ("config-size", vhost_user.config_size.is_some()),
        ("tag", vhost_user.tag.is_some()),
        ("timeout-ms", vhost_user.timeout_ms.is_some()),
        ("command", !vhost_user.command.is_empty()),
        ("files", !vhost_user.files.is_empty()),
    ];
    refuse_of_other_type(others, path, report);
}

/// Refuses the properties of a device that are there and belong to another type.
pub(super) fn refuse_of_other_type<'a>(
    properties: impl IntoIterator<Item = (&'static str, bool)>,
    path: NodePath<'a>,
    report: &mut Report<'_, 'a>,
) {
    for (property, is_there) in properties {
        if is_there {
            let rule = Rule::VirtioOtherType;
            report.error(ManifestError::at_property(rule, path, property));
        }
    }
}

/// Refuses a device of no function, or of two.
fn check_function<'a>(device: &VirtioDevice<'a>, path: NodePath<'a>, report: &mut Report<'_, 'a>) {
    let error = |property| ManifestError::at_property(Rule::VhostFunction, path, property);
    let vhost_user = &device.vhost_user;
    match (vhost_user.function, vhost_user.device_id) {
        (Some(_), None) => {}
        // planted: a device type that no driver can match is accepted
        (None, Some(id)) if (1..DEVICE_IDS).contains(&id) => {}
        // Both together, too: two numbers that agree today are one mistake tomorrow.
        (_, Some(id)) => report.error(error("device-id").found(Found::Number(id.into()))),
        (None, None) => report.error(error("device")),
    }
}

/// Refuses what cannot be the path of a socket.
pub(super) fn check_socket<'a>(
    device: &VirtioDevice<'a>,
    path: NodePath<'a>,
    report: &mut Report<'_, 'a>,
) {
    let error = ManifestError::at_property(Rule::VhostSocket, path, "socket");
    let Some(socket) = device.socket else {
        report.error(error);
        return;
    };
    // Relative to what, nobody could say: the device model and the program have folders of their
    // own.
    let is_path = socket.starts_with('/') && !socket.ends_with('/');
    let most = longest_socket(device);
    // planted: the path of a socket is cut off
    if !is_path || socket.len() > most || socket.chars().any(char::is_control) {
        report.error(error.found(Found::Text(socket)));
    }
}

/// Returns the most bytes of a device's `socket`. For vsock the path is a prefix, which a port
/// number follows.
fn longest_socket(device: &VirtioDevice<'_>) -> usize {
    match device.kind {
        Some(VirtioKind::Vsock) => MAX_PREFIX,
        _ => MAX_SOCKET,
    }
}

/// Refuses numbers that the transport has no room for.
fn check_sizes<'a>(device: &VirtioDevice<'a>, path: NodePath<'a>, report: &mut Report<'_, 'a>) {
    let vhost_user = &device.vhost_user;
    let sizes = [
        ("queues", vhost_user.queues, 1..=MAX_VHOST_QUEUES),
        ("config-size", vhost_user.config_size, 0..=MAX_VHOST_CONFIG),
    ];
    for (property, size, range) in sizes {
        // planted: a device has as many queues as it likes
        if let Some(size) = size.filter(|size| !range.contains(size)) {
            let error = ManifestError::at_property(Rule::VhostSize, path, property);
            report.error(error.found(Found::Number(size.into())));
        }
    }
}

/// Refuses a time after which no request of the device would fail, or each one.
fn check_timeout<'a>(device: &VirtioDevice<'a>, path: NodePath<'a>, report: &mut Report<'_, 'a>) {
    let Some(time) = device.vhost_user.timeout_ms else {
        return;
    };
    let error = ManifestError::at_property(Rule::VhostTimeout, path, "timeout-ms");
    // A device of no type has an error for that.
    let is_seen = device.device_id() != 0;
    // planted: requests fail by time that have no way to
    if !TIMEOUT_MS.contains(&time) {
        report.error(error.found(Found::Number(time.into())));
    } else if is_seen && !device.can_fail() {
        report.error(error);
    }
}

/// Refuses a command that names no program by its path, and files of no program.
fn check_command<'a>(device: &VirtioDevice<'a>, path: NodePath<'a>, report: &mut Report<'_, 'a>) {
    let error = |property| ManifestError::at_property(Rule::VhostCommand, path, property);
    let (command, files) = (device.vhost_user.command, device.vhost_user.files);
    let program = command.iter().next().unwrap_or_default();
    let is_long = command.bytes().len() > MAX_COMMAND;
    // No shell splits it: the options would be a part of the program's name.
    let has_options = program.contains(" -");
    if !command.is_empty() && (is_long || has_options || !program.starts_with('/')) {
        report.error(error("command").found(Found::Text(program)));
    }
    // GDM gives each file to the program's user by its path, from a folder of its own.
    let relative = files.iter().find(|file| !file.starts_with('/'));
    if let Some(file) = relative.or(files.iter().next().filter(|_| command.is_empty())) {
        report.error(error("files").found(Found::Text(file)));
    }
}

/// Refuses a file system without a tag, and a tag elsewhere. A number may stand for a file system
/// too.
fn check_tag<'a>(device: &VirtioDevice<'a>, path: NodePath<'a>, report: &mut Report<'_, 'a>) {
    let error = |rule| ManifestError::at_property(rule, path, "tag");
    let function = device.vhost_user.function;
    let is_fs = function == Some(VhostFunction::Fs);
    match device.vhost_user.tag {
        None if is_fs => report.error(error(Rule::VhostTag)),
        Some(_) if function.is_some() && !is_fs => report.error(error(Rule::VirtioOtherType)),
        Some(tag) if !(1..=MAX_TAG).contains(&tag.len()) => {
            report.error(error(Rule::VhostTag).found(Found::Text(tag)));
        }
        _ => {}
    }
}
