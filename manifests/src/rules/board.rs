//! Board rules: whether a machine has what a manifest asks for.
//!
//! The machine's facts come from its own device tree, never from the manifest.

use super::{Board, channels, check_placed, error, number, page, shared, watchdog};
use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::model::{CpuSet, Manifest, Region, Vm, VmKind};

/// Judges a manifest on a board. Sums and neighbours are judged last, and only if nothing else is
/// wrong: a VM that was left out would change both.
pub(crate) fn check<'a>(manifest: &Manifest<'a>, board: &Board<'_>, report: &mut Report<'_, 'a>) {
    let complete = report.error_count == 0;
    if !report.gear2_is_faulty {
        check_gear2_on(manifest, board, report);
    }
    for vm in manifest.vms.iter() {
        check_vm_on(vm, board, report);
        check_registers_on(manifest, vm, board, report);
    }
    if complete && report.error_count == 0 {
        check_placed(manifest, board.cpu_count, report);
    }
    if complete {
        shared::check_on(manifest, board, report);
        channels::check_on(manifest, |vm, range| may_be_taken(vm, board, range), report);
        check_total_memory(manifest, board, report);
    }
}

/// Judges whether the machine has the CPUs of /gear2, and the build an image of its privilege.
fn check_gear2_on<'a>(manifest: &Manifest<'a>, board: &Board<'_>, report: &mut Report<'_, 'a>) {
    let path = NodePath::ROOT.child("gear2");
    let cpus = manifest.gear2_cpus(board.cpu_count);
    if cpus.is_empty() {
        report.error(ManifestError::at_property(
            Rule::Gear2WithoutCpu,
            path,
            "cpus",
        ));
    }
    // The first unknown CPU stands for all: the list is one property.
    if let Some(cpu) = cpus.without(CpuSet::first(board.cpu_count)).iter().next() {
        let place = ManifestError::at_property(Rule::UnknownCpu, path, "cpus");
        report.error(place.found(number(cpu)));
    }
    if !board.privileges.contains(&manifest.gear2.privilege) {
        let rule = Rule::PrivilegeNotSupported;
        report.error(ManifestError::at_property(rule, path, "privilege"));
    }
}

/// Judges whether the machine has what a VM asks for by itself.
fn check_vm_on<'a>(vm: &Vm<'a>, board: &Board<'_>, report: &mut Report<'_, 'a>) {
    if !board.kinds.contains(&vm.kind) {
        report.error(error(Rule::KindNotSupported, vm, "kind"));
    }
    // Judged for each VM that asks, since the repair is in each.
    if vm.pmu && !board.pmu {
        report.error(error(Rule::NoPmu, vm, "pmu"));
    }
    // How long the vectors are, the CPU alone tells: init asks the one that boots.
    if vm.sve_bits != 0 && board.lacks_sve {
        let found = Found::Number(vm.sve_bits.into());
        report.error(error(Rule::NoVectors, vm, "sve-bits").found(found));
    }
    let unknown = vm.cpus.set().without(CpuSet::first(board.cpu_count));
    if let Some(cpu) = unknown.iter().next() {
        report.error(error(Rule::UnknownCpu, vm, "cpus").found(number(cpu)));
    }
    check_memory_on(vm, board, report);
}

/// Judges the VM's memory in the machine (PA), and in the VM beside the machine's devices (IPA),
/// which a guest finds at their physical addresses.
fn check_memory_on<'a>(vm: &Vm<'a>, board: &Board<'_>, report: &mut Report<'_, 'a>) {
    if let Some(memory) = vm.memory.physical() {
        let found = Found::Range(memory.start, memory.end);
        let place = |rule| error(rule, vm, "memory-address").found(found);
        // In one bank: what lies between two banks belongs to devices, or to nobody.
        if !board.memory.iter().any(|bank| bank.contains(&memory)) {
            report.error(place(Rule::NotMemory));
        } else if board.reserved.iter().any(|taken| taken.overlaps(&memory)) {
            report.error(place(Rule::MemoryReserved));
        }
    }
    // Without an IPA the VM sees its memory where the machine has it, where no device is.
    if let Some(ipa) = vm.memory.ipa
        && let Some(memory) = vm.memory.guest()
        && board.devices.iter().any(|device| device.overlaps(&memory))
    {
        let place = error(Rule::MemoryOverDevice, vm, "memory-ipa");
        report.error(place.found(Found::Number(ipa)));
    }
}

