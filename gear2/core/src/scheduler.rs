//! Scheduling policies: which ready vCPU a CPU runs, and until when.
//!
//! Owns the interface between a loop and its policy, and the table of policies
//! that a manifest can name. A policy sees the vCPUs of one CPU only and is
//! called by that CPU's loop only, so it needs no lock. It makes no calls to
//! Gear1: it is a plain state machine over times and identifiers.

use alloc::boxed::Box;

use gear1_abi::id::VcpuId;

mod round_robin;

pub use round_robin::RoundRobin;

/// Choice of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The vCPU to run.
    pub vcpu: VcpuId,
    /// Time at which the policy must be asked again at the latest.
    pub deadline: u64,
    /// Another vCPU is ready on this CPU.
    pub contended: bool,
}

/// The scheduling policy of one CPU. Times are counter ticks.
pub trait Scheduler: Send {
    /// Takes in a vCPU that became ready; one that is already in is left where it is.
    fn wake(&mut self, vcpu: VcpuId, now: u64);

    /// Removes a vCPU that is no longer ready; an absent one is ignored.
    fn block(&mut self, vcpu: VcpuId, now: u64);

    /// Notes that a vCPU yields the rest of its time slice.
    fn give_way(&mut self, vcpu: VcpuId, now: u64);

    /// Chooses what runs from `now` on, `None` if no vCPU is ready. The choice holds until its
    /// deadline or until one of the other methods is called.
    fn pick(&mut self, now: u64) -> Option<Choice>;
}

/// Parameters of a policy's instance.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// The longest that a vCPU runs while another one waits, in ticks.
    pub slice: u64,
}

/// A policy that a manifest can name.
#[derive(Clone, Copy)]
pub struct Policy {
    /// Name in the manifest.
    pub name: &'static str,
    /// Constructor of an instance for one CPU.
    pub make: fn(Parameters) -> Box<dyn Scheduler>,
}

/// All policies.
pub const POLICIES: &[Policy] = &[Policy {
    name: "round-robin",
    make: |parameters| Box::new(RoundRobin::new(parameters.slice)),
}];

impl Policy {
    /// Returns the policy with the given name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        POLICIES.iter().find(|policy| policy.name == name)
    }
}
