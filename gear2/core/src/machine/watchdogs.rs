//! The watchdogs of guests: accesses of the guests, and looks at the ends of stages, and at the
//! progress of guests.
//!
//! One loop looks at the watchdog of a VM: the one that was last told when a look is due. A
//! watchdog's lock has the place of a UART's in the order of locks, and is held until Gear1 knows
//! the level of the interrupt line.

use gear1_abi::call::VmState;
use gear1_abi::event::Mmio;
use gear1_abi::id::{CpuIndex, VcpuId, VmId};

use super::{Machine, Platform, SharedVm};
use crate::config::VmConfig;
use crate::gear1::Gear1;
use crate::platform::Answer;
use crate::progress::{self, Progress};
use crate::watchdog::{FRAME_BYTES, Signal, Watchdog};

/// A guest's watchdog, and who looks at it.
#[derive(Debug)]
pub(crate) struct Watched {
    device: Watchdog,
    /// CPU of the loop that looks at the ends of stages, if one does.
    looker: Option<CpuIndex>,
    /// Use that the VM had made of CPUs when the first signal was raised.
    at_signal: Usage,
    /// Whether the VM has got more time for want of a CPU, and not refreshed the watchdog since.
    has_credit: bool,
    /// Number of lives that ended by a hang.
    hangs: u32,
    /// Number of refreshes in the last quarter of the time, and of those that people were told of.
    late: u32,
    told: u32,
    /// Number of times for which the VM got more time.
    starved: u32,
    /// Progress of this life, and when to look at it.
    progress: Progress,
    progress_at: u64,
}

/// Ticks in which the vCPUs of a VM ran, and in which they could have run and waited for a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) ran: u64,
    pub(crate) waited: u64,
}

impl Usage {
    /// Returns the use since an earlier one.
    const fn since(self, earlier: Self) -> Self {
        Self {
            ran: self.ran.saturating_sub(earlier.ran),
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }

    /// Tells whether the VM got less than half of the time that it could have used.
    const fn is_starved(self) -> bool {
        self.waited > self.ran
    }
}

/// News of a VM that refreshes its watchdog too late, and does not hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slow {
    /// The VM has refreshed the watchdog in the last quarter of the time, so often by now.
    Late(u32),
    /// The VM got more time: since the first signal it made this use of CPUs.
    Starved(Usage),
}

/// Result of a look at a VM's watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing is left for this loop to look at.
    Over,
    /// The next look is due at this time.
    At(u64),
    /// The VM has to end.
    Bites(Sign),
}

/// Sign by which a VM hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// The kernel no longer refreshes the watchdog.
    Unfed,
    /// The kernel has not used the watchdog since its start.
    Untouched,
    /// The vCPUs run, and leave the guest for nothing of their own.
    NoProgress,
}

impl Watched {
    /// Makes the watchdog of a VM that does not run.
    pub(super) const fn new(config: &VmConfig) -> Self {
        Self {
            device: Watchdog::new(config.watchdog),
            looker: None,
            at_signal: Usage { ran: 0, waited: 0 },
            has_credit: false,
            hangs: 0,
            late: 0,
            told: 0,
            starved: 0,
            progress: Progress { last: None },
            progress_at: 0,
        }
    }

    /// Returns how often the VM hung, was late, and got more time.
    pub(crate) const fn counts(&self) -> [u32; 3] {
        [self.hangs, self.late, self.starved]
    }

    /// Returns late refreshes that people are to be told of: the first, and then each time when
    /// their number has doubled.
    const fn late_news(&mut self) -> Option<Slow> {
        if self.late < 2 * self.told || self.late == 0 {
            return None;
        }
        self.told = self.late;
        Some(Slow::Late(self.late))
    }

    /// Returns when to look next, at the watchdog or at the progress.
    fn with_progress(&self, look: Look, config: &VmConfig) -> Look {
        match look {
            Look::At(due) if config.progress != 0 => Look::At(due.min(self.progress_at)),
            look => look,
        }
    }

    /// Looks at the end of a stage, of which the VM is not excused. Returns the use since the first
    /// signal if the VM gets more time: once, until it refreshes the watchdog.
    fn judge(&mut self, usage: Usage, now: u64) -> Option<Usage> {
        if !self.device.is_signalled() {
            self.at_signal = usage;
            return None;
        }
        let usage = usage.since(self.at_signal);
        // planted: a guest that gets no CPU is one that hangs
        if self.has_credit || !usage.is_starved() {
            return None;
        }
        self.has_credit = true;
        self.starved += 1;
        self.device.refresh(now);
        Some(usage)
    }
}

