//! Warnings of what is well-formed and does not do what the manifest's author wants: a device VM
//! that cannot serve, properties without effect, restarts without end.
#![cfg(any(test, feature = "host"))]

use super::error;
use crate::error::{Found, ManifestError, NodePath, Report, Rule};
use crate::model::{
    Balancer, DevicePatterns, Manifest, OnGiveUp, Restart, RestartLimit, VirtioDevice, VirtioKind,
    Vm, VmKind, WatchdogDevice,
};

/// Start of the paths of the disks of a machine that has virtio devices itself.
const VIRTIO_TRANSPORT: &str = "/virtio_mmio@";
/// Names, but for their numbers, that Linux gives network devices other than taps, and QEMU's
/// `user`.
const INTERFACES: [&str; 6] = ["eth", "wlan", "br", "virbr", "lo", "user"];
/// A restart window below this many milliseconds has a warning of its own.
const SHORT_WINDOW_MS: u32 = 1000;

/// Warns of all that, of every VM.
pub(super) fn check<'a>(manifest: &Manifest<'a>, report: &mut Report<'_, 'a>) {
    for vm in manifest.vms.iter() {
        check_effects(manifest, vm, report);
        check_devices(vm, report);
        if vm.kind != VmKind::RealTime {
            check_restarts(vm, report);
            check_safe_state(manifest, vm, report);
        }
        for (_, device) in manifest.virtio_of(vm.id) {
            check_interface(vm, device, report);
            check_program(vm, device, report);
            check_unread(vm, device, report);
        }
    }
    if let Some(server) = manifest.device_vm() {
        check_server(manifest, server, report);
    }
    check_writers(manifest, report);
}

/// Warns of shared memory that is only read.
fn check_writers<'a>(manifest: &Manifest<'a>, report: &mut Report<'_, 'a>) {
    for shared in manifest.shared.iter() {
        if shared.vms.iter().next().is_none() && shared.readers.iter().count() > 1 {
            let node = NodePath::ROOT.child("shared-memory").child(shared.name);
            report.error(ManifestError::at_property(Rule::NoWriter, node, "readers"));
        }
    }
}

/// Warns of a property with a reason.
fn warn<'a>(
    rule: Rule,
    vm: &Vm<'a>,
    property: &'static str,
    why: &'static str,
    report: &mut Report<'_, 'a>,
) {
    report.error(error(rule, vm, property).found(Found::Reason(why)));
}

/// Warns of what has no effect in this VM. Each of these runs as if the property were not there, and
/// nothing else would say so.
fn check_effects<'a>(manifest: &Manifest<'a>, vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let mut useless = |property, why| warn(Rule::NoEffect, vm, property, why, report);
    if vm.boot_order != 0 && !vm.autostart {
        useless(
            "boot-order",
            "with no-autostart the VM does not start at boot",
        );
    }
    let policy = manifest.policy_of(manifest.pool_of(vm));
    // A balancer moves the vCPUs to the other CPUs of the list, too.
    // planted: a balancer uses no more CPUs than a VM has vCPUs
    let stays = policy.balancer == Balancer::None;
    if vm.kind != VmKind::RealTime && stays && vm.cpus.len() > vm.vcpu_count {
        let why = "the VM has fewer vCPUs than CPUs are listed, and no balancer moves them";
        useless("cpus", why);
    }
    if vm.kind != VmKind::Guest && vm.progress_ms != 0 {
        useless("progress-ms", "Gear2 watches over the progress of guests");
    }
    if vm.devices.is_empty() && vm.dma_fault_limit != 0 {
        useless("dma-fault-limit", "the VM owns no devices");
    }
    if vm.trusts_dma && (vm.kind != VmKind::Guest || vm.devices.is_empty()) {
        useless("trusts-dma", "only a guest's devices need it");
    }
    if vm.kind != VmKind::Guest && vm.virtio_ipa != Vm::DEFAULT_VIRTIO {
        useless("virtio-address", "only a guest has virtio devices");
    }
    if vm.watchdog_region().is_none() && vm.watchdog_ipa != WatchdogDevice::DEFAULT_IPA {
        let why = "the VM has no watchdog, as a guest with watchdog-ms has, and no heartbeat, as a \
            real-time VM with watchdog-ms has";
        useless("watchdog-address", why);
    }
}

