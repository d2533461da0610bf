//! The manifest as plain data: what `docs/manifest.md` says, typed.
//!
//! Strings are borrowed from the blob. Nothing here is checked: [`crate::read()`] fills it, and the
//! rules judge it.

use crate::blob::text::text_length;
use crate::list::List;
use crate::node_path::NodePath;
use crate::{
    CpuIndex, GEAR2_MEMBER, MAX_AS_BOOTED, MAX_BUS_MASTERS, MAX_CHANNELS, MAX_POOLS, MAX_SHARED,
    MAX_VIRTIO, MAX_VMS, MAX_WINDOWS, VmId,
};

mod as_booted;
mod board_watchdog;
mod bus_masters;
mod channel;
mod cpus;
mod devices;
mod memory;
mod patterns;
mod restart;
mod scheduling;
mod shared;
mod virtio;

pub use as_booted::AsBooted;
pub use board_watchdog::{BoardWatchdog, Fed, GpioHeartbeat};
pub use bus_masters::BusMaster;
pub use channel::{Channel, ChannelEnd};
pub use cpus::{CpuList, CpuSet};
pub use devices::{Console, Rtc, WatchdogDevice};
pub use memory::{Memory, Region};
pub use patterns::DevicePatterns;
pub use restart::{OnGiveUp, Restart, RestartLimit};
pub(crate) use scheduling::PARAMETERS;
pub use scheduling::{Balancer, Budget, Parameters, Policy, Pool, Scheduler, Window};
pub use shared::SharedMemory;
pub use virtio::{Service, VhostFunction, VhostUser, VirtioDevice, VirtioKind};

/// A whole manifest.
#[derive(Clone, Copy, Debug)]
pub struct Manifest<'a> {
    /// The binding's version.
    pub version: u32,
    /// The primary VM.
    pub gear2: Gear2Config<'a>,
    /// All other VMs, in the order of the file.
    pub vms: List<Vm<'a>, MAX_VMS>,
    /// The virtio devices of all VMs in the order of the file: a device's place is its channel.
    pub virtio: List<VirtioDevice<'a>, MAX_VIRTIO>,
    /// Pools of CPUs, in the order of the file.
    pub pools: List<Pool<'a>, MAX_POOLS>,
    /// Windows of all pools.
    pub windows: List<Window<'a>, MAX_WINDOWS>,
    /// Memory that several VMs have from boot on.
    pub shared: List<SharedMemory<'a>, MAX_SHARED>,
    /// Kinds of devices and how they are stopped, in the order of the file.
    pub bus_masters: List<BusMaster<'a>, MAX_BUS_MASTERS>,
    /// Devices that stay as firmware has left them, in the order of the file.
    pub as_booted: List<AsBooted<'a>, MAX_AS_BOOTED>,
    /// No error was found, so that no VM was left out.
    pub is_complete: bool,
    /// Doorbells between VMs, in the order of the file.
    pub channels: List<Channel<'a>, MAX_CHANNELS>,
    /// Outputs that Gear1 feeds beyond the VMs.
    pub fed: Fed<'a>,
}

impl<'a> Manifest<'a> {
    /// A manifest without VMs, to be filled.
    pub const EMPTY: Self = Self {
        version: 0,
        gear2: Gear2Config::DEFAULT,
        vms: List::new(),
        virtio: List::new(),
        pools: List::new(),
        windows: List::new(),
        shared: List::new(),
        bus_masters: List::new(),
        as_booted: List::new(),
        is_complete: true,
        channels: List::new(),
        fed: Fed::NOTHING,
    };

