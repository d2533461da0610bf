//! How Gear2 schedules: pools of CPUs, their policies and the parameters of VMs.

use super::{CpuList, CpuSet, Manifest, Vm};
use crate::CpuIndex;
use crate::node_path::NodePath;

/// CPUs with a policy of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool<'a> {
    /// Name of the pool's node.
    pub name: &'a str,
    /// CPUs of the pool.
    pub cpus: CpuList,
    /// Scheduling of these CPUs.
    pub policy: Policy,
}

impl<'a> Pool<'a> {
    /// Returns the path of the pool `name`.
    #[must_use]
    pub fn path(name: &'a str) -> NodePath<'a> {
        NodePath::ROOT.child("gear2").child("pools").child(name)
    }
}

/// A window of a major frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window<'a> {
    /// Index of the pool; `None`: CPUs of no pool.
    pub pool: Option<usize>,
    /// Name of the window's node.
    pub name: &'a str,
    /// VM that has the CPU; `None`: VMs without a window.
    pub vm: Option<&'a str>,
    /// Beginning after that of the frame, in microseconds.
    pub start_us: u32,
    /// Length in microseconds.
    pub length_us: u32,
}

impl Window<'_> {
    /// Returns the end after the beginning of the frame, in microseconds.
    #[must_use]
    pub const fn end_us(&self) -> u64 {
        self.start_us as u64 + self.length_us as u64
    }
}

impl<'a> Manifest<'a> {
    /// Returns the index of the pool `name`.
    #[must_use]
    pub fn pool_named(&self, name: &str) -> Option<usize> {
        self.pools.iter().position(|pool| pool.name == name)
    }

    /// Returns the index of the pool that a CPU is in.
    #[must_use]
    pub fn pool_of_cpu(&self, cpu: CpuIndex) -> Option<usize> {
        let mut pools = self.pools.iter();
        pools.position(|pool| pool.cpus.set().contains(cpu))
    }

    /// Returns the index of the pool that a VM is in: the one that the VM names, or the one of its
    /// CPUs.
    #[must_use]
    pub fn pool_of(&self, vm: &Vm<'_>) -> Option<usize> {
        match vm.pool {
            Some(name) => self.pool_named(name),
            None => vm.cpus.get(0).and_then(|cpu| self.pool_of_cpu(cpu)),
        }
    }

    /// Returns the scheduling of a pool, or of the CPUs of no pool.
    #[must_use]
    pub fn policy_of(&self, pool: Option<usize>) -> &Policy {
        let pool = pool.and_then(|index| self.pools.get(index));
        pool.map_or(&self.gear2.policy, |pool| &pool.policy)
    }

    /// Iterates over the windows of a pool, in the order of the file.
    pub fn windows_of(&self, pool: Option<usize>) -> impl Iterator<Item = &Window<'a>> {
        self.windows
            .iter()
            .filter(move |window| window.pool == pool)
    }

    /// Returns the CPUs of a pool, or those of Gear2's that are in no pool.
    #[must_use]
    pub fn pool_cpus(&self, pool: Option<usize>, cpu_count: usize) -> CpuSet {
        let set = |pool: &Pool<'_>| pool.cpus.set();
        match pool {
            Some(index) => self.pools.get(index).map_or(CpuSet::EMPTY, set),
            None => {
                let pools = self.pools.iter().map(set);
                let pools = pools.fold(CpuSet::EMPTY, CpuSet::with_all);
                self.gear2_cpus(cpu_count).without(pools)
            }
        }
    }

    /// Returns the CPUs that a VM may run on: those that it names, or those of its pool.
    #[must_use]
    pub fn cpus_of(&self, vm: &Vm<'_>, cpu_count: usize) -> CpuSet {
        match vm.cpus.is_empty() {
            true => self.pool_cpus(self.pool_of(vm), cpu_count),
            false => vm.cpus.set(),
        }
    }
}

/// How the CPUs of a pool, or those of no pool, are scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Policy that schedules the vCPUs.
    pub scheduler: Scheduler,
    /// Longest time that a vCPU runs while another one waits, in microseconds; `None`:
    /// [`Self::slice_us`] says.
    pub slice_us: Option<u32>,
    /// Longest time that a vCPU waits for higher priorities, in microseconds; 0: no limit.
    pub ceiling_us: u32,
    /// Balancer that moves vCPUs between the CPUs.
    pub balancer: Balancer,
    /// Major frame of the windows, in microseconds; 0: none.
    pub frame_us: u32,
}

