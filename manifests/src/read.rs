//! From the blob to the model: binding v1, property by property.
//!
//! Reports every unknown name, wrong type and unknown value, all of them in one run. A VM with such
//! an error is left out of the model, so that the rules do not report what follows from it.

use crate::blob::{Blob, BlobError};
use crate::error::{Found, ManifestError, NodePath, Refused, Report, Rule};
use crate::list::List;
use crate::model::{
    Console, DevicePatterns, Gear2Config, GicMode, Manifest, Memory, Names, OnGiveUp, Payload,
    Policy, Restart, RestartLimit, Rtc, Service, SharedMemory, VhostUser, VirtioDevice, Vm, VmKind,
    WatchdogDevice,
};
use crate::rules;
use crate::{
    BINDING_VERSION, COMPATIBLE, GEAR2_MEMBER, MAX_VIRTIO, MAX_VIRTIO_PER_VM, MEMORY_ALIGN, VmId,
};

mod as_booted;
pub mod binding;
mod board_watchdog;
mod bus_masters;
mod channels;
mod scheduling;
mod section;
#[cfg(test)]
mod tests;

use section::Section;

use binding::{
    CONSOLE_PROPERTIES, GEAR2_NODES, GEAR2_PROPERTIES, GIC_MODES, GIVE_UPS, KINDS, PRIVILEGES,
    RESTART_LIMITS, RESTARTS, ROOT_NODES, ROOT_PROPERTIES, RTC_PROPERTIES, SHARED_PROPERTIES,
    VHOST_FUNCTIONS, VIRTIO_KINDS, VIRTIO_PROPERTIES, VM_NODES, VM_PROPERTIES,
};

/// Bytes of a MiB, the unit in which manifests write sizes.
const MIB: u64 = 1 << 20;
/// Repair of a manifest that names Gear2's image in the archive, which looks right.
const GEAR2_IS_MADE: &str =
    "gear2.bin: the Gear2 that xtask builds, which is the one without image";

/// Reads a compiled manifest and judges it by every rule that needs no machine. All errors go to
/// `sink`. `blob` must be aligned to four bytes.
pub fn read<'a>(
    blob: &'a [u8],
    sink: &mut dyn FnMut(ManifestError<'a>),
) -> Result<Manifest<'a>, Refused> {
    let mut manifest = Manifest::EMPTY;
    read_into(&mut manifest, blob, sink)?;
    Ok(manifest)
}

/// Reads a manifest as [`read`] does, in place: a manifest is large, and each move of it is a copy
/// on the stack.
pub fn read_into<'a>(
    manifest: &mut Manifest<'a>,
    blob: &'a [u8],
    sink: &mut dyn FnMut(ManifestError<'a>),
) -> Result<(), Refused> {
    let mut report = Report::new(sink);
    let is_manifest = read_blob(manifest, Blob::new(blob), &mut report);
    report.outcome()?;
    is_manifest.then_some(()).ok_or(Refused { error_count: 0 })
}

/// Reads the manifest in `blob`, and tells whether it is one. The result lacks entries that could
/// not be read, each of which `report` tells.
pub(crate) fn read_blob<'a>(
    manifest: &mut Manifest<'a>,
    blob: Result<Blob<'a>, BlobError>,
    report: &mut Report<'_, 'a>,
) -> bool {
    // Without a tree, or without a version that is known, no other message would mean anything.
    let Some(root) = root_of(blob, report) else {
        return false;
    };
    let Some(version) = read_version(&root, report) else {
        return false;
    };
    manifest.version = version;
    read_root(manifest, &root, report);
    true
}

/// Returns the root node of a well-formed blob.
fn root_of<'a>(
    blob: Result<Blob<'a>, BlobError>,
    report: &mut Report<'_, 'a>,
) -> Option<Section<'a>> {
    match blob {
        Ok(blob) => Some(Section {
            node: blob.root(),
            path: NodePath::ROOT,
        }),
        Err(error) => {
            let place = ManifestError::at(Rule::BadBlob, NodePath::ROOT);
            report.error(place.found(Found::Blob(error)));
            None
        }
    }
}

