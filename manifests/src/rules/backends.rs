//! Rules on what serves the virtio devices: one writer a disk, one guest a tap device, nothing that
//! the device VM uses itself, no text that its kernel or the control protocol takes for something
//! else, and an address for each network card.
//!
//! Judged are the names: that two names are links to one disk, or that the device VM has mounted it
//! meanwhile, is seen by the device model when it opens the disk exclusively.

use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::model::{Manifest, Payload, VirtioDevice, VirtioKind, Vm};

/// Longest name of a network device: Linux's `IFNAMSIZ`, without the NUL.
const MAX_TAP_NAME: usize = 15;
/// Longest path of a socket: Linux's `sun_path`, without the NUL.
#[cfg(any(test, feature = "host"))]
const MAX_SOCKET: usize = 107;
/// Keys of the Linux command line that name disks for the kernel's own use.
const OWN_DISKS: &[&str] = &["root=", "resume="];

/// Judges all backends, each beside those before it.
pub(super) fn check<'a>(manifest: &Manifest<'a>, report: &mut Report<'_, 'a>) {
    for (index, device) in manifest.virtio.iter().enumerate() {
        check_mac(manifest, index, device, report);
        check_socket(manifest, index, device, report);
        let (Some(node), Some(backend)) = (node_of(manifest, device), device.backend) else {
            continue;
        };
        let place = |rule| {
            let place = ManifestError::at_property(rule, node, "backend");
            place.found(Found::Text(backend))
        };
        if backend.chars().any(char::is_control) {
            report.error(place(Rule::BackendText));
        } else if device.kind == Some(VirtioKind::Net) && !is_tap_name(backend) {
            report.error(place(Rule::TapName));
        // A disk of the device VM's own is no guest's, so who shares it does not matter.
        } else if let Some(owner) = owner(manifest, device) {
            report.error(place(Rule::OwnDisk).conflicts(NodePath::vm(owner.name)));
        } else {
            if let Some(other) = sharer(manifest, index, device) {
                report.error(place(Rule::SameBackend).conflicts(other));
            }
            #[cfg(any(test, feature = "host"))]
            check_path(device, backend, place, report);
        }
    }
}

/// Returns the node of a device before this one that cannot have its backend beside it.
fn sharer<'a>(
    manifest: &Manifest<'a>,
    index: usize,
    device: &VirtioDevice<'a>,
) -> Option<NodePath<'a>> {
    let before = manifest.virtio.iter().take(index);
    let mut others = before.filter(|other| collide(device, other));
    others.find_map(|other| node_of(manifest, other))
}

/// Refuses a path that is none of a disk or a socket. The device model would find out when it opens
/// the backend, and no boot depends on it, so only hosts have this rule.
#[cfg(any(test, feature = "host"))]
fn check_path<'a>(
    device: &VirtioDevice<'a>,
    backend: &str,
    place: impl Fn(Rule) -> ManifestError<'a>,
    report: &mut Report<'_, 'a>,
) {
    // A blank at an end is no part of a name, mostly, and is not seen.
    let is_absolute = backend.starts_with('/') && backend.trim() == backend;
    match device.kind {
        // An empty backend has a rule of its own.
        _ if backend.is_empty() => {}
        Some(VirtioKind::Block) if !(is_absolute && may_be_disk(backend)) => {
            report.error(place(Rule::DiskPath));
        }
        Some(VirtioKind::Console) if !(is_absolute || backend == "pty") => {
            report.error(place(Rule::ConsoleBackend).near(Some("pty")));
        }
        Some(VirtioKind::Input) if !is_input(backend) => report.error(place(Rule::InputBackend)),
        _ => {}
    }
}

/// Tells whether a text is the path of an input device, or a socket's behind `socket:`. Devices and
/// udev's links to them are in /dev, beside folders of them.
#[cfg(any(test, feature = "host"))]
fn is_input(backend: &str) -> bool {
    if let Some(path) = backend.strip_prefix("socket:") {
        // planted: the path of a socket for input is cut off
        return path.starts_with('/') && !path.ends_with('/') && path.len() <= MAX_SOCKET;
    }
    let is_whole = backend.trim() == backend && !backend.ends_with('/');
    backend.starts_with("/dev/") && is_whole && backend != "/dev/input"
}

