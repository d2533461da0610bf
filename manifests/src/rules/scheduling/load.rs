//! Arithmetic of budgets: what the vCPUs with budgets ask of a CPU, and what there is for them.
//!
//! A CPU that is always there takes budgets `C` with periods `P` exactly if the sum of `C / P` is
//! at most 1 (C. L. Liu, J. W. Layland, 1973). Windows give a part `a` of the CPU after a wait of
//! at most `d`: at least `a * (t - d)` in any time `t`. They are enough if the sum of `C / (P - d)`
//! is at most `a`, since a budget is due only after its first period, when `t / P <= (t - d) / (P -
//! d)` (linear supply bound of I. Shin, I. Lee, "Periodic Resource Model for Compositional
//! Real-Time Guarantees", RTSS 2003).

use crate::found::Load;
use crate::limits::SWITCH_NS;
use crate::model::{Budget, Manifest, Vm, Window};
use crate::{CpuIndex, MAX_WINDOWS};

/// A whole, in millionths.
const WHOLE_PPM: u64 = 1_000_000;

/// Time of a CPU for vCPUs without a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supply {
    /// Part of the CPU, in millionths, rounded down.
    pub there_ppm: u64,
    /// Longest wait for that part, in microseconds, rounded up.
    pub delay_us: u64,
}

/// Part of a CPU that a budget asks for, in millionths, each rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The budget itself.
    pub budget_ppm: u64,
    /// Two switches for each period.
    pub switches_ppm: u64,
}

impl Supply {
    /// The whole CPU.
    pub const WHOLE: Self = Self {
        there_ppm: WHOLE_PPM,
        delay_us: 0,
    };

    /// Returns what a budget asks of the supply, where a switch takes `switch_ns`. `None`: the
    /// period is not longer than the wait, so that the budget does not come in time.
    ///
    /// `check` adds up what starts on a CPU with this, and Gear2 what is there later.
    #[must_use]
    pub fn demand(&self, server: Budget, switch_ns: u32) -> Option<Demand> {
        let period = u64::from(server.period_us).checked_sub(self.delay_us);
        let period = period.filter(|period| *period > 0)?;
        let part = |ns: u64| (ns * WHOLE_PPM).div_ceil(period * 1000);
        Some(Demand {
            budget_ppm: part(u64::from(server.budget_us) * 1000),
            // planted: budgets leave no time for switches
            switches_ppm: part(2 * u64::from(switch_ns)),
        })
    }

    /// Returns what the windows without a VM of a pool give; `None`: the pool has none.
    pub(super) fn of_free_windows(manifest: &Manifest<'_>, pool: Option<usize>) -> Option<Self> {
        let frame = u64::from(manifest.policy_of(pool).frame_us);
        let free = || manifest.windows_of(pool).filter(|one| one.vm.is_none());
        let all: u64 = free().map(|window| u64::from(window.length_us)).sum();
        let there_ppm = (all * WHOLE_PPM).checked_div(frame)?;
        let delays = free().map(|window| delay_after(window, free(), all, frame));
        let delay_us = delays.max().filter(|_| all > 0)?;
        Some(Self {
            there_ppm,
            delay_us,
        })
    }
}

/// Returns the longest delay of a supply that begins to be asked for when `window` ends. The end of
/// each gap is looked at: until then windows gave least, compared with an even supply.
fn delay_after<'m, 'a: 'm>(
    window: &Window<'_>,
    free: impl Iterator<Item = &'m Window<'a>>,
    all: u64,
    frame: u64,
) -> u64 {
    let mut coming = [(0, 0); MAX_WINDOWS];
    let mut given = 0;
    let mut delay = 0;
    for (gap_end, length) in sort_coming(&mut coming, window.end_us(), free, frame) {
        let even = (given * frame).checked_div(all).unwrap_or(0);
        // planted: a wait for windows ends with the first one
        delay = delay.max(gap_end.saturating_sub(even));
        given += *length;
    }
    delay
}

/// Puts the windows in the order in which they come after the time `from` of the frame, each as the
/// wait for it and its length, in microseconds. A window that began before `from` comes in the next
/// frame.
fn sort_coming<'c, 'm, 'a: 'm>(
    coming: &'c mut [(u64, u64); MAX_WINDOWS],
    from: u64,
    free: impl Iterator<Item = &'m Window<'a>>,
    frame: u64,
) -> &'c [(u64, u64)] {
    let mut count = 0;
    for (slot, window) in coming.iter_mut().zip(free) {
        let start = u64::from(window.start_us);
        let later = if start < from { frame } else { 0 };
        let wait = (start + later).saturating_sub(from);
        *slot = (wait, window.length_us.into());
        count += 1;
    }
    let coming = coming.get_mut(..count).unwrap_or_default();
    coming.sort_unstable();
    coming
}

/// Adds up the budgets of vCPUs on a CPU, each rounded up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    pub(super) load: Load,
    supply: Supply,
}

impl Sum {
    pub(super) const fn new(cpu: CpuIndex, supply: Supply) -> Self {
        Self {
            load: Load {
                cpu,
                budgets_ppm: 0,
                switches_ppm: 0,
                there_ppm: supply.there_ppm,
                delay_us: supply.delay_us,
            },
            supply,
        }
    }

    /// Adds a budget, and returns whether it comes in time at all: its period is longer than the
    /// wait.
    pub(super) fn add(&mut self, server: Budget) -> bool {
        let Some(demand) = self.supply.demand(server, SWITCH_NS) else {
            return false;
        };
        let load = &mut self.load;
        load.budgets_ppm = load.budgets_ppm.saturating_add(demand.budget_ppm);
        load.switches_ppm = load.switches_ppm.saturating_add(demand.switches_ppm);
        true
    }
}

/// Iterates over the VMs with a vCPU that starts on a CPU, once for each of these vCPUs.
pub(super) fn starting_on<'m, 'a>(
    manifest: &'m Manifest<'a>,
    cpu: CpuIndex,
    cpu_count: usize,
) -> impl Iterator<Item = &'m Vm<'a>> {
    manifest.vms.iter().flat_map(move |vm| {
        let vcpus = 0..vm.vcpu_count;
        let here = vcpus.filter(move |vcpu| manifest.start_cpu(vm, *vcpu, cpu_count) == Some(cpu));
        here.map(move |_| vm)
    })
}

#[cfg(test)]
mod tests;