/// Reads all nodes, and judges what was read. /gear2 comes first: VMs name its pools. Errors of
/// /gear2 itself do not make the list of VMs incomplete, so rules on VMs are tried all the same.
fn read_root<'a>(manifest: &mut Manifest<'a>, root: &Section<'a>, report: &mut Report<'_, 'a>) {
    let before = report.error_count;
    root.check_names(ROOT_PROPERTIES, ROOT_NODES, report);
    // A misspelled node is probably one that others name.
    let is_whole = before == report.error_count;
    if let Some(gear2) = root.child("gear2") {
        manifest.gear2 = read_gear2(&gear2, report);
    }
    manifest.fed = board_watchdog::read(root, report);
    let before = report.error_count;
    if let Some(gear2) = root.child("gear2") {
        scheduling::read_pools(&gear2, manifest, report);
    }
    if let Some(vms) = root.child("vms") {
        read_vms(&vms, manifest, report);
    }
    if let Some(shared) = root.child("shared-memory") {
        read_shared(&shared, manifest, report);
    }
    if let Some(channels) = root.child("channels") {
        channels::read(&channels, manifest, report);
    }
    if let Some(masters) = root.child("bus-masters") {
        bus_masters::read(&masters, manifest, report);
    }
    if let Some(devices) = root.child("as-booted") {
        as_booted::read(&devices, manifest, report);
    }
    let is_complete = is_whole && before == report.error_count;
    rules::check(manifest, is_complete, report);
}

/// Reads what says whether this is a manifest at all; nothing else is looked at before.
fn read_version<'a>(root: &Section<'a>, report: &mut Report<'_, 'a>) -> Option<u32> {
    let compatible = root.node.property("compatible");
    if compatible.and_then(|property| property.text()) != Some(COMPATIBLE) {
        let error = ManifestError::at_property(Rule::NotAManifest, root.path, "compatible");
        report.error(error);
        return None;
    }
    let before = report.error_count;
    let version = root.number("version", report);
    if version == Some(BINDING_VERSION) || before != report.error_count {
        return version;
    }
    let error = ManifestError::at_property(Rule::BindingVersion, root.path, "version");
    report.error(error.found(version.map_or(Found::Nothing, |v| Found::Number(v.into()))));
    None
}

/// Reads /gear2. Each property that is left out has its default, so that an empty node and none are
/// alike.
fn read_gear2<'a>(gear2: &Section<'a>, report: &mut Report<'_, 'a>) -> Gear2Config<'a> {
    const DEFAULT: Gear2Config<'static> = Gear2Config::DEFAULT;
    gear2.check_names(GEAR2_PROPERTIES, GEAR2_NODES, report);
    refuse_own_name(gear2, report);
    Gear2Config {
        image: gear2.text("image", report).unwrap_or(DEFAULT.image),
        memory_bytes: gear2
            .mib("memory-mib", report)
            .unwrap_or(DEFAULT.memory_bytes),
        cpus: gear2.cpus(report),
        policy: scheduling::read_policy(gear2, Policy::DEFAULT.balancer, report),
        privilege: gear2
            .choice("privilege", PRIVILEGES, report)
            .unwrap_or(DEFAULT.privilege),
        watchdog_ms: gear2.number("watchdog-ms", report),
        boot_order_timeout_ms: gear2
            .number("boot-order-timeout-ms", report)
            .unwrap_or(DEFAULT.boot_order_timeout_ms),
        restart_limit: gear2
            .number("restart-limit", report)
            .unwrap_or(DEFAULT.restart_limit),
        restart_window_ms: gear2
            .number("restart-window-ms", report)
            .unwrap_or(DEFAULT.restart_window_ms),
        trace_kib: gear2
            .number("trace-kib", report)
            .unwrap_or(DEFAULT.trace_kib),
        trace_from_boot: gear2.switch("trace-from-boot", report),
        digest: gear2.digest("image", "image-sha256", report),
    }
}

