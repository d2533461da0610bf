//! Rules on a guest's emulated real-time clock: where its registers lie, and who tells the time.

use super::{PAGE, page};
use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::model::{Manifest, Vm, VmKind};
use crate::{ADDRESS_LIMIT, Region};

/// Judges a VM's real-time clock; `complete` says that no VM was left out.
pub(super) fn check<'a>(
    manifest: &Manifest<'a>,
    vm: &Vm<'a>,
    complete: bool,
    report: &mut Report<'_, 'a>,
) {
    let Some(rtc) = vm.rtc else { return };
    let node = NodePath::vm(vm.name).child("rtc");
    if vm.kind != VmKind::Guest {
        report.error(ManifestError::at(Rule::RtcNotGuest, node));
    // The device VM may be one that was left out for its own errors.
    } else if complete && manifest.device_vm().is_none() {
        report.error(ManifestError::at(Rule::RtcWithoutServer, node));
    }
    check_address(manifest, vm, rtc.ipa, node, report);
}

/// Judges where the VM sees the clock: in a page of the clock's own, since Gear1 emulates whole
/// pages.
fn check_address<'a>(
    manifest: &Manifest<'a>,
    vm: &Vm<'a>,
    ipa: u64,
    node: NodePath<'a>,
    report: &mut Report<'_, 'a>,
) {
    let address = |rule| {
        let place = ManifestError::at_property(rule, node, "address");
        place.found(Found::Number(ipa))
    };
    if !ipa.is_multiple_of(PAGE) || ipa >= ADDRESS_LIMIT {
        report.error(address(Rule::RtcAddress));
    } else if hides_something(manifest, vm, page(ipa)) {
        report.error(address(Rule::RtcOverMemory));
    }
}

/// Tells whether a page lies where the VM has memory or another emulated device.
fn hides_something(manifest: &Manifest<'_>, vm: &Vm<'_>, registers: Region) -> bool {
    let console = vm.console.map(|console| page(console.ipa));
    let has_virtio = manifest.virtio_of(vm.id).next().is_some();
    let virtio = has_virtio.then(|| page(vm.virtio_ipa));
    // Interrupts are not compared: the emulated clock has no alarm, and so none.
    let mut taken = [vm.memory.guest(), console, virtio].into_iter().flatten();
    // planted: the real-time clock lies inside memory
    taken.any(|taken| taken.overlaps(&registers))
}
