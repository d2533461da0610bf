//! Policy for the restart of a VM that ended by itself.
//!
//! Owns the times of the VM's last restarts. A load takes time from the VMs that share the CPU, so
//! a guest that ends as soon as it runs gets longer and longer pauses, and is given up in the end.

use gearv_manifest::RestartLimit;

#[cfg(test)]
mod tests;

/// Restarts that are remembered: as many as a limit can be.
pub(crate) const REMEMBERED: usize = RestartLimit::MOST as usize;

/// Restart policy of the manifest, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RestartPolicy {
    /// Most restarts within the window; 0: no limit.
    pub(crate) limit: u32,
    pub(crate) window: u64,
    /// Pause before the second restart within the window. Each further restart doubles the pause.
    pub(crate) backoff: u64,
}

/// Decision on an automatic restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Start the VM, not before this time.
    At(u64),
    /// The VM is not restarted.
    GiveUp,
}

/// The last restarts of a VM.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Restarts {
    /// Due times of the last restarts; the oldest one is overwritten.
    times: [Option<u64>; REMEMBERED],
    next: usize,
}

impl Restarts {
    /// Goes on with [`Self::times`] of an earlier Gear2. What can be no time of a restart is left
    /// out: one lies a pause ahead at most.
    pub(crate) fn resumed(times: [u64; REMEMBERED], now: u64, policy: &RestartPolicy) -> Self {
        let latest = now.saturating_add(policy.window);
        let mut times = times.map(|time| (1..=latest).contains(&time).then_some(time));
        // The oldest one is overwritten next; one that is not there is older than all.
        times.sort_unstable();
        Self { times, next: 0 }
    }

    /// Returns the times of the last restarts in any order, 0 where there was none.
    pub(crate) fn times(&self) -> [u64; REMEMBERED] {
        self.times.map(|time| time.map_or(0, |time| time.max(1)))
    }

    /// Judges a restart that is wanted at `now`. A VM that `must_run` is never given up.
    pub(crate) fn judge(&mut self, now: u64, policy: &RestartPolicy, must_run: bool) -> Verdict {
        let is_recent = |time: &&u64| now.saturating_sub(**time) < policy.window;
        let recent = self.times.iter().flatten().filter(is_recent).count() as u32;
        // planted: a guest that crashes at once is loaded for ever
        if policy.limit != 0 && recent >= policy.limit && !must_run {
            return Verdict::GiveUp;
        }
        let pause = match recent.checked_sub(1) {
            None => 0,
            Some(doublings) => policy
                .backoff
                .saturating_mul(1 << doublings)
                .min(policy.window),
        };
        let due = now.saturating_add(pause);
        self.times[self.next] = Some(due);
        self.next = (self.next + 1) % REMEMBERED;
        Verdict::At(due)
    }
}
