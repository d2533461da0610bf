//! The rules: what a well-formed manifest must keep to be one that can run.
//!
//! These rules need the manifest alone; those of [`board`] need the machine's facts too.

use core::ops::RangeInclusive;

use crate::archive::TRAILER;
use crate::digest::is_digest;
use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::limits::{
    LONGEST_MS, MAX_BOOT_ORDER, MOST_DMA_FAULTS, SHARED_INTIDS, SVE_BITS, SVE_STEP, TRACE_KIB,
};
use crate::model::{
    CpuSet, GicMode, Manifest, Payload, Privilege, Region, RestartLimit, Vm, VmKind,
};
use crate::nearest::nearest;
use crate::{
    ADDRESS_LIMIT, CpuIndex, GEAR2_MEMBER, GUEST_DTB_PREFIX, MANIFEST_MEMBER, MAX_CPUS, MAX_VCPUS,
    MAX_VCPUS_PER_VM, MEMORY_ALIGN,
};

mod advice;
mod backends;
mod board;
mod channels;
mod command_line;
mod exposure;
mod give_up;
mod kernel_words;
mod root_disk;
mod rtc;
mod scheduling;
mod service;
mod shared;
#[cfg(test)]
mod tests;
mod vhost_user;
mod virtio;
mod vsock;
mod watchdog;

pub(crate) use board::check as check_on;
#[cfg(any(test, feature = "host"))]
pub use exposure::Exposed;
#[cfg(any(test, feature = "host"))]
pub(crate) use exposure::check as check_exposure;
pub use scheduling::load::{Demand, Supply};
pub(crate) use scheduling::placed::check as check_placed;
pub use scheduling::placed::{load_on, server_of, supply_of};

/// Facts about a machine that the rules need.
#[derive(Clone, Copy, Debug)]
pub struct Board<'b> {
    /// Number of CPUs.
    pub cpu_count: usize,
    /// RAM.
    pub memory: &'b [Region],
    /// Memory that no VM can have: Gear1's own, the archive and firmware's reservations.
    pub reserved: &'b [Region],
    /// Guest addresses of the interrupt controller, which Gear1 emulates or maps at fixed
    /// addresses.
    pub devices: &'b [Region],
    /// Whether the CPUs have a PMU that interrupts by the PPI that guests have.
    pub pmu: bool,
    /// Whether the CPUs are of models that have no SVE.
    pub lacks_sve: bool,
    /// Roles of VMs that this build runs.
    pub kinds: &'b [VmKind],
    /// Exception levels at which this build can run Gear2.
    pub privileges: &'b [Privilege],
}

/// Bytes of a page of stage 2, the least range that a guest can have or lack.
const PAGE: u64 = 4096;
/// Longest name of a VM, a pool or a channel, in bytes. A VM's name is a part of paths of sockets
/// in the device VM, which have at most 107.
const MAX_NAME: usize = 20;

/// Judges a manifest by the rules that need no machine; `complete` says that no VM was left out.
pub(crate) fn check<'a>(manifest: &Manifest<'a>, complete: bool, report: &mut Report<'_, 'a>) {
    // A file whose VMs all have errors has VMs.
    if complete && manifest.vms.is_empty() {
        report.error(ManifestError::at(Rule::NoVm, NodePath::ROOT.child("vms")));
    }
    check_gear2(manifest, report);
    watchdog::check_times(manifest, report);
    check_vcpus(manifest, report);
    scheduling::check(manifest, complete, report);
    shared::check(manifest, complete, report);
    channels::check(manifest, complete, report);
    backends::check(manifest, report);
    vsock::check_all(manifest, report);
    for (index, vm) in manifest.vms.iter().enumerate() {
        check_vm(manifest, vm, complete, report);
        for other in manifest.vms.iter().take(index) {
            check_pair(vm, other, report);
        }
    }
}