/// Tells whether the board may have something of the VM's in a range. Memory without an address of
/// its own may lie anywhere in the machine's.
fn may_be_taken(vm: &Vm<'_>, board: &Board<'_>, range: Region) -> bool {
    let is_anywhere = vm.memory.guest().is_none();
    let memory = if is_anywhere { board.memory } else { &[] };
    // Devices of other VMs are not asked: stage 2 does not show them to this one.
    let mut regions = board.devices.iter().chain(memory);
    regions.any(|region| region.overlaps(&range))
}

/// Judges where the VM is to see the UART that Gear2 emulates.
fn check_console_on<'a>(vm: &Vm<'a>, board: &Board<'_>, report: &mut Report<'_, 'a>) {
    let Some(console) = vm.console else { return };
    if may_be_taken(vm, board, page(console.ipa)) {
        let path = NodePath::vm(vm.name).child("console");
        let place = ManifestError::at_property(Rule::ConsoleOverMemory, path, "address");
        report.error(place.found(Found::Number(console.ipa)));
    }
}

/// Judges where the VM is to see registers that the board does not have.
fn check_registers_on<'a>(
    manifest: &Manifest<'a>,
    vm: &Vm<'a>,
    board: &Board<'_>,
    report: &mut Report<'_, 'a>,
) {
    check_console_on(vm, board, report);
    let taken = |range: Region| may_be_taken(vm, board, range);
    let found = |place: ManifestError<'a>, ipa| place.found(Found::Number(ipa));
    if let Some(rtc) = vm.rtc.filter(|rtc| taken(page(rtc.ipa))) {
        let path = NodePath::vm(vm.name).child("rtc");
        let place = ManifestError::at_property(Rule::RtcOverMemory, path, "address");
        report.error(found(place, rtc.ipa));
    }
    if vm.watchdog_region().is_some_and(taken) {
        report.error(watchdog::address(Rule::WatchdogOverMemory, vm));
    }
    if manifest.virtio_of(vm.id).next().is_some() && taken(page(vm.virtio_ipa)) {
        let place = error(Rule::VirtioOverMemory, vm, "virtio-address");
        report.error(found(place, vm.virtio_ipa));
    }
    if vm.kind == VmKind::Device && taken(vm.window()) {
        let place = error(Rule::WindowOverMemory, vm, "window-address");
        report.error(found(place, vm.window_ipa));
    }
}

/// Iterates over the bytes of memory that Gear2, which has its memory first, and the VMs ask for,
/// with the node of each.
fn demands<'a>(manifest: &Manifest<'a>) -> impl Iterator<Item = (NodePath<'a>, u64)> {
    let gear2 = (NodePath::ROOT.child("gear2"), manifest.gear2.memory_bytes);
    let vms = manifest.vms.iter();
    let vms = vms.map(|vm| (NodePath::vm(vm.name), vm.memory.bytes));
    core::iter::once(gear2).chain(vms)
}

/// Compares what is asked for with what there is, and refuses the first demand that does not fit.
fn check_total_memory<'a>(manifest: &Manifest<'a>, board: &Board<'_>, report: &mut Report<'_, 'a>) {
    // Saturating: damaged sizes end in a message, not in a small sum.
    let banks = board.memory.iter().map(Region::bytes);
    let there = banks.fold(0, u64::saturating_add);
    let asked = demands(manifest).map(|(_, bytes)| bytes);
    let asked = asked.fold(0, u64::saturating_add);
    // In the order of the file: the node that is named is the first that a person can make smaller.
    let mut left = Some(there);
    let mut too_large = demands(manifest).filter(|(_, bytes)| {
        left = left.and_then(|left| left.checked_sub(*bytes));
        left.is_none()
    });
    if let Some((node, _)) = too_large.next() {
        let place = ManifestError::at_property(Rule::OutOfMemory, node, "memory-mib");
        report.error(place.found(Found::Memory(asked, there)));
    }
}
