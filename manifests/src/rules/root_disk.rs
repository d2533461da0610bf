//! Warnings on the disk that a guest's Linux takes for its root file system: Linux waits for a disk
//! that is not there, or panics, long after the manifest was written.
//!
//! A guest has no disk but its virtio disks, which its Linux names in the order of the manifest. A
//! VM that owns devices may have any.
#![cfg(any(test, feature = "host"))]

use super::backends::kernel_words;
use super::error;
use crate::error::{Found, ManifestError, Report, Rule};
use crate::model::{Manifest, VirtioDevice, VirtioKind, Vm, VmKind};

/// Starts of the names of disks that only hardware has.
const HARDWARE: [&str; 5] = ["sd", "hd", "mmcblk", "nvme", "xvd"];
/// Number of letters that number disks: `vda` to `vdz`.
const LETTERS: usize = 26;

/// Warns of a root file system that the guest cannot have, or not as it asks for.
pub(super) fn warn<'a>(
    manifest: &Manifest<'a>,
    vm: &Vm<'a>,
    cmdline: &'a str,
    report: &mut Report<'_, 'a>,
) {
    let values = kernel_words(cmdline).filter_map(|word| word.strip_prefix("root="));
    let Some(root) = values.last().filter(|_| vm.kind == VmKind::Guest) else {
        return;
    };
    let place = |rule| error(rule, vm, "cmdline").found(Found::Text(root));
    match disk(manifest, vm, root.trim_matches('"')) {
        Root::Missing => report.error(place(Rule::NoSuchDisk)),
        Root::Disk(disk) => judge_disk(disk, cmdline, place, report),
        Root::Unknown => {}
    }
}

/// Meaning of `root=`.
enum Root<'m, 'a> {
    /// A disk that the guest has.
    Disk(&'m VirtioDevice<'a>),
    /// A disk that the guest has not.
    Missing,
    /// Something that the manifest does not tell of: a label, or a name that an initrd makes.
    Unknown,
}

/// Finds the disk that `root=` names.
fn disk<'m, 'a>(manifest: &'m Manifest<'a>, vm: &Vm<'a>, root: &str) -> Root<'m, 'a> {
    let Some(name) = root.strip_prefix("/dev/") else {
        // Linux takes a name without `/dev/`, or without its first slash, for the numbers of a device.
        let is_disk =
            root.starts_with("vd") || HARDWARE.iter().any(|start| root.starts_with(start));
        return if is_disk || root.starts_with("dev/") {
            Root::Missing
        } else {
            Root::Unknown
        };
    };
    // Linux numbers disks in the order in which it probes them, which is that of the addresses.
    let devices = || manifest.virtio_of(vm.id).map(|(_, device)| device);
    if let Some(letters) = name.strip_prefix("vd") {
        let disks = devices().filter(|device| device.is_seen_as(VirtioKind::Block));
        return virtio_disk(disks, letters);
    }
    let has_net = devices().any(|device| device.is_seen_as(VirtioKind::Net));
    let is_missing = match name {
        "nfs" => !has_net,
        _ => HARDWARE.iter().any(|start| name.starts_with(start)),
    };
    if is_missing {
        Root::Missing
    } else {
        Root::Unknown
    }
}

/// Finds the virtio disk with these letters, and the number of its partition behind them, among all
/// of the guest's.
fn virtio_disk<'m, 'a>(
    mut disks: impl Iterator<Item = &'m VirtioDevice<'a>>,
    letters: &str,
) -> Root<'m, 'a> {
    let is_partition = letters.ends_with(|last: char| last.is_ascii_digit());
    let letters = letters.trim_end_matches(|last: char| last.is_ascii_digit());
    let disk = number(letters).and_then(|number| disks.nth(number));
    // A backend that is a partition is a whole disk to the guest.
    match disk {
        Some(disk) if !(is_partition && is_partition_itself(disk)) => Root::Disk(disk),
        _ => Root::Missing,
    }
}

/// Returns the number of the disk with these letters: 0 for `a`, 26 for `aa`.
fn number(letters: &str) -> Option<usize> {
    let digits = letters.bytes().map(|letter| match letter {
        b'a'..=b'z' => Some(usize::from(letter - b'a') + 1),
        _ => None,
    });
    // More letters are no disk: a VM has at most 8.
    let short = Some(digits).filter(|_| letters.len() <= 2)?;
    let mut number = 0;
    for digit in short {
        number = number * LETTERS + digit?;
    }
    number.checked_sub(1)
}

/// Tells whether the disk's backend is named as a partition of a disk of the device VM.
fn is_partition_itself(disk: &VirtioDevice<'_>) -> bool {
    let name = disk.backend.and_then(|path| path.strip_prefix("/dev/vd"));
    name.is_some_and(|name| name.ends_with(|last: char| last.is_ascii_digit()))
}

/// Warns of a root file system that is to be written on a disk that is only read.
fn judge_disk<'a>(
    disk: &VirtioDevice<'a>,
    cmdline: &str,
    place: impl Fn(Rule) -> ManifestError<'a>,
    report: &mut Report<'_, 'a>,
) {
    // The last one counts, and none is `ro`.
    let modes = kernel_words(cmdline).filter(|word| matches!(*word, "ro" | "rw"));
    if disk.read_only && modes.last() == Some("rw") {
        report.error(place(Rule::ReadOnlyRoot));
    }
}

#[cfg(test)]
mod tests;