    /// Returns the VM that serves the guests' virtio devices.
    #[must_use]
    pub fn device_vm(&self) -> Option<&Vm<'a>> {
        self.vms.iter().find(|vm| vm.kind == VmKind::Device)
    }

    /// Iterates over the virtio devices of a VM with their channels.
    pub fn virtio_of(&self, vm: VmId) -> impl Iterator<Item = (usize, &VirtioDevice<'a>)> {
        let devices = self.virtio.iter().enumerate();
        devices.filter(move |(_, device)| device.vm == vm)
    }

    /// Iterates over the VMs with virtio devices. A VM's position is the number of its register
    /// page.
    pub fn virtio_vms(&self) -> impl Iterator<Item = &Vm<'a>> {
        let has_any = |vm: &&Vm<'_>| self.virtio_of(vm.id).next().is_some();
        self.vms.iter().filter(has_any)
    }

    /// Iterates over the memory that `vm` shares from boot on.
    pub fn shared_of(&self, vm: &Vm<'a>) -> impl Iterator<Item = &SharedMemory<'a>> {
        let name = vm.name;
        let shared = self.shared.iter();
        shared.filter(move |shared| shared.access(name).is_some())
    }

    /// Returns the VM with this name.
    #[must_use]
    pub fn vm_named(&self, name: &str) -> Option<&Vm<'a>> {
        self.vms.iter().find(|vm| vm.name == name)
    }

    /// Returns the memory that a channel tells both of its VMs of.
    #[must_use]
    pub fn memory_of(&self, channel: &Channel<'a>) -> Option<&SharedMemory<'a>> {
        let name = channel.memory?;
        self.shared.iter().find(|shared| shared.name == name)
    }

    /// Tells whether Gear2 rings this channel: when its VM ends by itself, or as a power button.
    #[must_use]
    pub fn is_gear2s(&self, channel: &Channel<'_>) -> bool {
        let tells = |vm: &Vm<'_>| vm.tells == Some(channel.name);
        channel.power_button || self.vms.iter().any(tells)
    }

    /// Returns the place of the power button of `vm` among all channels.
    #[must_use]
    pub fn power_button_of(&self, vm: &Vm<'_>) -> Option<usize> {
        let is_its = |channel: &Channel<'_>| channel.power_button && channel.to == vm.name;
        self.channels.iter().position(is_its)
    }

    /// Iterates over what `vm` sees of the channels, in the order of the file.
    pub fn channel_ends(&self, vm: &Vm<'a>) -> impl Iterator<Item = ChannelEnd<'a>> {
        let name = vm.name;
        let channels = self.channels.iter();
        let own = channels.filter(move |channel| [channel.from, channel.to].contains(&name));
        own.map(move |channel| ChannelEnd {
            name: channel.name,
            doorbell: (channel.from == name).then(|| channel.doorbell()),
            intid: (channel.to == name).then_some(channel.intid),
            memory: self.memory_of(channel).map(SharedMemory::region),
            power_button: channel.power_button,
        })
    }

    /// Returns the VMs that `vm` may share memory with: those that it names, and those that name
    /// it.
    pub fn peers(&self, vm: &Vm<'a>) -> impl Iterator<Item = &Vm<'a>> {
        let names = |one: &Vm<'_>, other: &Vm<'_>| one.peers.iter().any(|name| name == other.name);
        self.vms
            .iter()
            .filter(move |other| other.id != vm.id && (names(vm, other) || names(other, vm)))
    }

    /// Iterates over the files that are named, Gear2's image first.
    pub fn files(&self) -> impl Iterator<Item = NamedFile<'a>> {
        let gear2 = NamedFile {
            node: NodePath::ROOT.child("gear2"),
            property: "image-sha256",
            name: self.gear2.image,
            digest: self.gear2.digest,
        };
        core::iter::once(gear2).chain(self.vms.iter().flat_map(Vm::files))
    }

    /// Returns the CPUs that Gear2 runs on: those that `/gear2` names, else all of the machine's
    /// that no real-time VM owns.
    #[must_use]
    pub fn gear2_cpus(&self, cpu_count: usize) -> CpuSet {
        self.gear2.cpus.map_or_else(
            || CpuSet::first(cpu_count).without(self.real_time_cpus()),
            CpuList::set,
        )
    }

    /// Returns the CPUs that real-time VMs own.
    #[must_use]
    pub fn real_time_cpus(&self) -> CpuSet {
        let real_time = self.vms.iter().filter(|vm| vm.kind == VmKind::RealTime);
        real_time.fold(CpuSet::EMPTY, |set, vm| set.with_all(vm.cpus.set()))
    }

    /// Returns the CPU that `vcpu` of `vm` starts on: entry `vcpu` of the VM's list, or of its
    /// pool's CPUs if it has none, counted round.
    #[must_use]
    pub fn start_cpu(&self, vm: &Vm<'_>, vcpu: usize, cpu_count: usize) -> Option<CpuIndex> {
        if vm.cpus.is_empty() {
            let cpus = self.cpus_of(vm, cpu_count);
            cpus.iter().nth(vcpu.checked_rem(cpus.len())?)
        } else {
            vm.cpus.get(vcpu.checked_rem(vm.cpus.len())?)
        }
    }
}

/// Configuration of Gear2, the primary VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gear2Config<'a> {
    /// Archive member that holds Gear2's image.
    pub image: &'a str,
    /// Size of Gear2's heap.
    pub memory_bytes: u64,
    /// CPUs that run Gear2; [`Manifest::gear2_cpus`] gives the default.
    pub cpus: Option<CpuList>,
    /// Scheduling of the CPUs of no pool.
    pub policy: Policy,
    /// Exception level of Gear2.
    pub privilege: Privilege,
    /// The longest that a Gear2 loop may take for one decision before Gear1 restarts Gear2, in
    /// milliseconds; 0 for no supervision. `None`: [`Self::period_ms`] says.
    pub watchdog_ms: Option<u32>,
    /// Longest time that a VM waits at boot for those that start before it, in milliseconds; 0: no
    /// limit.
    pub boot_order_timeout_ms: u32,
    /// Most restarts of Gear2 within the window; the next failure halts the machine. 0: no limit.
    pub restart_limit: u32,
    /// Length of the window, in milliseconds.
    pub restart_window_ms: u32,
    /// Size of each CPU's ring of trace records in KiB; 0: there are none.
    pub trace_kib: u32,
    /// Whether each CPU writes its ring from its start on.
    pub trace_from_boot: bool,
    /// SHA-256 of the image, in hexadecimal digits.
    pub digest: Option<&'a str>,
}

