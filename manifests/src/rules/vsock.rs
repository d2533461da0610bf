//! Rules on sockets between a guest and the device VM: an identifier of the guest's own, and one
//! such device for a guest.

use super::{backends, vhost_user};
use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::model::{Manifest, VirtioDevice, VirtioKind};

/// Identifiers of guests: those below are the machine's, the one above stands for any
/// (virtio 1.2, 5.10.4).
const CIDS: core::ops::Range<u32> = 3..u32::MAX;

/// Judges a device by itself.
pub(super) fn check<'a>(
    device: &VirtioDevice<'a>,
    path: NodePath<'a>,
    report: &mut Report<'_, 'a>,
) {
    let error = |rule| ManifestError::at_property(rule, path, "cid");
    match (device.kind, device.cid) {
        (Some(VirtioKind::Vsock), cid) => {
            // planted: a guest has the identifier of the device VM
            if !cid.is_some_and(|cid| CIDS.contains(&cid)) {
                let found = cid.map(|cid| Found::Number(cid.into()));
                let error = error(Rule::VsockCid);
                report.error(found.map_or(error, |found| error.found(found)));
            }
            vhost_user::check_socket(device, path, report);
        }
        (Some(_), Some(_)) => report.error(error(Rule::VirtioOtherType)),
        (Some(_), None) | (None, _) => {}
    }
}

/// Judges all such devices, each beside those before it: the identifier is one guest's, and a guest
/// has one such device, because Linux has one identifier.
pub(super) fn check_all<'a>(manifest: &Manifest<'a>, report: &mut Report<'_, 'a>) {
    for (index, device) in manifest.virtio.iter().enumerate() {
        check_beside(manifest, index, device, report);
    }
}

fn check_beside<'a>(
    manifest: &Manifest<'a>,
    index: usize,
    device: &VirtioDevice<'a>,
    report: &mut Report<'_, 'a>,
) {
    let is_vsock = |device: &VirtioDevice<'_>| device.is_seen_as(VirtioKind::Vsock);
    let (Some(node), true) = (backends::node_of(manifest, device), is_vsock(device)) else {
        return;
    };
    let others = || {
        let before = manifest.virtio.iter().take(index);
        before.filter(|other| is_vsock(other))
    };
    let place_of = |other: Option<&VirtioDevice<'a>>| backends::node_of(manifest, other?);
    let second = others().find(|other| other.vm == device.vm);
    // planted: two guests have one identifier
    let same = others().find(|other| other.vm != device.vm && other.cid == device.cid);
    if let Some(other) = place_of(second) {
        let error = ManifestError::at_property(Rule::SecondVsock, node, "type");
        report.error(error.conflicts(other));
    }
    if let (Some(other), Some(cid)) = (place_of(same), device.cid) {
        let error = ManifestError::at_property(Rule::SameCid, node, "cid");
        report.error(error.found(Found::Number(cid.into())).conflicts(other));
    }
}