impl<P: Platform> Machine<P> {
    /// Emulates an access that may be to a VM's watchdog. The time is that of the next look, if it is
    /// earlier than before.
    pub(super) fn access_watchdog(
        &self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        access: Mmio,
        now: u64,
    ) -> (Answer, Option<u64>) {
        let (Some(offset), Some((_, shared))) = (offset_of(config, access), self.vm(config.id))
        else {
            return (Answer::Abort, None);
        };
        let mut watched = shared.watchdog.lock();
        let device = &mut watched.device;
        let Some(stored) = access.store else {
            let value = device.read(offset, access.size_log2);
            return (Answer::Value(value), None);
        };
        let (before, is_last_quarter) = (device.due(), device.is_last_quarter(now));
        device.write(offset, access.size_log2, stored, now);
        let due = device.due();
        let is_earlier = before.is_none_or(|before| due.is_some_and(|due| due < before));
        let due = due.filter(|_| is_earlier);
        self.settle_watchdog(gear1, config, device);
        let is_late = is_last_quarter && !device.is_signalled();
        watched.has_credit = false;
        watched.late += u32::from(is_late);
        (Answer::Value(0), due)
    }

    /// Begins the first stage of a VM that starts. Its virtual count is 0 at `origin`.
    pub(crate) fn begin_watchdog(
        &self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        shared: &SharedVm<P>,
        origin: u64,
    ) {
        let mut watched = shared.watchdog.lock();
        let now = gear1.now();
        watched.device.begin(origin, now);
        watched.progress = Progress::default();
        watched.progress_at = now.saturating_add(config.progress / progress::LOOKS);
        self.kept.set_origin(config.id, origin);
    }

    /// Has the loop of `cpu` look at the watchdog of a VM from now on. Returns whether there is one.
    pub(crate) fn look_after(&self, vm: VmId, cpu: CpuIndex) -> bool {
        let Some((_, shared)) = self.vm(vm).filter(|(config, _)| config.is_watched()) else {
            return false;
        };
        shared.watchdog.lock().looker = Some(cpu);
        true
    }

    /// Looks at the watchdog of a VM for the loop of `cpu`. Also returns what people are to be told
    /// of a VM that does not hang.
    pub(crate) fn look_at_watchdog(
        &self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        shared: &SharedVm<P>,
        cpu: CpuIndex,
    ) -> (Look, Option<Slow>) {
        let mut watched = shared.watchdog.lock();
        if watched.looker != Some(cpu) {
            return (Look::Over, None);
        }
        let runs = gear1.vm_state(config.id) == Ok(VmState::Running);
        let excused = runs && self.is_excused(config);
        let now = gear1.now();
        let mut slow = watched.late_news();
        let hangs = runs && self.look_at_progress(gear1, config, &mut watched, now);
        if hangs {
            return (Look::Bites(Sign::NoProgress), slow);
        }
        if config.watchdog_device.is_none() {
            let look = if runs {
                Look::At(watched.progress_at)
            } else {
                Look::Over
            };
            return (look, None);
        }
        if runs && !excused && watched.device.is_over(now) {
            let usage = self.usage(gear1, config);
            slow = watched.judge(usage, now).map(Slow::Starved).or(slow);
        }
        let look = self.look(gear1, config, &mut watched, (runs, excused));
        (watched.with_progress(look, config), slow)
    }

    /// Looks at a VM's progress, if it is time to. Returns whether the VM hangs.
    fn look_at_progress(
        &self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        watched: &mut Watched,
        now: u64,
    ) -> bool {
        if config.progress == 0 || now < watched.progress_at {
            return false;
        }
        watched.progress_at = now.saturating_add(config.progress / progress::LOOKS);
        let (mut exits, mut ran) = (0_u64, progress::Ran::default());
        let vcpus = config.vcpus.clone().filter_map(VcpuId::new);
        for (vcpu, ran) in vcpus.zip(&mut ran) {
            *ran = self.ran(gear1, vcpu);
            let counts = progress::own_reasons().map(|reason| gear1.exit_stats(vcpu, reason));
            let counts = counts.map(|count| count.map_or(0, |(count, _)| count));
            exits = exits.wrapping_add(counts.fold(0, u64::wrapping_add));
        }
        watched.progress.look(exits, ran, config.progress)
    }