/// Judges a VM by itself. The order is that of the messages.
fn check_vm<'a>(manifest: &Manifest<'a>, vm: &Vm<'a>, complete: bool, report: &mut Report<'_, 'a>) {
    // A VM has come here because it was read without an error, so each rule sees whole values.
    check_name(vm, report);
    check_cpus(manifest, vm, report);
    check_memory(vm, report);
    check_digests(vm, report);
    check_payload(vm, report);
    check_start(vm, report);
    check_dma_faults(vm, report);
    check_vectors(vm, report);
    check_restarts(vm, report);
    give_up::check(manifest, vm, complete, report);
    channels::check_tells(manifest, vm, report);
    check_console(vm, report);
    rtc::check(manifest, vm, complete, report);
    watchdog::check(manifest, vm, report);
    check_device_vm(vm, report);
    virtio::check(manifest, vm, complete, report);
    check_peers(manifest, vm, complete, report);
}

/// Makes an error at a property of a VM.
fn error<'a>(rule: Rule, vm: &Vm<'a>, property: &'static str) -> ManifestError<'a> {
    ManifestError::at_property(rule, NodePath::vm(vm.name), property)
}

/// Judges whom a VM names as its peers; a VM that was left out may be one of them.
fn check_peers<'a>(
    manifest: &Manifest<'a>,
    vm: &Vm<'a>,
    complete: bool,
    report: &mut Report<'_, 'a>,
) {
    let is_served = |vm: &Vm<'_>| manifest.virtio_of(vm.id).next().is_some();
    let is_real_time = |vm: &Vm<'_>| vm.kind == VmKind::RealTime;
    for name in vm.peers.iter() {
        let place = |rule| error(rule, vm, "ffa-peers").found(Found::Text(name));
        let mut others = manifest.vms.iter().filter(|other| other.id != vm.id);
        match others.find(|other| other.name == name) {
            Some(other) if is_served(other) || is_served(vm) => {
                report.error(place(Rule::PeerIsServed).conflicts(NodePath::vm(other.name)));
            }
            Some(other) if is_real_time(other) || is_real_time(vm) => {
                report.error(place(Rule::PeerIsRealTime).conflicts(NodePath::vm(other.name)));
            }
            // Itself is no peer, whoever else may be missing.
            None if complete || name == vm.name => {
                let names = manifest.vms.iter().map(|other| other.name);
                let names = names.filter(|other| *other != vm.name);
                report.error(place(Rule::UnknownPeer).near(nearest(name, names)));
            }
            Some(_) | None => {}
        }
    }
}

/// Judges /gear2 by itself.
fn check_gear2<'a>(manifest: &Manifest<'a>, report: &mut Report<'_, 'a>) {
    let gear2 = &manifest.gear2;
    let path = NodePath::ROOT.child("gear2");
    let error = |rule, property| ManifestError::at_property(rule, path, property);
    let memory = Found::Mib(gear2.memory_bytes >> 20);
    if gear2.memory_bytes == 0 || !gear2.memory_bytes.is_multiple_of(MEMORY_ALIGN) {
        report.error(error(Rule::MemoryAlignment, "memory-mib").found(memory));
    }
    // Judged as text only: whether the file has the digest is known where the file is.
    if gear2.digest.is_some_and(|digest| !is_digest(digest)) {
        let found = gear2.digest.map_or(Found::Nothing, Found::Text);
        report.error(error(Rule::DigestText, "image-sha256").found(found));
    }
    // The default is the one name of the archive's own that may stand here.
    if !is_file_name(gear2.image) && gear2.image != GEAR2_MEMBER {
        report.error(error(Rule::FileName, "image").found(Found::Text(gear2.image)));
    }
    check_trace(manifest, report);
    let values = [gear2.restart_limit, gear2.restart_window_ms];
    for ((property, range, _), value) in RESTART_RANGES.into_iter().zip(values) {
        if !range.contains(&value) {
            report.error(error(Rule::OutOfRange, property).found(Found::Number(value.into())));
        }
    }
}

/// Judges the rings of trace records. Init takes their memory for every CPU before any VM's, so
/// that a size without a limit would leave nothing for the VMs.
fn check_trace<'a>(manifest: &Manifest<'a>, report: &mut Report<'_, 'a>) {
    let gear2 = &manifest.gear2;
    let path = NodePath::ROOT.child("gear2");
    let error = |rule, property| ManifestError::at_property(rule, path, property);
    if gear2.trace_kib != 0 && !TRACE_KIB.contains(&gear2.trace_kib) {
        let found = Found::Number(gear2.trace_kib.into());
        report.error(error(Rule::OutOfRange, "trace-kib").found(found));
    }
    if gear2.trace_kib == 0 && gear2.trace_from_boot {
        report.error(error(Rule::TraceWithoutRing, "trace-from-boot"));
    }
}

