//! How Gear2 schedules: policies and their parameters, as the manifest names them.

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