impl Policy {
    /// Scheduling where the manifest says nothing.
    pub const DEFAULT: Self = Self {
        scheduler: Scheduler::RoundRobin,
        slice_us: None,
        ceiling_us: 0,
        balancer: Balancer::None,
        frame_us: 0,
    };

    /// Slice of policies that take turns, where the manifest gives none.
    const SLICE_US: u32 = 5000;
    /// Slice of policies by virtual time, in which a longer slice delays a guest that has used more
    /// than its share.
    const FAIR_SLICE_US: u32 = 2500;

    /// Returns the slice in microseconds.
    #[must_use]
    pub fn slice_us(&self) -> u32 {
        use Scheduler::{Arinc653, Bvt, Edf, Fair, Null, Priority, RoundRobin};
        self.slice_us.unwrap_or(match self.scheduler {
            RoundRobin | Priority | Null => Self::SLICE_US,
            Fair | Bvt | Edf | Arinc653 => Self::FAIR_SLICE_US,
        })
    }
}

/// A policy of Gear2 (`docs/schedulers.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// Turns of one slice.
    RoundRobin,
    /// Weights and caps.
    Fair,
    /// Borrowed virtual time.
    Bvt,
    /// Earliest deadline first: servers with budgets.
    Edf,
    /// Windows of a major frame.
    Arinc653,
    /// Fixed priorities.
    Priority,
    /// One vCPU a CPU.
    Null,
}

impl Scheduler {
    /// Returns the name in a manifest.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::Fair => "fair",
            Self::Bvt => "bvt",
            Self::Edf => "edf",
            Self::Arinc653 => "arinc653",
            Self::Priority => "priority",
            Self::Null => "null",
        }
    }
}

/// A balancer of Gear2 (`docs/schedulers.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balancer {
    /// Every vCPU stays where it starts.
    None,
    /// Equal numbers of ready vCPUs.
    Load,
}

impl Balancer {
    /// Returns the name in a manifest.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Load => "load",
        }
    }
}

/// Time that a vCPU may use in each period, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Time of use.
    pub budget_us: u32,
    /// Time of a period.
    pub period_us: u32,
}

/// Parameters of a VM's vCPUs, each of which has them for itself; `None`: the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Share relative to others.
    pub weight: Option<u32>,
    /// Most that a vCPU gets of a CPU, in percent.
    pub cap_percent: Option<u32>,
    /// Time that a vCPU gets in each period, in microseconds.
    pub budget_us: Option<u32>,
    /// Period of the budget and of the cap, in microseconds.
    pub period_us: Option<u32>,
    /// Fixed priority; a higher one runs first.
    pub priority: Option<u32>,
    /// Time that a vCPU may borrow from its own future after a wake-up, in microseconds.
    pub latency_us: Option<u32>,
}

impl Parameters {
    /// Weight where the manifest gives none.
    pub const WEIGHT: u32 = 100;
    /// Priority where the manifest gives none.
    pub const PRIORITY: u32 = 16;
    /// Period where the manifest gives none, in microseconds.
    pub const PERIOD_US: u32 = 10_000;

    /// Returns the weight.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.weight.unwrap_or(Self::WEIGHT)
    }

    /// Returns the priority.
    #[must_use]
    pub fn priority(&self) -> u32 {
        self.priority.unwrap_or(Self::PRIORITY)
    }

    /// Returns the period in microseconds.
    #[must_use]
    pub fn period_us(&self) -> u32 {
        self.period_us.unwrap_or(Self::PERIOD_US)
    }

    /// Returns the time that each vCPU gets, if it has a server.
    #[must_use]
    pub fn server(&self) -> Option<Budget> {
        let period_us = self.period_us();
        let budget = |budget_us| Budget {
            budget_us,
            period_us,
        };
        self.budget_us.map(budget)
    }

    /// Iterates over the properties that the manifest has, with their values.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u32)> + use<> {
        let all = [
            self.weight,
            self.cap_percent,
            self.budget_us,
            self.period_us,
            self.priority,
            self.latency_us,
        ];
        let named = PARAMETERS.into_iter().zip(all);
        named.filter_map(|(name, value)| Some((name, value?)))
    }
}

/// Properties of [`Parameters`], in the order of its fields.
pub(crate) const PARAMETERS: [&str; 6] = [
    "weight",
    "cap-percent",
    "budget-us",
    "period-us",
    "priority",
    "latency-us",
];
