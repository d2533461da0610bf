//! Scheduling policies: which ready vCPU a CPU runs, and until when.
//!
//! Owns the interface between a loop and its policy, and the table of policies. A policy sees the
//! vCPUs of one CPU only and is called by that CPU's loop only, so it needs no lock. A policy makes
//! no calls to Gear1 and reads no clock: it is a plain state machine over times and identifiers.
//! `docs/schedulers.md` describes the accounts, the timers and the guarantee of each policy.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use gear1_abi::id::{VcpuId, VmId};
use gearv_manifest::{Parameters, Scheduler};

mod admission;
mod arinc653;
mod bvt;
mod cap;
mod edf;
mod fair;
#[cfg(test)]
mod harness;
mod null;
mod priority;
mod queue;
mod round_robin;
#[cfg(test)]
mod tests;
#[cfg(any(test, feature = "host"))]
pub mod virtual_cpu;
mod waiting;
mod weight;

pub use admission::Admission;
pub use arinc653::Arinc653;
pub use bvt::Bvt;
pub use edf::Edf;
pub use fair::Fair;
pub use null::Null;
pub use priority::Priority;
pub use round_robin::RoundRobin;
pub use weight::MAX_WEIGHT;
use weight::Weight;

/// A vCPU that runs, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The vCPU to run.
    pub vcpu: VcpuId,
    /// Time at which the policy must be asked again at the latest.
    pub until: u64,
    /// Another vCPU could run now, if this one yields.
    pub contended: bool,
    /// No other vCPU could run before `until` if this one blocks, and the policy need not hear of
    /// that: the vCPU may block and wake as often as it wants before the policy is called again.
    pub alone: bool,
}

/// Choice of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// A vCPU runs.
    Run(Run),
    /// No vCPU may run.
    Idle {
        /// Time at which the policy must be asked again at the latest.
        until: u64,
    },
}

impl Choice {
    /// Returns the choice with a limit of its time.
    fn until_at_most(self, limit: u64) -> Self {
        match self {
            Self::Run(run) => Self::Run(Run {
                until: run.until.min(limit),
                ..run
            }),
            Self::Idle { until } => Self::Idle {
                until: until.min(limit),
            },
        }
    }
}

/// Reason why a policy does not take a vCPU or parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The budgets of this CPU would exceed its time.
    Overload,
    /// A budget is zero or longer than its period.
    BadBudget,
    /// The policy takes one vCPU, and has it.
    Full,
    /// The device VM would have too little time.
    Starves,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overload => "the budgets exceed the time of the CPU",
            Self::BadBudget => "a budget is zero or longer than its period",
            Self::Full => "the policy takes one vCPU a CPU",
            Self::Starves => "the device VM would have too little time",
        })
    }
}

/// The scheduling policy of one CPU. Times are counter ticks and never decrease.
///
/// Within an event the loop calls `ran` first, then what has changed, then `pick`. Calls about a
/// vCPU that was not added are ignored.
pub trait Policy: Send {
    /// Takes in a vCPU, which is blocked.
    fn add(&mut self, vcpu: VcpuId, share: &Share, now: u64) -> Result<(), Refused>;

    /// Forgets a vCPU.
    fn remove(&mut self, vcpu: VcpuId, now: u64);

    /// Changes the parameters of a vCPU. A refusal changes nothing.
    fn set(&mut self, vcpu: VcpuId, share: &Share, now: u64) -> Result<(), Refused>;

    /// Notes that a vCPU can run. A repeated wake-up changes nothing.
    fn wake(&mut self, vcpu: VcpuId, now: u64);

    /// Notes that a vCPU cannot run. A repeated block changes nothing.
    fn block(&mut self, vcpu: VcpuId, now: u64);

    /// Notes that a vCPU yields the rest of its turn.
    fn give_way(&mut self, vcpu: VcpuId, now: u64);

    /// Charges a vCPU the `ticks` up to `now`, in which it ran or the gears worked for it.
    fn ran(&mut self, vcpu: VcpuId, ticks: u64, now: u64);

    /// Tells whether the work of the gears after the end of a vCPU's turn is that vCPU's price, and
    /// not that of the vCPU whose turn follows.
    fn pays_for_end(&self, _vcpu: VcpuId) -> bool {
        false
    }

    /// Chooses what runs from `now` on. The choice holds until its time or until the next call.
    fn pick(&mut self, now: u64) -> Choice;