/// Warns of an entry of `devices` that stands for nothing which one before it does not stand for.
fn check_devices<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    for (index, pattern) in vm.devices.iter().enumerate() {
        let covers = |before: &str| {
            let is_within = !pattern.ends_with('*') && DevicePatterns::matches(before, pattern);
            before == pattern || is_within
        };
        if vm.devices.iter().take(index).any(covers) {
            report.error(error(Rule::SameDevice, vm, "devices").found(Found::Text(pattern)));
        }
    }
}

/// Warns of restarts that are none, or have no end.
fn check_restarts<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let mut odd = |property, why| warn(Rule::OddRestarts, vm, property, why, report);
    let times = [
        ("watchdog-ms", vm.watchdog_ms != 0),
        (
            "progress-ms",
            vm.kind == VmKind::Guest && vm.progress_ms != 0,
        ),
    ];
    if vm.restart == Restart::Never && vm.on_give_up == OnGiveUp::Stop {
        for (property, _) in times.iter().filter(|(_, is_set)| *is_set) {
            odd(property, "it stops the VM, and restart is \"never\"");
        }
    }
    if vm.restart == Restart::Always && vm.may_power_off {
        odd(
            "restart",
            "when the VM turns itself off, the machine is off",
        );
    }
    // A limit of restarts that there are none of is a default, mostly.
    if vm.restart != Restart::Never {
        check_limit(vm, report);
    }
}

/// Warns of a safe state that the VM, or the machine, does not come to.
fn check_safe_state<'a>(manifest: &Manifest<'a>, vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let mut odd = |why| warn(Rule::OddRestarts, vm, "on-give-up", why, report);
    if vm.on_give_up == OnGiveUp::Stop {
        return;
    }
    if vm.restart != Restart::Never && vm.restart_limit.limit == 0 {
        odd("restart-limit is 0: the VM is never given up");
    }
    let is_real_time = |vm: &Vm<'_>| vm.kind == VmKind::RealTime;
    if vm.on_give_up == OnGiveUp::PowerOff && manifest.vms.iter().any(is_real_time) {
        odd("Gear1 refuses a power-off of Gear2's while a real-time VM runs");
    }
}

/// Warns of a limit of restarts that limits nothing.
fn check_limit<'a>(vm: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let mut odd = |property, why| warn(Rule::OddRestarts, vm, property, why, report);
    if (vm.restart_limit.limit, vm.restart_limit.backoff_ms) == (0, 0) {
        odd("restart-limit", "no limit, and no pause either");
    } else if outlasts_the_window(&vm.restart_limit) {
        odd(
            "restart-backoff-ms",
            "the pauses outlast restart-window-ms before restart-limit is reached",
        );
    }
}

/// Tells whether the pauses before the last restart that is allowed take as long as the window: a
/// VM that fails at once is never given up then. Each pause is twice the one before.
fn outlasts_the_window(limit: &RestartLimit) -> bool {
    let doublings = limit.limit.saturating_sub(1).min(RestartLimit::MOST);
    // The sum of n doubled pauses is the first one times 2^n - 1.
    let pauses = u64::from(limit.backoff_ms) * ((1 << doublings) - 1);
    limit.window_ms >= SHORT_WINDOW_MS && limit.limit != 0 && pauses >= limit.window_ms.into()
}

/// Warns of a network card whose tap device would have the name of another device.
fn check_interface<'a>(vm: &Vm<'a>, device: &VirtioDevice<'a>, report: &mut Report<'_, 'a>) {
    let is_net = device.kind == Some(VirtioKind::Net);
    let Some(backend) = device.backend.filter(|_| is_net) else {
        return;
    };
    let name = backend.trim_end_matches(|last: char| last.is_ascii_digit());
    // With any number: a name is wrong whichever of its kind the machine has. Options of other
    // monitors, such as `bridge=br0`, are names to Linux.
    if INTERFACES.contains(&name) || backend.contains(['=', ',']) {
        let node = NodePath::vm(vm.name).child("virtio").child(device.name);
        let place = ManifestError::at_property(Rule::OtherInterface, node, "backend");
        report.error(place.found(Found::Text(backend)));
    }
}

