//! From the blob to the model: binding v1, property by property.
//!
//! Reports every unknown name, wrong type and unknown value, all of them in one run. A VM with such
//! an error is left out of the model, so that the rules do not report what follows from it.

use crate::blob::{Blob, Node, Property};
use crate::error::{Found, ManifestError, NodePath, Refused, Report, Rule};
use crate::list::List;
use crate::model::{
    Console, CpuList, DevicePatterns, Gear2Config, GicMode, Manifest, Memory, Names, Payload,
    Policy, Restart, RestartLimit, Rtc, SharedMemory, VhostUser, VirtioDevice, Vm, VmKind,
};
use crate::nearest::nearest;
use crate::rules;
use crate::{
    BINDING_VERSION, COMPATIBLE, CpuIndex, GEAR2_MEMBER, MAX_VIRTIO, MAX_VIRTIO_PER_VM,
    MEMORY_ALIGN, VmId,
};

pub mod binding;
mod channels;
mod scheduling;
#[cfg(test)]
mod tests;

use binding::{
    CELL_PROPERTIES, CONSOLE_PROPERTIES, GEAR2_NODES, GEAR2_PROPERTIES, GIC_MODES, KINDS,
    PRIVILEGES, RESTART_LIMITS, RESTARTS, ROOT_NODES, ROOT_PROPERTIES, RTC_PROPERTIES,
    SHARED_PROPERTIES, VHOST_FUNCTIONS, VIRTIO_KINDS, VIRTIO_PROPERTIES, VM_NODES, VM_PROPERTIES,
};

const MIB: u64 = 1 << 20;
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
    let is_manifest = read_blob(manifest, blob, &mut report);
    report.outcome()?;
    is_manifest.then_some(()).ok_or(Refused { error_count: 0 })
}

/// Reads the manifest in `blob`, and tells whether it is one. The result lacks entries that could
/// not be read, each of which `report` tells.
pub(crate) fn read_blob<'a>(
    manifest: &mut Manifest<'a>,
    blob: &'a [u8],
    report: &mut Report<'_, 'a>,
) -> bool {
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
fn root_of<'a>(blob: &'a [u8], report: &mut Report<'_, 'a>) -> Option<Section<'a>> {
    match Blob::new(blob) {
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

fn read_root<'a>(manifest: &mut Manifest<'a>, root: &Section<'a>, report: &mut Report<'_, 'a>) {
    root.check_names(ROOT_PROPERTIES, ROOT_NODES, report);
    if let Some(gear2) = root.child("gear2") {
        manifest.gear2 = read_gear2(&gear2, report);
    }
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
    rules::check(manifest, before == report.error_count, report);
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

fn read_restart_limit<'a>(vm: &Section<'a>, report: &mut Report<'_, 'a>) -> RestartLimit {
    const DEFAULT: RestartLimit = RestartLimit::DEFAULT;
    let [limit, window_ms, backoff_ms] = RESTART_LIMITS.map(|name| vm.number(name, report));
    RestartLimit {
        limit: limit.unwrap_or(DEFAULT.limit),
        window_ms: window_ms.unwrap_or(DEFAULT.window_ms),
        backoff_ms: backoff_ms.unwrap_or(DEFAULT.backoff_ms),
    }
}

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
        vhost_user: VhostUser {
            socket: device.text("socket", report),
            function: device.choice("device", VHOST_FUNCTIONS, report),
            device_id: device.number("device-id", report),
            queues: device.number("queues", report),
            config_size: device.number("config-size", report),
            tag: device.text("tag", report),
            command: Names(device.texts("command", report)),
            files: Names(device.texts("files", report)),
        },
    }
}

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
        restart: vm
            .choice("restart", RESTARTS, report)
            .unwrap_or(Restart::Never),
        restart_limit: read_restart_limit(vm, report),
        watchdog_ms: vm.number("watchdog-ms", report).unwrap_or(0),
        gic: vm
            .choice("gic", GIC_MODES, report)
            .unwrap_or(GicMode::Emulated),
        devices: DevicePatterns(vm.texts("devices", report)),
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

fn read_rtc<'a>(rtc: &Section<'a>, report: &mut Report<'_, 'a>) -> Rtc {
    rtc.check_names(RTC_PROPERTIES, &[], report);
    Rtc {
        ipa: rtc.long("address", report).unwrap_or(Rtc::DEFAULT.ipa),
    }
}

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
    let kernel = vm.digest("kernel", "kernel-sha256", report);
    let image = vm.digest("image", "image-sha256", report);
    [
        kernel.or(image),
        vm.digest("initrd", "initrd-sha256", report),
    ]
}

/// A node with its path.
struct Section<'a> {
    node: Node<'a>,
    path: NodePath<'a>,
}

impl<'a> Section<'a> {
    fn children(&self) -> impl Iterator<Item = Self> {
        let path = self.path;
        self.node.children().map(move |node| Self {
            node,
            path: path.child(node.name()),
        })
    }

    fn child(&self, name: &str) -> Option<Self> {
        self.children().find(|child| child.node.name() == name)
    }