/// Judges the numbers of vCPUs. A sum that is too large is reported once, at the VM that exceeds
/// the limit.
fn check_vcpus<'a>(manifest: &Manifest<'a>, report: &mut Report<'_, 'a>) {
    let mut total = 0_usize;
    for vm in manifest.vms.iter() {
        let found = Found::Number(vm.vcpu_count as u64);
        if !(1..=MAX_VCPUS_PER_VM).contains(&vm.vcpu_count) {
            report.error(error(Rule::VcpuCount, vm, "vcpus").found(found));
            continue;
        }
        // A VM whose own number is wrong does not count here: one mistake, one message.
        let before = total;
        total += vm.vcpu_count;
        if before <= MAX_VCPUS && total > MAX_VCPUS {
            report.error(error(Rule::TooManyVcpus, vm, "vcpus").found(Found::Number(total as u64)));
        }
    }
}

/// Judges a name, which is a label on the console and a part of file names in the device VM.
fn check_name<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    if !is_name(vm.name) {
        report.error(ManifestError::at(Rule::VmName, NodePath::vm(vm.name)));
    }
}

/// Tells whether a VM, a pool or a channel may have this name.
fn is_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let first = name.bytes().next();
    let begins = first.is_some_and(|byte| byte.is_ascii_lowercase());
    begins && name.len() <= MAX_NAME && name.bytes().all(known)
}

/// Judges a VM's CPUs by who schedules there.
fn check_cpus<'a>(manifest: &Manifest<'a>, vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    match vm.kind {
        VmKind::RealTime => check_own_cpus(manifest, vm, report),
        VmKind::Guest | VmKind::Device => check_scheduled_cpus(manifest, vm, report),
    }
}

/// Judges the CPUs of a real-time VM, which nobody else runs on: no loop of Gear2 could serve a
/// console there, and firmware's time would be the VM's.
fn check_own_cpus<'a>(manifest: &Manifest<'a>, vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    if vm.console.is_some() {
        report.error(error(Rule::RealTimeConsole, vm, "console"));
    }
    if vm.cpus.len() != vm.vcpu_count {
        report.error(error(Rule::RealTimeCpus, vm, "cpus"));
    }
    if vm.firmware_trng {
        report.error(error(Rule::RealTimeFirmware, vm, "firmware-trng"));
    }
    // Without `cpus` in /gear2 the two cannot meet: Gear2 has what real-time VMs leave.
    if let Some(cpu) = common(vm.cpus.set(), manifest.gear2_cpus(MAX_CPUS)) {
        let place = error(Rule::CpuTaken, vm, "cpus").found(number(cpu));
        report.error(place.conflicts(NodePath::ROOT.child("gear2")));
    }
}

/// Judges the CPUs of a VM that Gear2 schedules. A CPU that a real-time VM owns is reported as
/// taken when the two VMs are compared, not here as well.
fn check_scheduled_cpus<'a>(manifest: &Manifest<'a>, vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    // As if the machine had all CPUs that a manifest can name; the board's rules know how many it
    // has.
    let gear2 = manifest.gear2_cpus(MAX_CPUS);
    // One CPU stands for all that are wrong: the list is one property.
    let foreign = vm.cpus.set().without(gear2);
    let foreign = foreign.without(manifest.real_time_cpus()).iter().next();
    if let Some(cpu) = foreign {
        let place = error(Rule::CpuNotGear2s, vm, "cpus").found(number(cpu));
        report.error(place.conflicts(NodePath::ROOT.child("gear2")));
    }
    if vm.gic == GicMode::PassThrough {
        report.error(error(Rule::PassThroughGic, vm, "gic"));
    }
}

/// Judges how many aborted accesses of its devices a VM may have.
fn check_dma_faults<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let limit = vm.dma_fault_limit;
    if limit > MOST_DMA_FAULTS {
        let found = Found::Number(limit.into());
        report.error(error(Rule::OutOfRange, vm, "dma-fault-limit").found(found));
    }
}

