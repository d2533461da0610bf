//! Answers of the commands that look at VMs: `info`, `vcpu`, `wait` and `events`.

use serde::Serialize;

use super::last_words::LastEnd;
use super::sched::Parameters;
use super::{Device, VcpuState, Vm};

/// All that is known of a VM.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VmInfo {
    /// The VM.
    pub vm: Vm,
    /// Consoles that `gearctl console` connects with.
    pub consoles: Vec<ConsoleKind>,
    /// How Gear2 schedules it; null for a real-time VM.
    pub scheduling: Option<Parameters>,
    /// The vCPUs.
    pub vcpus: Vec<Vcpu>,
    /// Devices that GDM serves.
    pub devices: Vec<Device>,
    /// Longest time in ticks without a refresh of its watchdog or a change of its heartbeat; null:
    /// without a limit.
    pub watchdog_ticks: Option<u64>,
    /// Longest run in ticks without an exit of its own; null: without a limit.
    pub progress_ticks: Option<u64>,
    /// The last end, since Gear2's start; null if there was none.
    pub last_end: Option<LastEnd>,
}

/// A kind of console.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ConsoleKind {
    /// The emulated serial port.
    Serial,
    /// A virtio console (`--virtio`).
    Virtio,
    /// Gear2's messages about the VM (`--messages`).
    Messages,
}

/// A vCPU. Figures that nobody counts of a real-time VM's are null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Vcpu {
    /// Name of the VM.
    pub vm: String,
    /// Index of the vCPU in the VM.
    pub index: u64,
    /// Number of the vCPU over all VMs.
    pub vcpu: u64,
    /// State.
    pub state: VcpuState,
    /// CPU.
    pub cpu: u64,
    /// Stays there.
    pub pinned: Option<bool>,
    /// CPUs on which the manifest places the VM.
    pub allowed: Option<Vec<u64>>,
    /// Ticks in which it ran, since the boot.
    pub ran_ticks: Option<u64>,
    /// Whether these include idle time: that in which the vCPU had its CPU to itself, and nobody
    /// looked. null: an older Gear2 counts none, and nobody counts a real-time VM's.
    pub may_have_idled: Option<bool>,
    /// Ticks in which it was ready and did not run, since the start of the VM.
    pub waited_ticks: Option<u64>,
    /// Number of them that the guest was told of.
    pub stolen_ticks: Option<u64>,
    /// Turns that ended while it could go on, since the start of the VM.
    pub preemptions: Option<u64>,
    /// Number of exits.
    pub exits: u64,
}

/// State that a VM is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Wanted {
    /// Runs, and is not paused
    Running,
    /// Runs, and is held
    Paused,
    /// Has suspended itself
    Suspended,
    /// Has stopped
    Stopped,
    /// Has stopped, and is started again only by a person
    GivenUp,
    /// The VM's standby was started in the VM's place
    FailedOver,
}

/// A VM has reached the state that was waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VmReached {
    /// Name of the VM.
    pub vm: String,
    /// The state.
    pub state: Wanted,
    /// Time of the wait.
    pub waited_ms: u64,
}

/// Something that happened to a VM, to Gear2 or to GDM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Event {
    /// Seconds of the counter, to a microsecond, as text. Of a change that stands in no record, the
    /// time when `gearctl` saw it, at most half a second later.
    pub time: String,
    /// Kind.
    pub event: EventKind,
    /// Name of the VM; null for Gear2 and GDM.
    pub vm: Option<String>,
    /// Sentence for a person.
    pub message: String,
}

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A VM was started.
    Started,
    /// A VM was asked to stop, or ended.
    Stops,
    /// A VM has stopped.
    Stopped,
    /// A vCPU of the VM cannot go on.
    Faulted,
    /// The heartbeat of a real-time VM has stopped.
    Hung,
    /// The SMMU aborted accesses of the VM's devices.
    Aborted,
    /// A VM is held.
    Paused,
    /// A VM goes on.
    Resumed,
    /// The start of a VM waits for another VM, or for the end of a pause between restarts.
    Waits,
    /// A VM ended too often.
    GivenUp,
    /// The standby of a VM took over.
    FailedOver,
    /// Gear2 was restarted.
    Gear2Restarted,
    /// GDM was started.
    GdmStarted,
    /// Records were overwritten before they were read.
    Lost,
}
