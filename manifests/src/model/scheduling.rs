//! How Gear2 schedules: policies and their parameters, as the manifest names them.

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
}

impl Policy {
    /// Scheduling where the manifest says nothing.
    pub const DEFAULT: Self = Self {
        scheduler: Scheduler::RoundRobin,
        slice_us: None,
        ceiling_us: 0,
        balancer: Balancer::None,
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