    /// Looks whether a stage is over.
    fn look(
        &self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        watched: &mut Watched,
        (runs, excused): (bool, bool),
    ) -> Look {
        match watched.device.look(excused, gear1.now()) {
            Signal::None(Some(due)) if runs => {
                self.settle_watchdog(gear1, config, &mut watched.device);
                Look::At(due)
            }
            // The caller settles the end first: a Gear2 that fails before looks again.
            Signal::Second if runs => Look::Bites(if watched.device.is_touched() {
                Sign::Unfed
            } else {
                Sign::Untouched
            }),
            Signal::None(_) | Signal::Second => {
                watched.looker = None;
                Look::Over
            }
        }
    }

    /// Returns the use that the vCPUs of a VM have made of CPUs.
    fn usage(&self, gear1: &mut impl Gear1, config: &VmConfig) -> Usage {
        let mut usage = Usage::default();
        for vcpu in config.vcpus.clone().filter_map(VcpuId::new) {
            usage.ran = usage.ran.wrapping_add(self.ran(gear1, vcpu));
            let waited = gear1.vcpu_waits(vcpu).map_or(0, |waits| waits.waited);
            usage.waited = usage.waited.wrapping_add(waited);
        }
        usage
    }

    /// Counts a life that ended by a hang.
    pub(crate) fn count_hang(&self, config: &VmConfig) {
        if let Some((_, shared)) = self.vm(config.id) {
            shared.watchdog.lock().hangs += 1;
        }
    }

    /// Notes that a VM's end by its watchdog is seen to.
    pub(crate) fn has_bitten(&self, config: &VmConfig, shared: &SharedVm<P>) {
        let mut watched = shared.watchdog.lock();
        watched.looker = None;
        watched.hangs += 1;
        self.kept.set_watchdog(config.id, watched.device.word());
    }

    /// Gives a VM that goes on after a pause a whole stage.
    pub(crate) fn excuse_pause(
        &self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        shared: &SharedVm<P>,
    ) {
        let mut watched = shared.watchdog.lock();
        watched.device.refresh(gear1.now());
        self.settle_watchdog(gear1, config, &mut watched.device);
    }

    /// Brings the watchdog of a VM that starts to its reset state.
    pub(super) fn reset_watchdog(
        &self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        shared: &SharedVm<P>,
    ) {
        let mut watched = shared.watchdog.lock();
        watched.device.reset();
        watched.has_credit = false;
        self.settle_watchdog(gear1, config, &mut watched.device);
    }

    /// Goes on with the watchdog of a VM as an earlier Gear2 left it.
    pub(super) fn take_over_watchdog(
        &self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        shared: &SharedVm<P>,
    ) {
        let Some(device) = config.watchdog_device else {
            return;
        };
        let (word, origin) = (self.kept.watchdog(config.id), self.kept.origin(config.id));
        let mut watched = shared.watchdog.lock();
        let level = watched.device.resume(word, origin, gear1.now());
        // A refusal means that the VM does not run.
        let _ = gear1.irq_set(config.id, device.intid, level);
    }

    /// Tells whether a VM cannot refresh its watchdog just now, for no fault of its own.
    fn is_excused(&self, config: &VmConfig) -> bool {
        // planted: a paused guest is one that hangs
        if self.is_paused(config.id) {
            return true;
        }
        let Some(model) = &self.device_model else {
            return false;
        };
        let slots = model.slots.lock();
        let mut vcpus = config.vcpus.clone().filter_map(VcpuId::new);
        vcpus.any(|vcpu| slots.awaits(vcpu))
    }

    /// Keeps the state of a watchdog, and tells Gear1 the level of its interrupt if it changed.
    fn settle_watchdog(&self, gear1: &mut impl Gear1, config: &VmConfig, device: &mut Watchdog) {
        self.kept.set_watchdog(config.id, device.word());
        if let (Some(level), Some(device)) = (device.level_change(), config.watchdog_device) {
            // A refusal means that the VM is being stopped, which resets the line too.
            let _ = gear1.irq_set(config.id, device.intid, level);
        }
    }
}

/// Returns the offset of an access to a VM's watchdog, if it is one of 4 or 8 bytes.
fn offset_of(config: &VmConfig, access: Mmio) -> Option<u64> {
    let offset = access.ipa.checked_sub(config.watchdog_device?.ipa)?;
    let is_inside = offset < 2 * FRAME_BYTES;
    let is_aligned = offset.is_multiple_of(1 << access.size_log2);
    (is_inside && is_aligned && access.size_log2 >= 2).then_some(offset)
}