/// Refuses the name of the Gear2 that the build makes: it stands for that image where the property
/// is absent, and a file of that name would never be looked at.
fn refuse_own_name<'a>(gear2: &Section<'a>, report: &mut Report<'_, 'a>) {
    let image = gear2.node.property("image");
    if image.and_then(|image| image.text()) == Some(GEAR2_MEMBER) {
        let place = ManifestError::at_property(Rule::FileName, gear2.path, "image");
        report.error(place.found(Found::Reason(GEAR2_IS_MADE)));
    }
}

/// Reads the limits of a VM's restarts: a number, and two times in milliseconds.
fn read_restart_limit<'a>(vm: &Section<'a>, report: &mut Report<'_, 'a>) -> RestartLimit {
    const DEFAULT: RestartLimit = RestartLimit::DEFAULT;
    let [limit, window_ms, backoff_ms] = RESTART_LIMITS.map(|name| vm.number(name, report));
    RestartLimit {
        limit: limit.unwrap_or(DEFAULT.limit),
        window_ms: window_ms.unwrap_or(DEFAULT.window_ms),
        backoff_ms: backoff_ms.unwrap_or(DEFAULT.backoff_ms),
    }
}

/// Reads all VMs. One with an error is left out of the model, but its place is kept: VM identifiers
/// are the places in the file, and messages and Gear1 count by them. The devices of such a VM are
/// read all the same, so that their errors are told in one run. All VMs that are too many are one
/// message.
fn read_vms<'a>(vms: &Section<'a>, manifest: &mut Manifest<'a>, report: &mut Report<'_, 'a>) {
    vms.check_properties(&[], report);
    for (index, vm) in vms.children().enumerate() {
        let Some(id) = VmId::new(index) else {
            report.error(ManifestError::at(Rule::TooManyVms, vm.path));
            break;
        };
        let before = report.error_count;
        let read = read_vm(id, &vm, report);
        if let Some(virtio) = vm.child("virtio") {
            read_virtio(id, &virtio, &mut manifest.virtio, report);
        }
        if let Some(read) = read
            && before == report.error_count
            && manifest.vms.push(read).is_err()
        {
            report.error(ManifestError::at(Rule::TooManyVms, vm.path));
        }
    }
}

/// Reads the memory that VMs share from boot on. A missing address or size becomes 0, which the
/// rules refuse with the range that is allowed.
fn read_shared<'a>(all: &Section<'a>, manifest: &mut Manifest<'a>, report: &mut Report<'_, 'a>) {
    all.check_properties(&[], report);
    for (index, shared) in all.children().enumerate() {
        shared.check_names(SHARED_PROPERTIES, &[], report);
        all.check_repeated(index, &shared, report);
        let read = SharedMemory {
            name: shared.node.name(),
            address: shared.long("address", report).unwrap_or(0),
            bytes: shared.mib("size-mib", report).unwrap_or(0),
            vms: Names(shared.texts("vms", report)),
            readers: Names(shared.texts("readers", report)),
        };
        if manifest.shared.push(read).is_err() {
            report.error(ManifestError::at(Rule::TooManyShared, shared.path));
            break;
        }
    }
}

/// Reads the virtio devices of a VM. Devices of a VM that is left out stay in the list: their
/// places are the channels of the devices behind them. The VM's own limit is told first, as it names
/// the node that a person has to change.
fn read_virtio<'a>(
    vm: VmId,
    virtio: &Section<'a>,
    list: &mut List<VirtioDevice<'a>, MAX_VIRTIO>,
    report: &mut Report<'_, 'a>,
) {
    virtio.check_properties(&[], report);
    for (index, device) in virtio.children().enumerate() {
        device.check_names(VIRTIO_PROPERTIES, &[], report);
        virtio.check_repeated(index, &device, report);
        let read = read_virtio_device(vm, index, &device, report);
        if index >= MAX_VIRTIO_PER_VM {
            report.error(ManifestError::at(Rule::TooManyVirtioOfVm, device.path));
            break;
        }
        if list.push(read).is_err() {
            report.error(ManifestError::at(Rule::TooManyVirtio, device.path));
            break;
        }
    }
}