impl Gear2Config<'_> {
    /// Period of the watchdog where the manifest gives none, in milliseconds.
    const PERIOD_MS: u32 = 1000;
    /// Period on an emulator's machine: a CPU is a thread there, and a busy host may keep the
    /// thread that holds a lock of Gear2 from running for more than a second.
    const VIRTUAL_PERIOD_MS: u32 = 10_000;

    /// Returns the period of the watchdog in milliseconds on a board, which is real or an
    /// emulator's; 0 for no supervision.
    #[must_use]
    pub fn period_ms(&self, is_virtual: bool) -> u32 {
        let default = if is_virtual {
            Self::VIRTUAL_PERIOD_MS
        } else {
            Self::PERIOD_MS
        };
        self.watchdog_ms.unwrap_or(default)
    }

    /// Returns the bytes of each CPU's ring of trace records: the largest power of two that
    /// `trace_kib` holds; 0: there are no rings.
    #[must_use]
    pub const fn trace_bytes(&self) -> u64 {
        match self.trace_kib.checked_ilog2() {
            Some(exponent) => 1 << (exponent + 10),
            None => 0,
        }
    }

    /// Configuration for a manifest that does not mention Gear2.
    pub const DEFAULT: Self = Self {
        image: GEAR2_MEMBER,
        memory_bytes: 4 << 20,
        cpus: None,
        policy: Policy::DEFAULT,
        privilege: Privilege::El0,
        watchdog_ms: None,
        boot_order_timeout_ms: 120_000,
        restart_limit: 8,
        restart_window_ms: 60_000,
        trace_kib: 0,
        trace_from_boot: false,
        digest: None,
    };
}

/// Exception level of Gear2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// EL0 with `HCR_EL2.TGE`: no EL1 state to switch.
    El0,
    /// EL1, the baseline of the papers.
    El1,
}