/// Tells whether a path is not known to be a folder, or a device that is no disk.
#[cfg(any(test, feature = "host"))]
fn may_be_disk(path: &str) -> bool {
    const OTHERS: [&str; 7] = [
        "null", "zero", "full", "random", "urandom", "console", "mem",
    ];
    let device = path.strip_prefix("/dev/");
    // Block devices have other names; a file in a folder of such a name is not meant.
    let is_other = |name: &str| OTHERS.contains(&name) || name.starts_with("tty");
    !path.ends_with('/') && path != "/dev" && !device.is_some_and(is_other)
}

/// Refuses a socket that a device before this one has: a program behind a socket serves one device.
fn check_socket<'a>(
    manifest: &Manifest<'a>,
    index: usize,
    device: &VirtioDevice<'a>,
    report: &mut Report<'_, 'a>,
) {
    let (Some(node), Some(path)) = (node_of(manifest, device), socket_of(device)) else {
        return;
    };
    let property = if device.socket.is_some() {
        "socket"
    } else {
        "backend"
    };
    let found = device.socket.or(device.backend).unwrap_or(path);
    let before = manifest.virtio.iter().take(index);
    // planted: two devices have one socket
    let mut others = before.filter(|other| share_socket(device, other));
    if let Some(other) = others.find_map(|other| node_of(manifest, other)) {
        let place = ManifestError::at_property(Rule::SameBackend, node, property);
        report.error(place.found(Found::Text(found)).conflicts(other));
    }
}

/// Returns the path of the socket that the device has in the device VM.
fn socket_of<'a>(device: &VirtioDevice<'a>) -> Option<&'a str> {
    let is_input = device.kind == Some(VirtioKind::Input);
    let backend = device.backend.filter(|_| is_input);
    let made = backend.and_then(|backend| backend.strip_prefix("socket:"));
    device.socket.or(made)
}

/// Tells whether two devices mean one socket: by their paths, or by a port of one of them. A guest
/// would reach by that port what serves another guest.
fn share_socket(one: &VirtioDevice<'_>, other: &VirtioDevice<'_>) -> bool {
    let (Some(path), Some(others)) = (socket_of(one), socket_of(other)) else {
        return false;
    };
    // Two backends of input devices are compared as backends.
    if one.socket.is_none() && other.socket.is_none() {
        return false;
    }
    path == others || is_port_of(one, others) || is_port_of(other, path)
}

/// Tells whether `path` is that of a port behind a device's socket.
fn is_port_of(device: &VirtioDevice<'_>, path: &str) -> bool {
    let prefix = device
        .socket
        .filter(|_| device.kind == Some(VirtioKind::Vsock));
    let rest = prefix.and_then(|prefix| path.strip_prefix(prefix));
    let port = rest.and_then(|rest| rest.strip_prefix('_'));
    // planted: a guest reaches what serves another guest
    port.is_some_and(|port| port.parse::<u32>().is_ok())
}

/// Judges the address of a network card beside those of the cards before it.
fn check_mac<'a>(
    manifest: &Manifest<'a>,
    index: usize,
    device: &VirtioDevice<'a>,
    report: &mut Report<'_, 'a>,
) {
    let (Some(node), Some(text)) = (node_of(manifest, device), device.mac) else {
        return;
    };
    let place = |rule| ManifestError::at_property(rule, node, "mac").found(Found::Text(text));
    let Some(mac) = device.mac_bytes() else {
        report.error(place(Rule::MacText));
        return;
    };
    if let Some(other) = card_before(manifest, index, mac) {
        report.error(place(Rule::SameMac).conflicts(other));
    }
}

/// Returns the node of a card that has the address, of those before a place in the list.
fn card_before<'a>(manifest: &Manifest<'a>, index: usize, mac: [u8; 6]) -> Option<NodePath<'a>> {
    let before = manifest.virtio.iter().take(index);
    // planted: two network cards have one address
    let mut others = before.filter(|other| other.mac_bytes() == Some(mac));
    others.find_map(|other| node_of(manifest, other))
}

/// Returns a device's node; `None`: its VM was left out for errors of its own.
pub(super) fn node_of<'a>(
    manifest: &Manifest<'a>,
    device: &VirtioDevice<'a>,
) -> Option<NodePath<'a>> {
    let vm = manifest.vms.iter().find(|vm| vm.id == device.vm)?;
    Some(NodePath::vm(vm.name).child("virtio").child(device.name))
}

