//! Warnings: what runs, and lets one VM reach more of another than it might, or slows it down.
//!
//! Only hosts have them (feature `host`): `check` and `build` show each with its place in the
//! source, to whoever can change the manifest.
#![cfg(any(test, feature = "host"))]

use super::{advice, command_line, error, kernel_words, number, scheduling};
use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::model::{CpuSet, Manifest, VirtioKind, Vm, VmKind};

/// Number of VMs that write a memory from which a warning is due: a reader cannot know whose data
/// it reads.
const MANY_WRITERS: usize = 3;
/// Number of peers from which a warning asks whether all of them are needed.
const MANY_PEERS: usize = 3;
/// Times below these many milliseconds are probably seconds. A decision of Gear2 takes
/// microseconds, but an emulator's CPU may stand still for longer than 100 ms.
const SHORT_WATCHDOG_MS: u32 = 100;
/// A VM takes a second and more to boot, be it for those that wait for it or to fail again.
const SHORT_BOOT_MS: u32 = 1000;

/// Facts about a machine that only the warnings need.
#[derive(Clone, Copy, Debug)]
pub struct Exposed<'b> {
    /// Number of CPUs.
    pub cpu_count: usize,
    /// Cluster of each CPU, by any numbers.
    pub clusters: &'b [u64],
    /// Paths of the enabled devices that master the bus.
    pub masters: &'b [&'b str],
}

/// Warns of every VM that exposes more than it might, or runs worse.
pub(crate) fn check<'a>(
    manifest: &Manifest<'a>,
    board: Option<&Exposed<'_>>,
    report: &mut Report<'_, 'a>,
) {
    check_writers(manifest, report);
    if let Some(board) = board {
        check_idle_cpus(manifest, board, report);
    }
    advice::check(manifest, report);
    scheduling::advice::check(manifest, board.map(|board| board.cpu_count), report);
    let gear2 = NodePath::ROOT.child("gear2");
    let config = &manifest.gear2;
    if let Some(period_ms) = config.watchdog_ms {
        warn_if_short(gear2, "watchdog-ms", period_ms, SHORT_WATCHDOG_MS, report);
    }
    let window_ms = config.restart_window_ms;
    warn_if_short(gear2, "restart-window-ms", window_ms, SHORT_BOOT_MS, report);
    warn_if_short(
        gear2,
        "boot-order-timeout-ms",
        config.boot_order_timeout_ms,
        SHORT_BOOT_MS,
        report,
    );
    for vm in manifest.vms.iter() {
        let node = NodePath::vm(vm.name);
        let window_ms = vm.restart_limit.window_ms;
        warn_if_short(node, "restart-window-ms", window_ms, SHORT_BOOT_MS, report);
        if vm.watchdog().is_some() {
            warn_if_short(node, "watchdog-ms", vm.watchdog_ms, SHORT_BOOT_MS, report);
        }
        command_line::warn(manifest, vm, report);
        kernel_words::warn(manifest, vm, report);
        check_devices(manifest, vm, board, report);
        check_sharing(manifest, vm, report);
    }
}

/// Warns of the first CPU that neither Gear2 nor a real-time VM has, if a CPU behind it is used: a
/// list that ends early is mostly meant, one with a gap is not. Without `cpus` in /gear2 there is
/// no such CPU; a VM that was left out may own it.
fn check_idle_cpus<'a>(manifest: &Manifest<'a>, board: &Exposed<'_>, report: &mut Report<'_, 'a>) {
    let all = CpuSet::first(board.cpu_count);
    let idle = all.without(manifest.gear2_cpus(board.cpu_count));
    let idle = idle.without(manifest.real_time_cpus());
    let last_used = all.without(idle).iter().last();
    let first = idle.iter().next().filter(|cpu| Some(*cpu) < last_used);
    if let Some(cpu) = first.filter(|_| manifest.is_complete) {
        let gear2 = NodePath::ROOT.child("gear2");
        let place = ManifestError::at_property(Rule::IdleCpu, gear2, "cpus");
        report.error(place.found(number(cpu)));
    }
}