/// A VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vm<'a> {
    /// Name of the VM's node.
    pub name: &'a str,
    /// Position among the VMs of the file.
    pub id: VmId,
    /// Role of the VM.
    pub kind: VmKind,
    /// Number of vCPUs.
    pub vcpu_count: usize,
    /// CPUs that the vCPUs start on; empty: those of the pool.
    pub cpus: CpuList,
    /// Pool of the VM, if the VM names it.
    pub pool: Option<&'a str>,
    /// Memory of the VM.
    pub memory: Memory,
    /// Files that are loaded into the memory.
    pub payload: Payload<'a>,
    /// SHA-256 of each file of the payload, in hexadecimal digits.
    pub digests: [Option<&'a str>; 2],
    /// Emulated PL011, if the VM has one.
    pub console: Option<Console>,
    /// Emulated PL031, if the VM has one.
    pub rtc: Option<Rtc>,
    /// Parameters for the policy of the VM's CPUs.
    pub parameters: Parameters,
    /// Whether the VM's SYSTEM_OFF powers the machine off.
    pub may_power_off: bool,
    /// Whether the VM runs from boot on.
    pub autostart: bool,
    /// Rank at boot: VMs with a smaller one start earlier.
    pub boot_order: u32,
    /// Whether the VM has the self-hosted debug registers.
    pub debug: bool,
    /// Whether the VM has the performance monitors.
    pub pmu: bool,
    /// Whether the VM has pointer authentication, on CPUs that have it.
    pub pointer_auth: bool,
    /// Length of its longest vectors of SVE, in bits; 0: the VM has no SVE.
    pub sve_bits: u32,
    /// Whether its calls of the TRNG service go to firmware, on CPUs without a source of their own.
    pub firmware_trng: bool,
    /// Whether the registers of its vCPUs are shown when it has ended.
    pub last_words: bool,
    /// Whether the device VM may read the registers of its vCPUs while it is paused.
    pub dump: bool,
    /// Ends after which the VM is started again.
    pub restart: Restart,
    /// Limit on the number and rate of restarts.
    pub restart_limit: RestartLimit,
    /// Safe state, after a failure without a restart.
    pub on_give_up: OnGiveUp,
    /// VM that is started in this one's place by a fail-over.
    pub standby: Option<&'a str>,
    /// Channel of the VM's that Gear2 rings when the VM ends by itself.
    pub tells: Option<&'a str>,
    /// Longest time in ms that the device model, or a real-time VM, may miss its heartbeat, or that
    /// a guest may leave its emulated watchdog without a refresh; 0: no limit.
    pub watchdog_ms: u32,
    /// Longest time in ms for which a guest may use a CPU without an exit of its own; 0: no limit.
    pub progress_ms: u32,
    /// Aborted accesses of its devices after which the VM ends as after a fault; 0: no limit.
    pub dma_fault_limit: u32,
    /// Address of the watchdog's two register pages, or of the heartbeat's page (IPA).
    pub watchdog_ipa: u64,
    /// Way in which the VM gets interrupts.
    pub gic: GicMode,
    /// Patterns for the devices of the board that the VM owns.
    pub devices: DevicePatterns<'a>,
    /// Whether a guest may have devices that no SMMU keeps from all memory.
    pub trusts_dma: bool,
    /// Address of the device VM's own 1 MiB of devices and channels (IPA).
    pub window_ipa: u64,
    /// Address of the register page of the VM's virtio devices (IPA).
    pub virtio_ipa: u64,
    /// VMs that this manifest entry permits to share memory with the VM; see [`Manifest::peers`].
    pub peers: Names<'a>,
}

/// A file that a manifest names.
#[derive(Clone, Copy, Debug)]
pub struct NamedFile<'a> {
    /// The node that names it.
    pub node: NodePath<'a>,
    /// Property with the file's digest, if the file has one.
    pub property: &'static str,
    /// The archive member.
    pub name: &'a str,
    /// SHA-256 in hexadecimal digits.
    pub digest: Option<&'a str>,
}

impl<'a> Vm<'a> {
    /// Iterates over the files of the payload.
    pub(crate) fn files(&self) -> impl Iterator<Item = NamedFile<'a>> + use<'a> {
        let node = NodePath::vm(self.name);
        let properties = match self.payload {
            Payload::Linux { .. } => ["kernel-sha256", "initrd-sha256"],
            Payload::Flat { .. } => ["image-sha256", ""],
        };
        let digests = properties.into_iter().zip(self.digests);
        let files = self.payload.files().zip(digests);
        files.map(move |(name, (property, digest))| NamedFile {
            node,
            property,
            name,
            digest,
        })
    }
}