/// Tells whether the two devices cannot both have their backends.
fn collide(one: &VirtioDevice<'_>, other: &VirtioDevice<'_>) -> bool {
    let (Some(backend), Some(others)) = (one.backend, other.backend) else {
        return false;
    };
    match (one.kind, other.kind) {
        (Some(VirtioKind::Block), Some(VirtioKind::Block)) => {
            // planted: two guests write one disk
            !(one.read_only && other.read_only) && overlap(backend, others)
        }
        // GDM grabs an input device, and makes the socket of another one.
        (Some(VirtioKind::Net), Some(VirtioKind::Net))
        | (Some(VirtioKind::Input), Some(VirtioKind::Input)) => backend == others,
        // The device model names a console's socket after the VM.
        (Some(VirtioKind::Console), Some(VirtioKind::Console)) => one.vm == other.vm,
        // Backends of two types are opened by different means, and random numbers have none.
        _ => false,
    }
}

/// Returns the device VM if the device is a disk that it uses itself, as its command line says.
fn owner<'m, 'a>(manifest: &'m Manifest<'a>, device: &VirtioDevice<'a>) -> Option<&'m Vm<'a>> {
    let owner = manifest.device_vm()?;
    let Payload::Linux { cmdline, .. } = owner.payload else {
        return None;
    };
    // Names of devices in another VM are another kernel's, so only the device VM's count.
    let backend = device.backend?;
    let uses = |key: &&str| own_disk(cmdline, key).is_some_and(|disk| overlap(disk, backend));
    let is_used = device.kind == Some(VirtioKind::Block) && OWN_DISKS.iter().any(uses);
    is_used.then_some(owner)
}

/// Returns the disk that the command line's last word with prefix `key` names.
fn own_disk<'a>(cmdline: &'a str, key: &str) -> Option<&'a str> {
    let words = kernel_words(cmdline);
    let value = words.filter_map(|word| word.strip_prefix(key)).last()?;
    Some(value.trim_matches('"'))
}

/// Iterates over the words of a command line that are the kernel's: Linux passes those after `--`
/// to the first program.
pub(super) fn kernel_words(cmdline: &str) -> impl Iterator<Item = &str> {
    cmdline
        .split_ascii_whitespace()
        .take_while(|word| *word != "--")
}

/// Tells whether Linux takes it as the name of one network device.
fn is_tap_name(name: &str) -> bool {
    // 0xa0 is a blank to Linux, and `%d` stands for a number that Linux chooses.
    let is_bad = |byte: u8| matches!(byte, b' ' | b'/' | b':' | b'%' | 0xa0);
    name.len() <= MAX_TAP_NAME && !matches!(name, "." | "..") && !name.bytes().any(is_bad)
}

/// Tells whether the paths name one disk, or a disk and a partition of it.
fn overlap(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (names(one), names(other));
    let (Some(name), Some(others)) = (one.next(), other.next()) else {
        return false;
    };
    if !one.clone().eq(other) {
        return false;
    }
    // Directly in /dev, where partitions have the kernel's names; below, udev names them.
    let mut folders = one.clone();
    let is_direct = folders.next() == Some("dev") && folders.next().is_none();
    let is_below = one.last() == Some("dev");
    name == others
        || is_below
            && (is_partition(name, others, is_direct) || is_partition(others, name, is_direct))
}

/// Tells whether `part` is named as a partition of `whole`: `vda1` of `vda`, `nvme0n1p1` of
/// `nvme0n1`, and below a folder of `/dev`, such as `by-id`, `NAME-part1` of `NAME`.
fn is_partition(whole: &str, part: &str, is_direct: bool) -> bool {
    let Some(rest) = part.strip_prefix(whole) else {
        return false;
    };
    let number = match is_direct {
        false => rest.strip_prefix("-part"),
        true if whole.ends_with(|last: char| last.is_ascii_digit()) => rest.strip_prefix('p'),
        true => Some(rest),
    };
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    number.is_some_and(|number| !number.is_empty() && is_number(number))
}

/// Iterates over the names of a path from the last to the first, without those that lead nowhere. A
/// relative path begins at the root, where the device model runs.
fn names(path: &str) -> impl Iterator<Item = &str> + Clone {
    let mut left_out = 0_usize;
    path.rsplit('/').filter(move |name| match *name {
        "" | "." => false,
        ".." => {
            left_out += 1;
            false
        }
        _ if left_out > 0 => {
            left_out -= 1;
            false
        }
        _ => true,
    })
}