/// Warns of a time that looks like one in seconds; 0 stands for no limit.
fn warn_if_short<'a>(
    node: NodePath<'a>,
    property: &'a str,
    milliseconds: u32,
    short: u32,
    report: &mut Report<'_, 'a>,
) {
    if (1..short).contains(&milliseconds) {
        let error = ManifestError::at_property(Rule::ShortTime, node, property);
        report.error(error.found(Found::Number(milliseconds.into())));
    }
}

/// Warns of devices and CPUs that cost a VM, or others, more than the manifest's author may know.
fn check_devices<'a>(
    manifest: &Manifest<'a>,
    vm: &Vm<'a>,
    board: Option<&Exposed<'_>>,
    report: &mut Report<'_, 'a>,
) {
    // Once a VM: which of its devices do is in the report of `check`.
    if masters_the_bus(vm, board) {
        report.error(error(Rule::DmaUnchecked, vm, "devices"));
    }
    if board.is_some_and(|board| spans_clusters(manifest, vm, board)) {
        report.error(error(Rule::TwoClusters, vm, "cpus"));
    }
    if (1..Vm::LEAST_WATCHDOG_MS).contains(&vm.watchdog_ms) && vm.kind == VmKind::Device {
        let place = error(Rule::EarlyWatchdog, vm, "watchdog-ms");
        report.error(place.found(Found::Number(vm.watchdog_ms.into())));
    }
}

/// Warns of memory that a VM shows to others for little.
fn check_sharing<'a>(manifest: &Manifest<'a>, vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let mut served = manifest.virtio_of(vm.id).map(|(_, device)| device.kind);
    if served.next().is_some() && is_served_for_little(manifest, vm) {
        let path = NodePath::vm(vm.name).child("virtio");
        report.error(ManifestError::at(Rule::ServedForLittle, path));
    }
    let peer_count = manifest.peers(vm).count();
    if peer_count >= MANY_PEERS {
        let place = error(Rule::ManyPeers, vm, "ffa-peers");
        report.error(place.found(Found::Number(peer_count as u64)));
    }
}

/// Tells whether the VM owns a device that masters the bus; without a board, any device of the
/// device VM may be one. Of a guest's, the manifest says by `trusts-dma` that they are known.
fn masters_the_bus(vm: &Vm<'_>, board: Option<&Exposed<'_>>) -> bool {
    match board {
        Some(_) if vm.kind == VmKind::Guest => false,
        // Of a PCI host bridge a VM may own functions alone.
        Some(board) => board
            .masters
            .iter()
            .any(|path| vm.devices.owns(path) || vm.devices.functions_of(path).next().is_some()),
        None => vm.kind == VmKind::Device && !vm.devices.is_empty(),
    }
}

/// Tells whether the VM's vCPUs start on CPUs of several clusters.
fn spans_clusters(manifest: &Manifest<'_>, vm: &Vm<'_>, board: &Exposed<'_>) -> bool {
    let cluster = |vcpu| {
        let cpu = manifest.start_cpu(vm, vcpu, board.cpu_count)?;
        board.clusters.get(cpu.index())
    };
    // Only where they start: a balancer moves them within `cpus`, which the author has listed.
    (1..vm.vcpu_count).any(|vcpu| cluster(vcpu) != cluster(0))
}

/// Tells whether random numbers are all that a VM is served.
fn is_served_for_little(manifest: &Manifest<'_>, vm: &Vm<'_>) -> bool {
    let mut devices = manifest.virtio_of(vm.id);
    devices.all(|(_, device)| device.kind == Some(VirtioKind::Random))
}

/// Warns of memory that many VMs can write.
fn check_writers<'a>(manifest: &Manifest<'a>, report: &mut Report<'_, 'a>) {
    for shared in manifest.shared.iter() {
        let count = shared.vms.iter().count();
        if count >= MANY_WRITERS {
            let node = NodePath::ROOT.child("shared-memory").child(shared.name);
            let place = ManifestError::at_property(Rule::ManyWriters, node, "vms");
            report.error(place.found(Found::Number(count as u64)));
        }
    }
}
