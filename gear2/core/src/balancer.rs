//! Balancers: which CPU of a pool gives a vCPU to which other one.
//!
//! Owns the interface between a loop and its balancer, and the table of balancers. A balancer is
//! apart from the policies and sees none of them: it is told how many vCPUs are ready on each CPU.
//! A balancer has no state, so that no lock is needed. All times and loads come from the caller.
//!
//! A loop whose policy keeps vCPUs waiting asks [`Balancer::target`], at most once in a
//! [`Balancer::pause`]. The CPU that is offered a vCPU asks [`Balancer::takes`], with what it has
//! to do itself at that time. Neither asks for a vCPU that moved less than [`Balancer::stay`] ago.

use gear1_abi::id::CpuIndex;

use crate::load::{ONE, Seen};

#[cfg(test)]
mod tests;

/// A balancer. Times are in microseconds.
pub(crate) trait Balancer: Sync {
    /// Name in the manifest.
    fn name(&self) -> &'static str;

    /// Returns the time over which loads are averaged, or `None` if loads need not be measured.
    fn period(&self) -> Option<u64>;

    /// Returns the CPU that should get one of the vCPUs that wait on a CPU with the load `own`.
    /// `others`: the other CPUs of the pool that take vCPUs.
    fn target(&self, own: Seen, others: &mut dyn Iterator<Item = Other>) -> Option<CpuIndex>;

    /// Tells whether a CPU with `own` ready vCPUs takes one from a CPU that has `theirs`.
    fn takes(&self, own: u32, theirs: u32) -> bool;

    /// Returns the time between two looks; `moved`: the last one has moved a vCPU.
    fn pause(&self, moved: bool) -> u64;

    /// Returns the time for which a vCPU that moved stays where it is.
    fn stay(&self) -> u64;
}

/// A CPU that may take a vCPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Other {
    pub(crate) cpu: CpuIndex,
    /// Whether the CPU is of the asking CPU's cluster.
    pub(crate) near: bool,
    pub(crate) seen: Seen,
}

/// All balancers, in the order of [`gearv_manifest::Balancer`].
pub(crate) const BALANCERS: &[&dyn Balancer] = &[&Stay, &ByLoad];

/// Returns the balancer that a manifest names.
pub(crate) fn of(balancer: gearv_manifest::Balancer) -> &'static dyn Balancer {
    BALANCERS[balancer as usize]
}

/// `none`: every vCPU stays on the CPU that it starts on.
struct Stay;

impl Balancer for Stay {
    fn name(&self) -> &'static str {
        "none"
    }

    fn period(&self) -> Option<u64> {
        None
    }

    fn target(&self, _own: Seen, _others: &mut dyn Iterator<Item = Other>) -> Option<CpuIndex> {
        None
    }

    fn takes(&self, _own: u32, _theirs: u32) -> bool {
        false
    }

    fn pause(&self, _moved: bool) -> u64 {
        u64::MAX
    }

    fn stay(&self) -> u64 {
        u64::MAX
    }
}

/// `load`: equal numbers of ready vCPUs.
///
/// A vCPU goes to a CPU that has two less ready than its own, so each move makes the numbers more
/// equal and the sum of their squares smaller: with a constant load, moves end. Against loads that
/// come and go stands the average: a CPU must have had less to do for a while, unless it is idle.
///
/// A move between clusters costs the vCPU its cache, and perhaps its kind of core. A CPU of another
/// cluster hence must have had still less to do, idle or not, and gets nothing that one of the own
/// cluster would take, unless it has two less ready than that one.
struct ByLoad;

/// Difference of averages from which on a vCPU moves within its cluster.
const GAP: u64 = ONE + ONE / 4;

/// Difference from which on a vCPU moves to another cluster. Loads that stay two apart reach it, so
/// that clusters become equal, too.
const FAR_GAP: u64 = ONE + ONE * 3 / 4;

/// A CPU with a lower average that has nothing to do now is idle.
const IDLE: u64 = ONE / 4;

impl Seen {
    /// Orders CPUs by how much they have to do.
    const fn order(self) -> (u64, u64) {
        (self.ready, self.average)
    }
}

/// Tells whether a vCPU should leave a CPU with the load `own` for one with `theirs`.
fn gains(own: Seen, theirs: Seen, near: bool) -> bool {
    let idle = near && theirs.ready == 0 && theirs.average < IDLE;
    let gap = if near { GAP } else { FAR_GAP };
    let less = own.average >= theirs.average.saturating_add(gap);
    own.ready >= theirs.ready + 2 && (idle || less)
}

impl Balancer for ByLoad {
    fn name(&self) -> &'static str {
        "load"
    }

    fn period(&self) -> Option<u64> {
        Some(4_000)
    }

    fn target(&self, own: Seen, others: &mut dyn Iterator<Item = Other>) -> Option<CpuIndex> {
        let (mut near, mut far) = (None, None);
        for other in others {
            let least = if other.near { &mut near } else { &mut far };
            if least.is_none_or(|least: Other| other.seen.order() < least.seen.order()) {
                *least = Some(other);
            }
        }
        let near = near.filter(|near| gains(own, near.seen, true));
        let far = far.filter(|far| gains(own, far.seen, false));
        match (near, far) {
            // planted: a vCPU goes to another cluster although its own has room
            (Some(near), Some(far)) if far.seen.ready + 2 > near.seen.ready => Some(near.cpu),
            (near, far) => far.or(near).map(|other| other.cpu),
        }
    }

    fn takes(&self, own: u32, theirs: u32) -> bool {
        // planted: a CPU takes a vCPU that is no worse off where it is
        theirs >= own + 2
    }

    fn pause(&self, moved: bool) -> u64 {
        if moved { 500 } else { 2_000 }
    }

    fn stay(&self) -> u64 {
        8_000
    }
}
