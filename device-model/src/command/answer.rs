//! Answers of `gearctl`, as programs get them with `--json`.
//!
//! Owns: the version and the names of all fields. `docs/gearctl.schema.json` is made of these types
//! by a test, which fails when the file is another one.
//!
//! A version adds kinds and fields, and changes no meaning and no type. Another [`VERSION`] does.

use serde::Serialize;

use crate::error::ErrorKind;
use crate::wire::Figures;

mod last_words;
mod sched;
#[cfg(test)]
mod tests;
mod text;
mod watch;

pub use last_words::{Cause, LastEnd, LastRegister, LastWords};
pub use sched::{
    CpuSwitched, Parameters, Place, PoolChanged, Quota, Sched, SchedCpu, SchedPool, Switch,
};

pub use watch::{ConsoleKind, Event, EventKind, Vcpu, VmInfo, VmReached, Wanted};

/// Version of the JSON.
pub const VERSION: u32 = 1;

/// A line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Reply<'a> {
    /// 1. A program refuses another number.
    pub version: u32,
    /// Kind and value.
    #[serde(flatten)]
    pub answer: &'a Answer,
}

/// Kind and value of an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", content = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// `list`
    Vms(Vec<Vm>),
    /// `start`, `shutdown`, `stop`, `restart`, `pause`, `resume`
    VmChanged(VmChanged),
    /// `info`
    VmInfo(Box<VmInfo>),
    /// `last-words`
    LastWords(LastWords),
    /// `vcpu`
    Vcpus(Vec<Vcpu>),
    /// `wait`
    VmReached(VmReached),
    /// `events`; with `--follow` a line each time that there are new ones
    Events(Vec<Event>),
    /// `screenshot`
    Screenshot(Screenshot),
    /// `dump`
    Dump(Dump),
    /// `trace`
    Trace(Trace),
    /// `stats`
    Stats(Stats),
    /// `top`, a line each second
    Top(Vec<Load>),
    /// `sched`
    Sched(Sched),
    /// `sched move`, `sched pin`, `sched unpin`
    VcpuPlace(Place),
    /// `sched set`
    VmParameters(Parameters),
    /// `sched cpu`
    CpuSwitched(CpuSwitched),
    /// `sched pool`
    PoolChanged(PoolChanged),
    /// `device list`
    Devices(Vec<Device>),
    /// `device resize`, `device detach`, `device attach`, `device link`
    DeviceChanged(DeviceChanged),
    /// `log`; with `-f` a line each time that there are new records
    Log(Vec<Logged>),
    /// `version`
    Versions(Versions),
    /// On the standard error of a command that fails, whose exit status is `status`
    Error(Failure),
}

/// State of a VM as Gear1 keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Holds no payload.
    Stopped,
    /// Being wiped and loaded.
    Loading,
    /// Loaded, never run since.
    Loaded,
    /// At least one vCPU was started. A VM that is paused runs to Gear1.
    Running,
    /// Asked to stop; a vCPU is still inside.
    Stopping,
    /// A state of a newer Gear1.
    Unknown,
}

/// Life of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Vm {
    /// Number of the VM.
    pub id: u64,
    /// Name in the manifest.
    pub name: String,
    /// State.
    pub state: State,
    /// No vCPU runs until the VM is resumed.
    pub paused: bool,
    /// The VM has suspended itself, and waits for an interrupt or for `resume`.
    pub suspended: bool,
    /// The start waits for another VM, or for the end of a pause between restarts.
    pub waits: bool,
    /// The VM ended too often, and is started again only by a person.
    pub given_up: bool,
    /// The standby was started in the place of the VM.
    pub failed_over: bool,
    /// The VM has CPUs of its own, on which Gear2 does not schedule it.
    pub real_time: bool,
    /// GDM runs in the VM.
    pub device_model: bool,
    /// The VM has an emulated serial port.
    pub console: bool,
    /// Number of vCPUs.
    pub vcpus: u64,
    /// Number of restarts since the boot.
    pub restarts: u64,
    /// SYSTEM_OFF of the VM powers the machine off.
    pub powers_off: bool,
    /// Number of faults that a vCPU could not go on from.
    pub faults: u64,
    /// Number of hangs, since Gear2's start; null if Gear2 is older than this.
    pub hangs: Option<u64>,
    /// Refreshes of its watchdog in the last quarter of the time, since Gear2's start.
    pub late_refreshes: Option<u64>,
    /// Times for which its watchdog waited once more for want of a CPU, since Gear2's start.
    pub starvations: Option<u64>,
    /// Accesses of its devices that the SMMU aborted, since Gear2's start.
    pub aborted_accesses: Option<u64>,
    /// The last fault.
    pub last_fault: Option<Fault>,
}