/// Judges the length of a VM's vectors.
fn check_vectors<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let bits = vm.sve_bits;
    if bits != 0 && !(SVE_BITS.contains(&bits) && bits.is_multiple_of(SVE_STEP)) {
        let found = Found::Number(bits.into());
        report.error(error(Rule::SveBits, vm, "sve-bits").found(found));
    }
}

/// Judges when a VM starts.
fn check_start<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    // The default, which each VM has.
    if vm.boot_order == 0 {
        return;
    }
    let place = |rule| error(rule, vm, "boot-order").found(Found::Number(vm.boot_order.into()));
    if vm.kind == VmKind::RealTime {
        report.error(place(Rule::RealTimeOrder));
    } else if vm.boot_order > MAX_BOOT_ORDER {
        report.error(place(Rule::OutOfRange));
    }
}

/// Limits of restarts: property, range, and the value where a VM does not have the property.
const RESTART_RANGES: [(&str, RangeInclusive<u32>, u32); 3] = {
    const DEFAULT: RestartLimit = RestartLimit::DEFAULT;
    let most = RestartLimit::MOST;
    [
        ("restart-limit", 0..=most, DEFAULT.limit),
        ("restart-window-ms", 1..=LONGEST_MS, DEFAULT.window_ms),
        ("restart-backoff-ms", 0..=LONGEST_MS, DEFAULT.backoff_ms),
    ]
};

/// Judges how often a VM is started again.
fn check_restarts<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let limits = vm.restart_limit;
    let values = [limits.limit, limits.window_ms, limits.backoff_ms];
    for ((property, range, default), value) in RESTART_RANGES.into_iter().zip(values) {
        let found = match property {
            "restart-limit" => Found::Number(value.into()),
            _ => Found::Ms(value),
        };
        let place = |rule| error(rule, vm, property).found(found);
        if vm.kind == VmKind::RealTime && value != default {
            report.error(place(Rule::RealTimeRestarts));
        } else if !range.contains(&value) {
            report.error(place(Rule::OutOfRange));
        }
    }
}

/// Judges a VM's memory: its size, and its addresses in the machine (PA) and in the VM (IPA).
fn check_memory<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    // A size that is missing was read as 0; both have this message.
    if vm.memory.bytes == 0 {
        report.error(error(Rule::NoMemory, vm, "memory-mib"));
    }
    let align = judged_align(vm, report);
    let values = [
        ("memory-mib", Some(vm.memory.bytes)),
        ("memory-address", vm.memory.address),
        ("memory-ipa", vm.memory.ipa),
    ];
    for (property, value) in values {
        if let Some(value) = value {
            check_memory_value(vm, property, value, align, report);
        }
    }
}

/// Judges the alignment of a VM's memory, in bytes, and returns the one to judge its address by:
/// the least that there is in place of a bad one, so that one mistake is one message.
fn judged_align<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) -> u64 {
    let align = vm.memory.align;
    if align.is_power_of_two() && align >= MEMORY_ALIGN {
        return align;
    }
    let mib = Found::Mib(align >> 20);
    report.error(error(Rule::AlignSize, vm, "memory-align-mib").found(mib));
    MEMORY_ALIGN
}

/// Judges the size or an address of a VM's memory.
fn check_memory_value<'a>(
    vm: &Vm<'a>,
    property: &'static str,
    value: u64,
    align: u64,
    report: &mut Report<'_, 'a>,
) {
    let (start, found) = match property {
        "memory-mib" => (0, Found::Mib(value >> 20)),
        _ => (value, Found::Number(value)),
    };
    let place = |rule| error(rule, vm, property).found(found);
    if !value.is_multiple_of(MEMORY_ALIGN) {
        report.error(place(Rule::MemoryAlignment));
    // The IPA is free of the alignment: the wish is for TLB entries, which PA bits decide.
    } else if property == "memory-address" && !value.is_multiple_of(align) {
        report.error(place(Rule::AddressAlign));
    }
    // For the size itself the end counts from 0: a size alone can be too large, too.
    let end = start.checked_add(vm.memory.bytes);
    if end.is_none_or(|end| end > ADDRESS_LIMIT) {
        report.error(place(Rule::MemoryLimit));
    }
}