impl Vm<'_> {
    /// Bytes of a real-time VM's heartbeat: a page.
    pub const HEARTBEAT_SIZE: u64 = 0x1000;
    /// Bytes of a device VM's window.
    pub const WINDOW_SIZE: u64 = 1 << 20;
    /// A device VM's window where the manifest says nothing.
    pub const DEFAULT_WINDOW: u64 = 0x0c00_0000;
    /// The registers of the virtio devices where the manifest says nothing.
    pub const DEFAULT_VIRTIO: u64 = 0x0a00_0000;
    /// The shortest watchdog of a device VM, in ms, that lets its device model end itself first.
    pub const LEAST_WATCHDOG_MS: u32 = 12_000;

    /// Returns the emulated watchdog, if the VM has one: guests with a time limit do.
    #[must_use]
    pub fn watchdog(&self) -> Option<WatchdogDevice> {
        let has_one = self.kind == VmKind::Guest && self.watchdog_ms != 0;
        has_one.then_some(WatchdogDevice {
            ipa: self.watchdog_ipa,
            intid: WatchdogDevice::INTID,
        })
    }

    /// Returns the page of the heartbeat, if the VM has one: real-time VMs with a time limit do.
    #[must_use]
    pub fn heartbeat(&self) -> Option<Region> {
        let has_one = self.kind == VmKind::RealTime && self.watchdog_ms != 0;
        let end = self.watchdog_ipa.saturating_add(Self::HEARTBEAT_SIZE);
        has_one.then_some(Region::new(self.watchdog_ipa, end))
    }

    /// Returns where the VM sees its watchdog or its heartbeat, if it has one.
    #[must_use]
    pub fn watchdog_region(&self) -> Option<Region> {
        let watchdog = self.watchdog().map(|watchdog| watchdog.region());
        watchdog.or_else(|| self.heartbeat())
    }

    /// Returns where the VM sees the device VM's window, should it be that.
    #[must_use]
    pub const fn window(&self) -> Region {
        let start = self.window_ipa;
        Region::new(start, start.saturating_add(Self::WINDOW_SIZE))
    }
}

/// Names, one behind the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names<'a>(pub(crate) &'a str);

impl<'a> Names<'a> {
    /// Tells whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names as the blob has them, each with its zero.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.0.as_bytes()
    }

    /// Iterates over the names.
    pub fn iter(&self) -> impl Iterator<Item = &'a str> + Clone + use<'a> {
        terminated(self.0)
    }
}

/// Iterates over texts that stand one behind the other, each with its NUL. A boot does so several
/// times for each node of a board's tree, and the library's search for a character takes a call for
/// each text.
fn terminated<'a>(mut rest: &'a str) -> impl Iterator<Item = &'a str> + Clone + use<'a> {
    core::iter::from_fn(move || {
        let length = text_length(rest.as_bytes())?;
        let text = rest.get(..length)?;
        rest = rest.get(length + 1..)?;
        Some(text)
    })
}

/// Role of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmKind {
    /// A guest that Gear2 schedules.
    Guest,
    /// The VM that owns the devices; Gear2 schedules it too.
    Device,
    /// A real-time VM that has its CPUs to itself.
    RealTime,
}

/// Files that are loaded into a VM. All names are names of archive members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// A Linux arm64 `Image`, started by the Linux boot protocol.
    Linux {
        /// The kernel.
        kernel: &'a str,
        /// The initial RAM disk.
        initrd: Option<&'a str>,
        /// The kernel's command line.
        cmdline: &'a str,
    },
    /// A flat binary.
    Flat {
        /// The binary.
        image: &'a str,
        /// Offset of the binary from the start of the VM's memory.
        load_offset: u64,
        /// Offset of the entry point from the start of the binary.
        entry_offset: u64,
        /// Command line.
        cmdline: &'a str,
    },
}

impl<'a> Payload<'a> {
    /// Iterates over the files that the payload consists of.
    pub fn files(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let (first, second) = match *self {
            Self::Linux {
                kernel,
                initrd,
                cmdline: _,
            } => (kernel, initrd),
            Self::Flat {
                image,
                load_offset: _,
                entry_offset: _,
                cmdline: _,
            } => (image, None),
        };
        core::iter::once(first).chain(second)
    }
}

/// Way in which a VM gets its interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GicMode {
    /// Through the emulated interrupt controller.
    Emulated,
    /// From the physical CPU interface: real-time VMs only.
    PassThrough,
}