/// Reads a virtio device of any type. Which properties belong to which type is a rule's to say, as
/// the message names both.
fn read_virtio_device<'a>(
    vm: VmId,
    index: usize,
    device: &Section<'a>,
    report: &mut Report<'_, 'a>,
) -> VirtioDevice<'a> {
    VirtioDevice {
        vm,
        index,
        name: device.node.name(),
        kind: device.choice("type", VIRTIO_KINDS, report),
        backend: device.text("backend", report),
        read_only: device.switch("read-only", report),
        mac: device.text("mac", report),
        service: Service {
            serial: device.text("serial", report),
            mtu: device.number("mtu", report),
            iops: device.number("iops-limit", report),
            bytes_per_second: device.number("bytes-per-second-limit", report),
            burst_ms: device.number("burst-ms", report),
        },
        socket: device.text("socket", report),
        cid: device.number("cid", report),
        vhost_user: VhostUser {
            function: device.choice("device", VHOST_FUNCTIONS, report),
            device_id: device.number("device-id", report),
            queues: device.number("queues", report),
            config_size: device.number("config-size", report),
            tag: device.text("tag", report),
            timeout_ms: device.number("timeout-ms", report),
            command: Names(device.texts("command", report)),
            files: Names(device.texts("files", report)),
        },
    }
}

/// Reads a VM; `None` only without a payload, of which nothing could be judged.
fn read_vm<'a>(id: VmId, vm: &Section<'a>, report: &mut Report<'_, 'a>) -> Option<Vm<'a>> {
    vm.check_names(VM_PROPERTIES, VM_NODES, report);
    let memory = Memory {
        bytes: vm.mib("memory-mib", report).unwrap_or(0),
        address: vm.long("memory-address", report),
        ipa: vm.long("memory-ipa", report),
        align: vm.mib("memory-align-mib", report).unwrap_or(MEMORY_ALIGN),
    };
    let vcpu_count = vm.number("vcpus", report).unwrap_or(1);
    Some(Vm {
        name: vm.node.name(),
        id,
        kind: vm.choice("kind", KINDS, report).unwrap_or(VmKind::Guest),
        // A number of 32 bits fits wherever this runs; the rules have the limit.
        vcpu_count: usize::try_from(vcpu_count).unwrap_or(usize::MAX),
        cpus: vm.cpus(report).unwrap_or_default(),
        pool: vm.text("pool", report),
        memory,
        console: vm
            .child("console")
            .map(|console| read_console(&console, report)),
        rtc: vm.child("rtc").map(|rtc| read_rtc(&rtc, report)),
        parameters: scheduling::read_parameters(vm, report),
        may_power_off: vm.switch("may-power-off", report),
        autostart: !vm.switch("no-autostart", report),
        boot_order: vm.number("boot-order", report).unwrap_or(0),
        debug: vm.switch("debug", report),
        pmu: vm.switch("pmu", report),
        pointer_auth: vm.switch("pointer-authentication", report),
        sve_bits: vm.number("sve-bits", report).unwrap_or(0),
        firmware_trng: vm.switch("firmware-trng", report),
        last_words: vm.switch("last-words", report),
        dump: vm.switch("dump", report),
        restart: vm
            .choice("restart", RESTARTS, report)
            .unwrap_or(Restart::Never),
        restart_limit: read_restart_limit(vm, report),
        on_give_up: vm
            .choice("on-give-up", GIVE_UPS, report)
            .unwrap_or(OnGiveUp::Stop),
        standby: vm.text("standby", report),
        tells: vm.text("tells", report),
        watchdog_ms: vm.number("watchdog-ms", report).unwrap_or(0),
        progress_ms: vm.number("progress-ms", report).unwrap_or(0),
        dma_fault_limit: vm.number("dma-fault-limit", report).unwrap_or(0),
        watchdog_ipa: vm
            .long("watchdog-address", report)
            .unwrap_or(WatchdogDevice::DEFAULT_IPA),
        gic: vm
            .choice("gic", GIC_MODES, report)
            .unwrap_or(GicMode::Emulated),
        devices: DevicePatterns(vm.texts("devices", report)),
        trusts_dma: vm.switch("trusts-dma", report),
        peers: Names(vm.texts("ffa-peers", report)),
        window_ipa: vm
            .long("window-address", report)
            .unwrap_or(Vm::DEFAULT_WINDOW),
        virtio_ipa: vm
            .long("virtio-address", report)
            .unwrap_or(Vm::DEFAULT_VIRTIO),
        digests: read_digests(vm, report),
        payload: read_payload(vm, report)?,
    })
}