/// Judges the form of digests. Comparing them needs the files, which init and the build have.
fn check_digests<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    for file in vm.files() {
        if let Some(digest) = file.digest.filter(|digest| !is_digest(digest)) {
            report.error(error(Rule::DigestText, vm, file.property).found(Found::Text(digest)));
        }
    }
}

/// Judges the files of a payload by their names; what is in them is known to the build alone.
fn check_payload<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    match vm.payload {
        Payload::Linux { kernel, initrd, .. } => {
            check_file(vm, "kernel", kernel, report);
            if let Some(initrd) = initrd {
                check_file(vm, "initrd", initrd, report);
            }
        }
        Payload::Flat {
            image,
            load_offset,
            entry_offset,
            ..
        } => {
            check_file(vm, "image", image, report);
            check_offsets(vm, load_offset, entry_offset, report);
        }
    }
}

/// Judges the offsets of a flat image: each lies inside what the one before it leaves.
fn check_offsets<'a>(vm: &Vm<'a>, load: u64, entry: u64, report: &mut Report<'_, 'a>) {
    // The entry counts from the image, and the image from the memory.
    let mut rest = vm.memory.bytes;
    // A VM without memory has an error for that.
    if rest == 0 {
        return;
    }
    for (property, offset) in [("load-offset", load), ("entry-offset", entry)] {
        if offset >= rest || !offset.is_multiple_of(4) {
            let place = error(Rule::LoadOffset, vm, property);
            report.error(place.found(Found::Number(offset)));
            return;
        }
        rest -= offset;
    }
}

/// Judges a name that becomes one of the archive's members.
fn check_file<'a>(vm: &Vm<'a>, property: &'static str, name: &'a str, report: &mut Report<'_, 'a>) {
    if !is_file_name(name) {
        report.error(error(Rule::FileName, vm, property).found(Found::Text(name)));
    }
}

/// Tells whether an archive member may have this name and is not one that is made by the build.
fn is_file_name(name: &str) -> bool {
    // A file of such a name would hide the member that the build makes, or end the archive.
    let own = [MANIFEST_MEMBER, GEAR2_MEMBER, TRAILER].contains(&name)
        || name.starts_with(GUEST_DTB_PREFIX);
    // Messages show the name, and cpio ends it at a NUL.
    let printable = name.chars().all(|letter| !letter.is_control());
    !own && printable && !matches!(name, "" | "artifact:") && name.len() <= 255
}

/// Judges address and interrupt of the emulated UART. The interrupt is an SPI, as the UART is no
/// single vCPU's.
fn check_console<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let Some(console) = vm.console else { return };
    let memory = vm.memory.guest();
    let path = NodePath::vm(vm.name).child("console");
    let address = ManifestError::at_property(Rule::ConsoleAddress, path, "address")
        .found(Found::Number(console.ipa));
    if !console.ipa.is_multiple_of(PAGE) || console.ipa >= ADDRESS_LIMIT {
        report.error(address);
    } else if memory.is_some_and(|memory| memory.overlaps(&page(console.ipa))) {
        report.error(ManifestError {
            rule: Rule::ConsoleOverMemory,
            ..address
        });
    }
    // Not an alternative of the above: address and interrupt are two mistakes, told in one run.
    if !SHARED_INTIDS.contains(&console.intid) {
        let place = ManifestError::at_property(Rule::ConsoleInterrupt, path, "interrupt");
        report.error(place.found(Found::Number(console.intid.into())));
    }
}

/// Judges which devices a VM owns, and that they find its memory.
fn check_devices<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    // The first pattern that is none; whether the others stand for a device, the board tells.
    if let Some(pattern) = vm.devices.iter().find(|pattern| !is_device_path(pattern)) {
        report.error(error(Rule::DevicePath, vm, "devices").found(Found::Text(pattern)));
    }
    if let Some(ipa) = vm.memory.ipa
        && (vm.kind == VmKind::Device || !vm.devices.is_empty())
    {
        report.error(error(Rule::DeviceVmIpa, vm, "memory-ipa").found(Found::Number(ipa)));
    }
}

