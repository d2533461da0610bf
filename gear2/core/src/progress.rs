//! Whether a guest makes progress, as far as its exits show: a guest whose vCPU has used the CPU for
//! a whole period, and left the guest for nothing of its own meanwhile on any vCPU, hangs.
//!
//! Time in which the guest waits, for an interrupt or for a CPU, does not count. A guest that still
//! takes its timer's interrupts makes progress: its watchdog tells more.

use gear1_abi::exit::ExitReason;
use gear1_abi::id::MAX_VCPUS_PER_VM;

#[cfg(test)]
mod tests;

/// Looks in a period.
pub(crate) const LOOKS: u64 = 4;

/// Exits that others cause.
const OTHERS: [ExitReason; 4] = [
    ExitReason::IrqDirect,
    ExitReason::IrqOther,
    ExitReason::Kick,
    ExitReason::Deadline,
];

/// Ticks that each vCPU of a VM ran.
pub(crate) type Ran = [u64; MAX_VCPUS_PER_VM];

/// Iterates over the reasons for which a guest leaves by itself.
pub(crate) fn own_reasons() -> impl Iterator<Item = ExitReason> {
    let all = ExitReason::ALL.iter().copied();
    all.filter(|reason| !OTHERS.contains(reason))
}

/// Progress of a VM at the last looks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Exits of its own, and ticks that its vCPUs had run when those were counted first; `None`:
    /// nobody has looked at this life.
    pub(crate) last: Option<(u64, Ran)>,
}

impl Progress {
    /// Looks at a VM. Returns whether it hangs: one vCPU ran for `period` ticks without an exit of
    /// the VM's own.
    pub(crate) fn look(&mut self, exits: u64, ran: Ran, period: u64) -> bool {
        match self.last {
            Some((last, since)) if last == exits => {
                let mut used = ran.iter().zip(since);
                // planted: a guest that spins for ever makes progress
                used.any(|(now, then)| now.saturating_sub(then) >= period)
            }
            _ => {
                self.last = Some((exits, ran));
                false
            }
        }
    }
}