/// Reads the emulated UART: its address in the VM (IPA), and its INTID.
fn read_console<'a>(console: &Section<'a>, report: &mut Report<'_, 'a>) -> Console {
    console.check_names(CONSOLE_PROPERTIES, &[], report);
    Console {
        ipa: console
            .long("address", report)
            .unwrap_or(Console::DEFAULT.ipa),
        intid: console
            .number("interrupt", report)
            .unwrap_or(Console::DEFAULT.intid),
    }
}

/// Reads the emulated clock: its address in the VM (IPA).
fn read_rtc<'a>(rtc: &Section<'a>, report: &mut Report<'_, 'a>) -> Rtc {
    rtc.check_names(RTC_PROPERTIES, &[], report);
    Rtc {
        ipa: rtc.long("address", report).unwrap_or(Rtc::DEFAULT.ipa),
    }
}

/// Reads what a VM runs. The property that names the file tells the kind; one of the two is enough
/// to be sure which is meant, both are not.
fn read_payload<'a>(vm: &Section<'a>, report: &mut Report<'_, 'a>) -> Option<Payload<'a>> {
    match (vm.node.property("kernel"), vm.node.property("image")) {
        (Some(_), None) => read_linux(vm, report),
        (None, Some(_)) => read_flat(vm, report),
        (Some(_), Some(_)) => {
            vm.refuse(&["image"], Rule::TwoPayloads, report);
            None
        }
        (None, None) => {
            let place = ManifestError::at_property(Rule::NoPayload, vm.path, "kernel");
            report.error(place);
            None
        }
    }
}

/// Reads all properties before a missing one ends the reading, so that each fault is reported.
fn read_linux<'a>(vm: &Section<'a>, report: &mut Report<'_, 'a>) -> Option<Payload<'a>> {
    // A kernel says in its header where it wants to be.
    vm.refuse(&["load-offset", "entry-offset"], Rule::OtherPayload, report);
    let initrd = vm.text("initrd", report);
    let cmdline = vm.text("cmdline", report).unwrap_or("");
    Some(Payload::Linux {
        kernel: vm.text("kernel", report)?,
        initrd,
        cmdline,
    })
}

/// Reads all properties before a missing one ends the reading, as [`read_linux`] does.
fn read_flat<'a>(vm: &Section<'a>, report: &mut Report<'_, 'a>) -> Option<Payload<'a>> {
    // A flat binary has no protocol that would tell it of an initrd.
    vm.refuse(&["initrd"], Rule::OtherPayload, report);
    let cmdline = vm.text("cmdline", report).unwrap_or("");
    let load_offset = vm.long("load-offset", report).unwrap_or(0);
    let entry_offset = vm.long("entry-offset", report).unwrap_or(0);
    Some(Payload::Flat {
        image: vm.text("image", report)?,
        load_offset,
        entry_offset,
        cmdline,
    })
}

/// Reads the digests of the payload's files, in the order of [`Payload::files`].
fn read_digests<'a>(vm: &Section<'a>, report: &mut Report<'_, 'a>) -> [Option<&'a str>; 2] {
    // Both are read, so that a digest of the payload that the VM does not have is told.
    let kernel = vm.digest("kernel", "kernel-sha256", report);
    let image = vm.digest("image", "image-sha256", report);
    [
        kernel.or(image),
        vm.digest("initrd", "initrd-sha256", report),
    ]
}