/// Registers of a vCPU that cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fault {
    /// Index of the vCPU in the VM.
    pub vcpu: u64,
    /// ESR_EL2.
    pub esr: u64,
    /// FAR_EL2.
    pub far: u64,
    /// Guest-physical address.
    pub ipa: u64,
    /// Program counter.
    pub pc: u64,
    /// SPSR_EL2.
    pub spsr: u64,
}

/// How far a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The VM is what it was asked to be.
    Done,
    /// The change goes on by itself.
    Begun,
}

/// A change of a VM's life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VmChanged {
    /// Name of the VM.
    pub vm: String,
    /// How far the change is.
    pub outcome: Outcome,
}

/// A picture of a screen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Screenshot {
    /// Name of the VM.
    pub vm: String,
    /// Channel of the screen's device.
    pub channel: u64,
    /// Width in pixels.
    pub width: u64,
    /// Height in pixels.
    pub height: u64,
    /// File of the picture.
    pub file: String,
}

/// A core file of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Dump {
    /// Name of the VM.
    pub vm: String,
    /// The file.
    pub file: String,
    /// vCPUs whose registers it has.
    pub vcpus: u64,
    /// Bytes of the VM's memory.
    pub memory_bytes: u64,
    /// Bytes of it that the file has; holes stand for pages of zeroes.
    pub stored_bytes: u64,
    /// Ranges of virtual addresses of the VM's kernel at which the memory is found too.
    pub kernel_mappings: u64,
    /// Whether the memory had the note with which `crash` opens the file.
    pub vmcoreinfo: bool,
    /// Whether it has FP and SIMD registers, which an older Gear1 does not tell.
    pub fp_registers: bool,
    /// Whether the devices rested meanwhile. An older Gear2 does not tell of those of a VM that has
    /// stopped: they may have written to the memory.
    pub devices_rested: bool,
    /// Milliseconds for which the VM was paused; null if it was paused already, or has stopped.
    pub paused_ms: Option<u64>,
}

/// A trace of all CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Trace {
    /// The file.
    pub file: String,
    /// Records of exits and of Gear2's calls.
    pub traps: u64,
    /// Records of Gear2's choices and wake-ups.
    pub decisions: u64,
    /// Records that were overwritten before they were read.
    pub lost: u64,
    /// Result of the comparison.
    pub agreement: Agreement,
    /// vCPUs whose exits were not compared: those of real-time VMs, and those that moved as the trace
    /// began or ended.
    pub not_compared: Vec<u64>,
    /// Exits by vCPU and group, without groups that have none.
    pub exits: Vec<TracedExits>,
}

/// Whether records and counters agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    /// As many exits were recorded as were counted, of each vCPU and group.
    Exact,
    /// Other numbers were recorded than were counted.
    Differs,
    /// Records were lost.
    Lost,
    /// Nothing was counted: the rings were read as they were.
    NotCompared,
}

/// Exits of a vCPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TracedExits {
    /// Number of the vCPU.
    pub vcpu: u64,
    /// Name of the VM.
    pub vm: String,
    /// Exits that a syndrome tells apart.
    pub group: String,
    /// Exits that were recorded.
    pub recorded: u64,
    /// Exits that were counted.
    pub counted: u64,
}

/// A part of a time in percent, with one decimal place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Percent(f64);

impl Percent {
    /// Returns a part of a time.
    pub fn of(part: u64, whole: u64) -> Self {
        // A thousand times the ticks of seven months at 1 GHz has more than 64 bits.
        let tenths = u128::from(part) * 1000 / u128::from(whole.max(1));
        Self(tenths as f64 / 10.0)
    }

    /// Returns the number.
    pub const fn number(self) -> f64 {
        self.0
    }
}

/// Figures of vCPUs and devices.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Stats {
    /// vCPUs of the VM, or of all VMs.
    pub vcpus: Vec<VcpuStats>,
    /// Exits of the vCPUs by reason. A reason without an exit has no row.
    pub exits: Vec<Exits>,
    /// Devices of these VMs.
    pub devices: Vec<Figures>,
    /// MMIO accesses of all VMs that Gear2 passed on to GDM.
    pub mmio_events: u64,
    /// The counter.
    pub counter: u64,
}

