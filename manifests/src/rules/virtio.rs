//! Rules on a VM's virtio devices by themselves: where their registers lie, which interrupts they
//! have, and what each type of device takes. What serves them is judged in `backends`.

use super::{PAGE, error, page, service, vhost_user, vsock};
use crate::ADDRESS_LIMIT;
use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::model::{Console, Manifest, VirtioDevice, VirtioKind, Vm, VmKind};

/// Judges the virtio devices of a VM; `complete` says that no VM was left out.
pub(super) fn check<'a>(
    manifest: &Manifest<'a>,
    vm: &Vm<'a>,
    complete: bool,
    report: &mut Report<'_, 'a>,
) {
    // Judged without devices, too: a wrong number is no better for being unused.
    if !vm.virtio_ipa.is_multiple_of(PAGE) || vm.virtio_ipa >= ADDRESS_LIMIT {
        report.error(at_address(Rule::VirtioAddress, vm));
    }
    let has_devices = manifest.virtio_of(vm.id).next().is_some();
    if vm.dump && (vm.kind != VmKind::Guest || !has_devices) {
        report.error(error(Rule::DumpOfNoServed, vm, "dump"));
    }
    if !has_devices {
        return;
    }
    let path = NodePath::vm(vm.name).child("virtio");
    if vm.kind != VmKind::Guest {
        report.error(ManifestError::at(Rule::VirtioNotGuest, path));
    } else if complete && manifest.device_vm().is_none() {
        report.error(ManifestError::at(Rule::VirtioWithoutServer, path));
    }
    // Fixed addresses only: where memory without one lies, the board tells.
    if registers_hide_something(vm) {
        report.error(at_address(Rule::VirtioOverMemory, vm));
    }
    check_devices(manifest, vm, path, report);
}

/// Makes an error at the address of a VM's virtio registers (IPA).
fn at_address<'a>(rule: Rule, vm: &Vm<'a>) -> ManifestError<'a> {
    error(rule, vm, "virtio-address").found(Found::Number(vm.virtio_ipa))
}

/// Judges each virtio device of a VM.
fn check_devices<'a>(
    manifest: &Manifest<'a>,
    vm: &Vm<'a>,
    path: NodePath<'a>,
    report: &mut Report<'_, 'a>,
) {
    for (_, device) in manifest.virtio_of(vm.id) {
        let path = path.child(device.name);
        check_device(device, path, report);
        service::check(device, path, report);
        vhost_user::check(device, path, report);
        vsock::check(device, path, report);
        check_interrupt(vm, device, path, report);
    }
}

/// Tells whether a VM's virtio registers lie where the VM has something else.
fn registers_hide_something(vm: &Vm<'_>) -> bool {
    let console = vm.console.map(|console| page(console.ipa));
    let mut taken = vm.memory.guest().into_iter().chain(console);
    // planted: virtio registers lie inside memory
    taken.any(|taken| taken.overlaps(&page(vm.virtio_ipa)))
}

/// Refuses an interrupt of the console that a virtio device has too; the device's is fixed.
fn check_interrupt<'a>(
    vm: &Vm<'a>,
    device: &VirtioDevice<'a>,
    path: NodePath<'a>,
    report: &mut Report<'_, 'a>,
) {
    let is_the_devices = |console: Console| console.intid == device.intid();
    if vm.console.is_some_and(is_the_devices) {
        let console = NodePath::vm(vm.name).child("console");
        let place = ManifestError::at_property(Rule::VirtioInterrupt, console, "interrupt");
        let place = place.found(Found::Number(device.intid().into()));
        report.error(place.conflicts(path));
    }
}

/// Judges what a device of its type takes.
fn check_device<'a>(device: &VirtioDevice<'a>, path: NodePath<'a>, report: &mut Report<'_, 'a>) {
    let error = |rule, property| ManifestError::at_property(rule, path, property);
    // Which properties belong there is not known without a type.
    let Some(kind) = device.kind else {
        report.error(error(Rule::VirtioType, "type"));
        return;
    };
    match device.backend {
        // An empty text names no file, and would be the folder that the device model runs in.
        None | Some("") if has_backend(kind) => report.error(error(Rule::VirtioBackend, "backend")),
        Some(_) if !has_backend(kind) => report.error(error(Rule::VirtioOtherType, "backend")),
        Some(_) | None => {}
    }
    if device.mac.is_some() && kind != VirtioKind::Net {
        report.error(error(Rule::VirtioOtherType, "mac"));
    }
    if device.read_only && kind != VirtioKind::Block {
        report.error(error(Rule::VirtioOtherType, "read-only"));
    }
}

/// Tells whether the property `backend` names what serves devices of a kind; random bytes come from
/// the device VM's kernel, and programs are reached by a socket.
const fn has_backend(kind: VirtioKind) -> bool {
    match kind {
        VirtioKind::Block | VirtioKind::Net | VirtioKind::Console | VirtioKind::Input => true,
        VirtioKind::Random | VirtioKind::Vsock | VirtioKind::VhostUser => false,
    }
}