    /// Returns the policy whose calls this one passes on, if it is one that records them.
    fn recorded<'a>(self: Box<Self>) -> Option<Box<dyn Policy + 'a>>
    where
        Self: 'a,
    {
        None
    }
}

/// Returns the part of a turn that is not worth a run of its own, at an event that finds no more of
/// the turn left: the turn ends there. Work of the gears that another vCPU pays for lies between an
/// event and the entry, so a deadline that was counted from the event comes before the end of the
/// turn by as much: by 0.6 to 1.4 us of turns that usually last 5 ms. Not for policies that order by
/// virtual time, where whoever ends its turn early is next again.
const fn rest_of(turn: u64) -> u64 {
    turn / 512
}

/// Time that a vCPU may use in each period, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Ticks of use.
    pub ticks: u64,
    /// Ticks of a period.
    pub period: u64,
}

impl Budget {
    /// Checks that the budget fits into its period.
    fn check(self) -> Result<(), Refused> {
        if self.ticks == 0 || self.ticks > self.period {
            return Err(Refused::BadBudget);
        }
        Ok(())
    }
}

/// Parameters of a vCPU, which are its VM's. Each policy reads those that it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The VM.
    pub vm: VmId,
    /// Share relative to others, 1 to [`MAX_WEIGHT`].
    pub weight: u64,
    /// Most that the vCPU gets, however idle the CPU is.
    pub cap: Option<Budget>,
    /// Least that the vCPU gets, by its deadlines.
    pub server: Option<Budget>,
    /// Fixed priority, 0 to 31; a higher one runs first.
    pub priority: u8,
    /// Ticks that the vCPU may borrow from its own future after a wake-up.
    pub latency: u64,
    /// Whether other VMs wait for this one, the device VM, which budgets may not starve.
    pub needed: bool,
}

impl Share {
    /// Returns the parameters of a VM that names none.
    #[must_use]
    pub const fn of(vm: VmId) -> Self {
        Self {
            vm,
            weight: Parameters::WEIGHT as u64,
            cap: None,
            server: None,
            priority: Parameters::PRIORITY as u8,
            latency: 0,
            needed: false,
        }
    }
}

/// A window of a major frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Beginning, in ticks after that of the frame.
    pub start: u64,
    /// Length in ticks.
    pub length: u64,
    /// The VM that has the CPU; `None`: the vCPUs of VMs without a window.
    pub vm: Option<VmId>,
}

/// Input of a policy: the part of the manifest that is about one CPU.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The longest that a vCPU runs while another one waits, in ticks.
    pub slice: u64,
    /// The longest that a ready vCPU waits for higher priorities, in ticks; 0: no limit.
    pub ceiling: u64,
    /// Ticks of a major frame.
    pub frame: u64,
    /// Windows of a major frame, in the order of time; they do not overlap.
    pub windows: Vec<Window>,
    /// Time for budgets.
    pub admission: Admission,
}

/// A policy that a manifest can name.
#[derive(Clone, Copy, Debug)]
pub struct PolicyKind {
    /// Name in the manifest.
    pub name: &'static str,
    /// Constructor of an instance for one CPU, without vCPUs.
    pub make: fn(&Plan) -> Box<dyn Policy>,
}

/// All policies, in the order of [`Scheduler`].
pub const POLICIES: &[PolicyKind] = &[
    PolicyKind {
        name: "round-robin",
        make: |plan| Box::new(RoundRobin::new(plan.slice)),
    },
    PolicyKind {
        name: "fair",
        make: |plan| Box::new(Fair::new(plan.slice)),
    },
    PolicyKind {
        name: "bvt",
        make: |plan| Box::new(Bvt::new(plan.slice)),
    },
    PolicyKind {
        name: "edf",
        make: |plan| Box::new(Edf::new(Fair::new(plan.slice), plan.admission)),
    },
    PolicyKind {
        name: "arinc653",
        make: |plan| {
            Box::new(Arinc653::new(
                plan,
                Edf::new(Fair::new(plan.slice), plan.admission),
            ))
        },
    },
    PolicyKind {
        name: "priority",
        make: |plan| Box::new(Priority::new(plan.slice, plan.ceiling)),
    },
    PolicyKind {
        name: "null",
        make: |_| Box::new(Null::default()),
    },
];

impl PolicyKind {
    /// Returns the policy that a manifest names.
    #[must_use]
    pub fn of(scheduler: Scheduler) -> &'static Self {
        &POLICIES[scheduler as usize]
    }

    /// Returns the policy with the given name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        POLICIES.iter().find(|policy| policy.name == name)
    }
}