/// Figures of a vCPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VcpuStats {
    /// Number of the vCPU over all VMs.
    pub vcpu: u64,
    /// Name of the VM.
    pub vm: String,
    /// CPU.
    pub cpu: u64,
    /// State.
    pub state: VcpuState,
    /// Ticks in which the vCPU ran; null for a real-time VM's, which nobody counts.
    pub ran_ticks: Option<u64>,
    /// Part of the time since the boot; null for a real-time VM's, which has a CPU of its own.
    pub share_percent: Option<Percent>,
    /// Whether the ticks include idle time: that in which the vCPU had its CPU to itself, and
    /// nobody looked. null: an older Gear2 counts none, and nobody counts a real-time VM's.
    pub may_have_idled: Option<bool>,
    /// Number of exits.
    pub exits: u64,
}

/// State of a vCPU as Gear1 keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum VcpuState {
    /// Off (PSCI), or the VM does not run.
    Off,
    /// Can be run.
    Ready,
    /// Runs.
    Running,
    /// Waits in WFI.
    Wfi,
    /// Waits for an MMIO access.
    AwaitsMmio,
    /// Waits for a hypercall.
    AwaitsHypercall,
    /// A state of a newer Gear1.
    Unknown,
}

/// Exits of a vCPU for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Exits {
    /// Number of the vCPU over all VMs.
    pub vcpu: u64,
    /// Name of the VM.
    pub vm: String,
    /// Reason.
    pub reason: String,
    /// Number of exits.
    pub exits: u64,
    /// Ticks in Gear2.
    pub ticks: u64,
}

/// Activity of a VM, or a vCPU, in a second. A VM's figures are the sums of its vCPUs'.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Load {
    /// Number of the vCPU over all VMs; null in a VM's row.
    pub vcpu: Option<u64>,
    /// Name of the VM.
    pub vm: String,
    /// Part of one CPU's time; null for a real-time VM's, as are the next three.
    pub share_percent: Option<Percent>,
    /// Part in which the vCPUs were ready and did not run.
    pub wait_percent: Option<Percent>,
    /// Part that the guest was told of as stolen time.
    pub steal_percent: Option<Percent>,
    /// Turns that ended while the vCPU could go on.
    pub preemptions: Option<u64>,
    /// Number of exits.
    pub exits: u64,
}

/// A device that GDM serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Device {
    /// Name of the VM.
    pub vm: String,
    /// Name in the manifest.
    pub device: String,
    /// Type in the manifest.
    pub r#type: String,
    /// Channel.
    pub channel: u64,
    /// State of its server: `served`, `no medium`, `awaits its backend`, or a number of a newer GDM's.
    pub state: String,
    /// Size of a disk.
    pub bytes: Option<u64>,
    /// Most requests a second.
    pub iops_limit: Option<u64>,
    /// Most bytes a second.
    pub bytes_per_second_limit: Option<u64>,
    /// File, device or socket behind it.
    pub backend: String,
}

/// A changed device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceChanged {
    /// Name of the VM.
    pub vm: String,
    /// Name in the manifest.
    pub device: String,
    /// The change that was made.
    #[serde(flatten)]
    pub change: Change,
}

/// A property of a device that was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Size of a disk; null without a medium.
    Bytes(Option<u64>),
    /// Link of a network card.
    Link(Link),
}

/// Link of a network card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// Has a carrier.
    Up,
    /// Carries nothing.
    Down,
}

/// A record of Gear1's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Logged {
    /// Seconds of the counter, to a microsecond, as text: a program that reads numbers as doubles
    /// keeps all digits.
    pub time: String,
    /// CPU.
    pub cpu: u64,
    /// Kind of the record, or `Lost`.
    pub event: String,
    /// Sentence for a person.
    pub message: String,
}

/// Versions of all parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Versions {
    /// `gearctl`.
    pub gearctl: String,
    /// The protocol with Gear2 that GDM and `gearctl` speak.
    pub protocol: String,
    /// Gear1's interface.
    pub gear1_abi: String,
    /// The protocol with GDM that Gear2 speaks.
    pub gear2_protocol: String,
    /// CPUs.
    pub cpus: u64,
    /// Restarts of Gear2.
    pub gear2_restarts: u64,
    /// Starts of GDM.
    pub gdm_starts: u64,
}

/// An error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Failure {
    /// Kind.
    pub error: ErrorKind,
    /// Exit status.
    pub status: u8,
    /// Sentence for a person.
    pub message: String,
}
