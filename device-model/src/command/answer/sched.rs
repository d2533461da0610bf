//! Answers of `gearctl sched`.

use serde::Serialize;

/// How Gear2 schedules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sched {
    /// Pools that have CPUs.
    pub pools: Vec<SchedPool>,
    /// CPUs on which Gear2 schedules.
    pub cpus: Vec<SchedCpu>,
    /// vCPUs of VMs that Gear2 schedules.
    pub vcpus: Vec<Place>,
    /// VMs with their parameters.
    pub vms: Vec<Parameters>,
    /// Moves of all vCPUs since Gear2's start.
    pub moves: u64,
}

/// A pool of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SchedPool {
    /// Name in the manifest; `default` for CPUs of no pool.
    pub pool: String,
    /// CPUs.
    pub cpus: Vec<u64>,
    /// Scheduler.
    pub policy: String,
    /// Longest turn, in microseconds.
    pub slice_us: u64,
    /// Balancer.
    pub balancer: String,
    /// Names of the VMs.
    pub vms: Vec<String>,
}

/// A CPU on which Gear2 schedules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SchedCpu {
    /// Number of the CPU.
    pub cpu: u64,
    /// Number of the cluster.
    pub cluster: u64,
    /// Name of the pool.
    pub pool: Option<String>,
    /// Scheduler.
    pub policy: String,
    /// Longest turn, in microseconds.
    pub slice_us: u64,
    /// Balancer.
    pub balancer: String,
    /// Number of vCPUs.
    pub vcpus: u64,
    /// `off`: takes no vCPUs.
    pub state: Switch,
}

/// State of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// Takes vCPUs.
    On,
    /// Takes no vCPUs.
    Off,
}

impl Switch {
    /// Returns the word for the state.
    pub const fn text(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// Place of a vCPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Place {
    /// Name of the VM.
    pub vm: String,
    /// Index of the vCPU in the VM.
    pub index: u64,
    /// CPU.
    pub cpu: u64,
    /// Stays there.
    pub pinned: bool,
    /// CPUs on which the manifest places the VM.
    pub allowed: Vec<u64>,
}

/// A part of each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Quota {
    /// Microseconds.
    pub us: u64,
    /// Period in microseconds.
    pub period_us: u64,
}

/// Scheduling parameters of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Parameters {
    /// Name of the VM.
    pub vm: String,
    /// Share relative to others.
    pub weight: u64,
    /// Most that a vCPU gets.
    pub cap: Option<Quota>,
    /// Least that a vCPU gets.
    pub budget: Option<Quota>,
    /// Fixed priority.
    pub priority: u64,
    /// Time that a vCPU may borrow from its own future.
    pub latency_us: u64,
}

/// A CPU that was turned on or off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CpuSwitched {
    /// Number of the CPU.
    pub cpu: u64,
    /// Whether the CPU takes vCPUs now.
    pub scheduler: Switch,
}

/// A VM in another pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolChanged {
    /// Name of the VM.
    pub vm: String,
    /// Name of the pool.
    pub pool: String,
    /// CPUs of the pool.
    pub cpus: Vec<u64>,
}
