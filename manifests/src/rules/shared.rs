//! Rules on the memory that several VMs have from boot on (`/shared-memory`).

use super::{Board, page};
use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::model::{Manifest, Region, SharedMemory, Vm};
use crate::nearest::nearest;
use crate::{ADDRESS_LIMIT, MEMORY_ALIGN};

#[cfg(test)]
mod tests;

/// Makes an error at a property of shared memory.
fn error<'a>(rule: Rule, shared: &SharedMemory<'a>, property: &'static str) -> ManifestError<'a> {
    let node = NodePath::ROOT.child("shared-memory").child(shared.name);
    ManifestError::at_property(rule, node, property)
}

/// Judges what needs no machine; `complete` says that no VM was left out.
pub(super) fn check<'a>(manifest: &Manifest<'a>, complete: bool, report: &mut Report<'_, 'a>) {
    for (index, shared) in manifest.shared.iter().enumerate() {
        // A range that is none overlaps nothing that is worth a message.
        if check_place(shared, report) {
            check_names(manifest, shared, complete, report);
            check_other_shared(manifest, index, shared, report);
            check_vms_memory(manifest, shared, report);
        }
    }
}

/// Returns the refusal of memory that lies over what another node has.
fn overlap<'a>(shared: &SharedMemory<'a>, other: NodePath<'a>) -> ManifestError<'a> {
    let all = shared.with_lead();
    let place = error(Rule::SharedOverlap, shared, "address").conflicts(other);
    place.found(Found::Range(all.start, all.end))
}

/// Refuses memory that lies over other shared memory before it in the file.
fn check_other_shared<'a>(
    manifest: &Manifest<'a>,
    index: usize,
    shared: &SharedMemory<'a>,
    report: &mut Report<'_, 'a>,
) {
    // With what describes each: the descriptions are written at boot, too.
    for other in manifest.shared.iter().take(index) {
        // planted: shared memory has nothing ahead of it
        if other.with_lead().overlaps(&shared.with_lead()) {
            let other = NodePath::ROOT.child("shared-memory").child(other.name);
            report.error(overlap(shared, other));
        }
    }
}

/// Refuses memory that lies over what a VM has: everyone's physical memory, and what a VM that
/// shares it sees at the same addresses.
fn check_vms_memory<'a>(
    manifest: &Manifest<'a>,
    shared: &SharedMemory<'a>,
    report: &mut Report<'_, 'a>,
) {
    let all = shared.with_lead();
    // VMs without an address of their own are placed around this memory.
    for vm in manifest.vms.iter() {
        let memory = vm.memory.physical();
        let physical = memory.map(|memory| with_lead(manifest, vm, memory));
        let seen = shared.access(vm.name).map(|_| seen_by(manifest, vm));
        let mut taken = physical.into_iter().chain(seen.into_iter().flatten());
        if taken.any(|taken| taken.overlaps(&all)) {
            report.error(overlap(shared, NodePath::vm(vm.name)));
        }
    }
}

/// Judges address and size, and tells whether they are good.
fn check_place<'a>(shared: &SharedMemory<'a>, report: &mut Report<'_, 'a>) -> bool {
    // 0 is a property that is missing; nothing can lie at address 0 or have no bytes.
    let is_multiple = |value: u64| value != 0 && value.is_multiple_of(MEMORY_ALIGN);
    for (property, value) in [("address", shared.address), ("size-mib", shared.bytes)] {
        if !is_multiple(value) {
            let place = error(Rule::SharedPlace, shared, property);
            report.error(place.found(Found::Number(value)));
            return false;
        }
    }
    // Stage 2 ends here, at the latest; how much less a CPU translates, the board tells.
    let end = shared.address.checked_add(shared.bytes);
    if end.is_none_or(|end| end > ADDRESS_LIMIT) {
        let place = error(Rule::MemoryLimit, shared, "address");
        report.error(place.found(Found::Number(shared.address)));
        return false;
    }
    true
}

/// Judges who has the memory.
fn check_names<'a>(
    manifest: &Manifest<'a>,
    shared: &SharedMemory<'a>,
    complete: bool,
    report: &mut Report<'_, 'a>,
) {
    // Both lists count as one: a VM in both would have two sets of rights.
    let writers = shared.vms.iter().map(|name| ("vms", name));
    let all = writers.chain(shared.readers.iter().map(|name| ("readers", name)));
    for (index, (property, name)) in all.clone().enumerate() {
        let is_known = manifest.vms.iter().any(|vm| vm.name == name);
        let is_repeated = all.clone().take(index).any(|(_, other)| other == name);
        if is_repeated || complete && !is_known {
            let names = manifest.vms.iter().map(|vm| vm.name);
            let near = nearest(name, names).filter(|_| !is_repeated);
            let place = error(Rule::SharedVm, shared, property).found(Found::Text(name));
            report.error(place.near(near));
        }
    }
    // After the names: one that is misspelled still counts as a VM that was meant.
    if all.count() < 2 {
        report.error(error(Rule::SharedAlone, shared, "vms"));
    }
}

/// Returns a VM's memory with what describes it to the device VM, if that serves it.
fn with_lead<'a>(manifest: &Manifest<'a>, vm: &Vm<'a>, memory: Region) -> Region {
    let is_served = manifest.virtio_of(vm.id).next().is_some();
    let lead = if is_served { SharedMemory::LEAD } else { 0 };
    Region::new(memory.start.saturating_sub(lead), memory.end)
}

/// Iterates over what a VM sees at addresses that the manifest fixes.
pub(super) fn seen_by<'a>(manifest: &Manifest<'a>, vm: &Vm<'a>) -> impl Iterator<Item = Region> {
    others_seen_by(manifest, vm).chain(vm.watchdog_region())
}

/// Iterates over what a VM sees beside its watchdog or heartbeat.
pub(super) fn others_seen_by<'a>(
    manifest: &Manifest<'a>,
    vm: &Vm<'a>,
) -> impl Iterator<Item = Region> {
    let console = vm.console.map(|console| page(console.ipa));
    let has_virtio = manifest.virtio_of(vm.id).next().is_some();
    let virtio = has_virtio.then(|| page(vm.virtio_ipa));
    let is_device_vm = manifest.device_vm().is_some_and(|owner| owner.id == vm.id);
    // The window is the device VM's alone, whatever others write for their own.
    let window = is_device_vm.then(|| vm.window());
    let rtc = vm.rtc.map(|rtc| page(rtc.ipa));
    let fixed = [vm.memory.guest(), console, rtc, virtio, window];
    fixed.into_iter().flatten()
}

/// Judges whether the machine has memory there.
pub(super) fn check_on<'a>(
    manifest: &Manifest<'a>,
    board: &Board<'_>,
    report: &mut Report<'_, 'a>,
) {
    for shared in manifest.shared.iter() {
        let all = shared.with_lead();
        // The memory and its description have to be in one bank: Linux maps them as one.
        let rule = if !board.memory.iter().any(|bank| bank.contains(&all)) {
            Rule::NotMemory
        } else if board.reserved.iter().any(|taken| taken.overlaps(&all)) {
            Rule::MemoryReserved
        } else {
            continue;
        };
        let place = error(rule, shared, "address");
        report.error(place.found(Found::Range(all.start, all.end)));
    }
}