    /// Reports properties and nodes that are not in the lists, and those that stand twice.
    fn check_names(
        &self,
        properties: &[&'static str],
        nodes: &[&'static str],
        report: &mut Report<'_, 'a>,
    ) {
        self.check_properties(properties, report);
        for (index, child) in self.children().enumerate() {
            let name = child.node.name();
            if !nodes.contains(&name) {
                let error = ManifestError::at(Rule::UnknownNode, child.path);
                report.error(ManifestError {
                    nearest: nearest(name, nodes.iter().copied()),
                    ..error
                });
            } else {
                self.check_repeated(index, &child, report);
            }
        }
    }

    /// Refuses the node `index` if one before it has its name: [`Self::child`] would find the
    /// first, and the other would be ignored.
    fn check_repeated(&self, index: usize, child: &Self, report: &mut Report<'_, 'a>) {
        let mut before = self.children().take(index);
        if before.any(|other| other.node.name() == child.node.name()) {
            report.error(ManifestError::at(Rule::DuplicateName, child.path));
        }
    }

    fn check_properties(&self, known: &[&'static str], report: &mut Report<'_, 'a>) {
        for property in self.node.properties() {
            let name = property.name;
            if !known.contains(&name) {
                let error = self.error(Rule::UnknownProperty, &property);
                report.error(ManifestError {
                    nearest: nearest(name, known.iter().copied()),
                    ..error
                });
            } else if self.node.property(name) != Some(property) {
                report.error(self.error(Rule::DuplicateName, &property));
            }
        }
    }

    /// Reports each of the properties that is there.
    fn refuse(&self, names: &[&str], rule: Rule, report: &mut Report<'_, 'a>) {
        for property in names.iter().filter_map(|name| self.node.property(name)) {
            report.error(self.error(rule, &property));
        }
    }

    fn error(&self, rule: Rule, property: &Property<'a>) -> ManifestError<'a> {
        ManifestError::at_property(rule, self.path, property.name)
    }

    /// Reads a property with `read`, and reports the wrong type if that gives nothing.
    fn typed<T>(
        &self,
        name: &str,
        report: &mut Report<'_, 'a>,
        read: impl FnOnce(&Property<'a>) -> Option<T>,
    ) -> Option<T> {
        let property = self.node.property(name)?;
        let value = read(&property);
        if value.is_none() {
            report.error(self.error(Rule::WrongType, &property));
        }
        value
    }

    /// Reads one cell.
    fn number(&self, name: &str, report: &mut Report<'_, 'a>) -> Option<u32> {
        debug_assert!(CELL_PROPERTIES.contains(&name), "{name}");
        self.typed(name, report, |property| {
            let mut cells = property.cells()?;
            (cells.len() == 1).then(|| cells.next())?
        })
    }

    /// Reads one cell, or two of which the first is the upper half.
    fn long(&self, name: &str, report: &mut Report<'_, 'a>) -> Option<u64> {
        debug_assert!(CELL_PROPERTIES.contains(&name), "{name}");
        self.typed(name, report, |property| {
            let cells = property.cells()?;
            let value = cells
                .clone()
                .fold(0, |value, cell| value << 32 | u64::from(cell));
            matches!(cells.len(), 1 | 2).then_some(value)
        })
    }

    /// Reads a size in MiB as bytes.
    fn mib(&self, name: &str, report: &mut Report<'_, 'a>) -> Option<u64> {
        Some(u64::from(self.number(name, report)?) * MIB)
    }

    fn text(&self, name: &str, report: &mut Report<'_, 'a>) -> Option<&'a str> {
        self.typed(name, report, Property::text)
    }

    /// Reads the digest of the file that `file` names, which must be there too.
    fn digest(
        &self,
        file: &str,
        name: &'static str,
        report: &mut Report<'_, 'a>,
    ) -> Option<&'a str> {
        if self.node.property(file).is_none() {
            self.refuse(&[name], Rule::DigestAlone, report);
            return None;
        }
        self.text(name, report)
    }

    /// Reads one or more strings, each with its end.
    fn texts(&self, name: &str, report: &mut Report<'_, 'a>) -> &'a [u8] {
        let value = self.typed(name, report, |property| {
            let text = core::str::from_utf8(property.value).ok()?;
            text.ends_with('\0').then_some(property.value)
        });
        value.unwrap_or_default()
    }

    /// Reads a property that is either there, without a value, or not.
    fn switch(&self, name: &str, report: &mut Report<'_, 'a>) -> bool {
        self.typed(name, report, |property| {
            property.value.is_empty().then_some(())
        })
        .is_some()
    }

    /// Reads one of several texts.
    fn choice<T: Copy>(
        &self,
        name: &str,
        choices: &[(&'static str, T)],
        report: &mut Report<'_, 'a>,
    ) -> Option<T> {
        let text = self.text(name, report)?;
        let choice = choices.iter().find(|(choice, _)| *choice == text);
        if choice.is_none() {
            let property = self.node.property(name)?;
            let error = self
                .error(Rule::UnknownValue, &property)
                .found(Found::Text(text));
            let names = choices.iter().map(|(choice, _)| *choice);
            report.error(error.near(nearest(text, names)));
        }
        choice.map(|(_, value)| *value)
    }

    /// Reads `cpus`: a list without repetition.
    fn cpus(&self, report: &mut Report<'_, 'a>) -> Option<CpuList> {
        let cells = self.typed("cpus", report, |property| {
            property.cells().filter(|cells| cells.len() > 0)
        })?;
        let before = report.error_count;
        let mut list = CpuList::default();
        for cell in cells {
            let error = |rule| {
                ManifestError::at_property(rule, self.path, "cpus")
                    .found(Found::Number(cell.into()))
            };
            match usize::try_from(cell).ok().and_then(CpuIndex::new) {
                None => report.error(error(Rule::UnknownCpu)),
                Some(cpu) if list.set().contains(cpu) => report.error(error(Rule::CpuTwice)),
                // A list without repetition has room for every CPU that has an index.
                Some(cpu) => drop(list.push(cpu)),
            }
        }
        (before == report.error_count).then_some(list)
    }
}