/// Warns of a program that makes its socket elsewhere than the device model looks for it, where the
/// command says so as QEMU's "Backend program conventions" ask for.
fn check_program<'a>(vm: &Vm<'a>, device: &VirtioDevice<'a>, report: &mut Report<'_, 'a>) {
    let options = device.vhost_user.command.iter();
    let mut paths = options.filter_map(|option| option.strip_prefix("--socket-path="));
    let other = paths.find(|path| device.socket.is_some_and(|socket| socket != *path));
    if let Some(path) = other {
        let node = NodePath::vm(vm.name).child("virtio").child(device.name);
        let place = ManifestError::at_property(Rule::OtherSocket, node, "command");
        report.error(place.found(Found::Text(path)));
    }
}

/// Words of a command that a shell would not give to the program.
const SHELL: [&str; 7] = ["&", "&&", "|", "||", ";", ">", "<"];

/// Warns of texts that nobody reads as they are meant: the words of a shell, and what stands for
/// the terminal of a console.
fn check_unread<'a>(vm: &Vm<'a>, device: &VirtioDevice<'a>, report: &mut Report<'_, 'a>) {
    let node = NodePath::vm(vm.name).child("virtio").child(device.name);
    let mut useless = |property, why| {
        let place = ManifestError::at_property(Rule::NoEffect, node, property);
        report.error(place.found(Found::Reason(why)));
    };
    let is_shells = |word: &str| {
        // As in `2>/dev/null` and `>>/var/log/daemon`.
        let rest = word.trim_start_matches(|first: char| first.is_ascii_digit() || first == '&');
        SHELL.contains(&word) || rest.starts_with('>')
    };
    if device.vhost_user.command.iter().any(is_shells) {
        let why = "no shell runs the command: the program gets its words as they are";
        useless("command", why);
    }
    if device
        .vhost_user
        .files
        .iter()
        .any(|file| file.contains('*'))
    {
        useless("files", "no shell runs here: * stands for itself in a name");
    }
    let is_console = device.kind == Some(VirtioKind::Console);
    let is_path = |backend: &str| backend.starts_with('/');
    if is_console && device.backend.is_some_and(is_path) {
        let why = "the console's socket is /run/gearv/VM.console whatever stands here, and pty \
                   makes a terminal beside it";
        useless("backend", why);
    }
}

/// Warns of a device VM that lacks what its guests need of it. A guest that somebody starts by hand
/// is started when its server runs.
fn check_server<'a>(manifest: &Manifest<'a>, server: &Vm<'a>, report: &mut Report<'_, 'a>) {
    let guests = || manifest.virtio_vms();
    let mut lacks = |property, why| warn(Rule::CannotServe, server, property, why, report);
    if uses_virtio_disks(manifest) && !may_have_virtio(&server.devices) {
        let why = "a guest's disk is a virtio disk of the machine, and the VM has no virtio_mmio";
        lacks("devices", why);
    }
    if !server.autostart && guests().any(|guest| guest.autostart) {
        let why = "guests start at boot, and their devices do not answer";
        lacks("no-autostart", why);
    }
    let is_early = |guest: &Vm<'a>| guest.autostart && guest.boot_order < server.boot_order;
    if server.autostart && guests().any(is_early) {
        let why = "a guest starts first, and its devices do not answer until this VM is up";
        lacks("boot-order", why);
    }
}

/// Tells whether a guest's disk is one of the machine's virtio disks.
fn uses_virtio_disks(manifest: &Manifest<'_>) -> bool {
    let is_one = |device: &VirtioDevice<'_>| {
        let backend = device.backend.filter(|path| path.starts_with("/dev/vd"));
        // A disk of another program is opened by that program; its path is not known here.
        device.kind == Some(VirtioKind::Block) && backend.is_some()
    };
    manifest.virtio.iter().any(is_one)
}

/// Tells whether a pattern may stand for a virtio transport.
fn may_have_virtio(devices: &DevicePatterns<'_>) -> bool {
    devices.iter().any(|pattern| {
        // A short pattern such as "/*" matches the transports as well.
        let start = pattern.strip_suffix('*');
        pattern.contains("virtio") || start.is_some_and(|start| VIRTIO_TRANSPORT.starts_with(start))
    })
}

#[cfg(test)]
mod tests;