/// Judges devices of the board, which any VM may own, and the window, which the device VM has.
fn check_device_vm<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    check_devices(vm, report);
    match vm.kind {
        VmKind::Device => check_window(vm, report),
        VmKind::RealTime | VmKind::Guest => refuse_window(vm, report),
    }
}

/// Refuses what only the device VM has.
fn refuse_window<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    // The reader does not keep whether a property was there; one with the default's value has no
    // effect in any VM.
    if vm.window_ipa != Vm::DEFAULT_WINDOW {
        report.error(error(Rule::NotTheDeviceVm, vm, "window-address"));
    }
}

/// Judges where the device VM sees what Gear1 gives it alone (IPA). Its memory is at its physical
/// address, so a fixed one is compared here; the rest of the board is not known yet.
fn check_window<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let window = error(Rule::WindowAddress, vm, "window-address");
    let window = window.found(Found::Number(vm.window_ipa));
    let console = vm.console.map(|console| page(console.ipa));
    // Virtio registers are a guest's, so the device VM has none in the way.
    let mut taken = vm.memory.physical().into_iter().chain(console);
    if !vm.window_ipa.is_multiple_of(Vm::WINDOW_SIZE) || vm.window_ipa >= ADDRESS_LIMIT {
        report.error(window);
    } else if taken.any(|taken| taken.overlaps(&vm.window())) {
        report.error(ManifestError {
            rule: Rule::WindowOverMemory,
            ..window
        });
    }
}

/// Tells whether this is the absolute path of a node, with a `*` nowhere but at its end.
fn is_device_path(pattern: &str) -> bool {
    let path = pattern.strip_suffix('*').unwrap_or(pattern);
    let Some(path) = path.strip_prefix('/') else {
        return false;
    };
    let mut names = path.split('/');
    let last = names.next_back().unwrap_or("");
    // "/" alone would be the whole board, and "/a/" no node.
    let named = pattern.ends_with('*') || !last.is_empty();
    named && names.all(|name| !name.is_empty()) && !path.contains('*')
}

/// Judges what one VM must not have when another one, earlier in the file, has it.
fn check_pair<'a>(vm: &Vm<'a>, other: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let path = NodePath::vm(vm.name);
    let other_path = NodePath::vm(other.name);
    if vm.name == other.name {
        report.error(ManifestError::at(Rule::DuplicateVm, path));
    }
    // At the second of the two in the file, as all rules on pairs: that one came later.
    if vm.may_power_off && other.may_power_off {
        report.error(error(Rule::SecondPowerOff, vm, "may-power-off").conflicts(other_path));
    }
    if vm.kind == VmKind::Device && other.kind == VmKind::Device {
        report.error(error(Rule::SecondDeviceVm, vm, "kind").conflicts(other_path));
    }
    check_memory_and_cpus(vm, other, report);
}

/// Refuses memory and CPUs of two VMs that each must have for itself.
fn check_memory_and_cpus<'a>(vm: &Vm<'a>, other: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let other_path = NodePath::vm(other.name);
    // planted: memory reaches into another VM's from below
    if let (Some(mine), Some(theirs)) = (vm.memory.physical(), other.memory.physical())
        && mine.overlaps(&theirs)
    {
        let place = error(Rule::MemoryOverlap, vm, "memory-address").conflicts(other_path);
        report.error(place.found(Found::Range(mine.start, mine.end)));
    }
    // VMs that Gear2 schedules may share any CPU; that is what a scheduler is for.
    let real_time = vm.kind == VmKind::RealTime || other.kind == VmKind::RealTime;
    if let Some(cpu) = common(vm.cpus.set(), other.cpus.set())
        && real_time
    {
        let place = error(Rule::CpuTaken, vm, "cpus").conflicts(other_path);
        report.error(place.found(number(cpu)));
    }
}

/// Returns the page of stage 2 at an address. A wrong address may lie at the end of all.
fn page(address: u64) -> Region {
    Region::new(address, address.saturating_add(PAGE))
}

/// Returns the first CPU that is in both sets.
fn common(a: CpuSet, b: CpuSet) -> Option<CpuIndex> {
    a.iter().find(|&cpu| b.contains(cpu))
}

/// Returns a CPU's number for a message.
fn number<'a>(cpu: CpuIndex) -> Found<'a> {
    Found::Number(cpu.reg())
}
