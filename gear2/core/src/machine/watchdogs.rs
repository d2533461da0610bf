//! The watchdogs of guests: accesses of the guests, and looks at the ends of stages.
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
use crate::watchdog::{FRAME_BYTES, Signal, Watchdog};

/// A guest's watchdog, and who looks at it.
#[derive(Debug)]
pub(crate) struct Watched {
    device: Watchdog,
    /// CPU of the loop that looks at the ends of stages, if one does.
    looker: Option<CpuIndex>,
}

/// Result of a look at a VM's watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing is left for this loop to look at.
    Over,
    /// The next look is due at this time.
    At(u64),
    /// The VM has to end. `touched`: its kernel has used the watchdog since its start.
    Bites {
        /// Whether the kernel has a driver that works.
        touched: bool,
    },
}

impl Watched {
    /// Makes the watchdog of a VM that does not run.
    pub(super) const fn new(config: &VmConfig) -> Self {
        Self {
            device: Watchdog::new(config.watchdog),
            looker: None,
        }
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
        let before = device.due();
        device.write(offset, access.size_log2, stored, now);
        let due = device.due();
        let is_earlier = before.is_none_or(|before| due.is_some_and(|due| due < before));
        let due = due.filter(|_| is_earlier);
        self.settle_watchdog(gear1, config, device);
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
        watched.device.begin(origin, gear1.now());
        self.kept.set_origin(config.id, origin);
    }

    /// Has the loop of `cpu` look at the watchdog of a VM from now on. Returns whether there is one.
    pub(crate) fn look_after(&self, vm: VmId, cpu: CpuIndex) -> bool {
        let Some((_, shared)) = self
            .vm(vm)
            .filter(|(config, _)| config.watchdog_device.is_some())
        else {
            return false;
        };
        shared.watchdog.lock().looker = Some(cpu);
        true
    }

    /// Looks at the watchdog of a VM for the loop of `cpu`.
    pub(crate) fn look_at_watchdog(
        &self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        shared: &SharedVm<P>,
        cpu: CpuIndex,
    ) -> Look {
        let mut watched = shared.watchdog.lock();
        if watched.looker != Some(cpu) {
            return Look::Over;
        }
        let runs = gear1.vm_state(config.id) == Ok(VmState::Running);
        let excused = runs && self.is_excused(config);
        match watched.device.look(excused, gear1.now()) {
            Signal::None(Some(due)) if runs => {
                self.settle_watchdog(gear1, config, &mut watched.device);
                Look::At(due)
            }
            // The caller settles the end first: a Gear2 that fails before looks again.
            Signal::Second if runs => Look::Bites {
                touched: watched.device.is_touched(),
            },
            Signal::None(_) | Signal::Second => {
                watched.looker = None;
                Look::Over
            }
        }
    }

    /// Notes that a VM's end by its watchdog is seen to.
    pub(crate) fn has_bitten(&self, config: &VmConfig, shared: &SharedVm<P>) {
        let mut watched = shared.watchdog.lock();
        watched.looker = None;
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
