//! Accesses of devices that the SMMU has aborted: Gear1 tells whose they were.
//!
//! A device can fault as often as its VM likes. The SMMU's interrupt therefore stays active, and
//! comes no second time, until a look finds no event, and looks have a pause in between. The first
//! look behind an interrupt never ends it: an SMMUv2 also interrupts for accesses that nobody is told
//! of, those of devices whose VM is stopped.

use core::fmt;

use gear1_abi::call::DmaKind;
use gear1_abi::id::VmId;
use gear1_abi::regs::NO_DEADLINE;

use super::CpuLoop;
use super::jobs::DMA_JOB;
use crate::gear1::{DmaEvent, Gear1};
use crate::last_words::Cause;
use crate::machine::Platform;

/// Events that one look takes: as many as the SMMU keeps.
const EVENTS: usize = 128;
/// Time between two looks.
const PAUSE_US: u64 = 10_000;
/// Events of a VM that are told one by one. Later ones are told when their number has doubled.
const TOLD: u64 = 16;

impl<P: Platform> CpuLoop<'_, P> {
    /// Takes in the interrupt of the SMMU's event queue. Gear1 repeats the interrupt for a Gear2 that
    /// was restarted.
    pub(super) fn dma_interrupt(&mut self, now: u64) {
        self.is_new_dma = true;
        self.take_job(DMA_JOB, now);
    }

    /// Tells of the events that have come, and returns when to look again.
    pub(super) fn look_at_dma(&mut self, gear1: &mut impl Gear1, now: u64) -> u64 {
        let mut is_over = !core::mem::take(&mut self.is_new_dma);
        for _ in 0..EVENTS {
            let Some(event) = gear1.dma_event() else {
                break;
            };
            is_over = false;
            let count = self.tell_dma(&event);
            self.judge_dma(gear1, event.vm, count);
        }
        if is_over {
            self.jobs &= !DMA_JOB;
            // planted: the SMMU's interrupt never ends
            let _ = gear1.irq_done(self.machine.config.smmu_intid);
            return NO_DEADLINE;
        }
        now.saturating_add(self.machine.config.ticks(PAUSE_US))
    }

    /// Has a VM end whose devices have been aborted as often as the manifest allows. A real-time VM
    /// has no other end by Gear2 than a stop, and is started again as after a fault.
    fn judge_dma(&mut self, gear1: &mut impl Gear1, vm: Option<VmId>, count: u64) {
        let owner = vm.and_then(|vm| self.machine.vm(vm));
        let Some((config, shared)) = owner else {
            return;
        };
        let limit = config.dma_fault_limit;
        // planted: a VM whose devices attack goes on
        if limit == 0 || !count.is_multiple_of(limit) {
            return;
        }
        let name = &config.name;
        self.say(
            Some(config.id),
            format_args!("{name} ends: {limit} accesses of its devices were aborted"),
        );
        self.end_as_after_fault(gear1, config, shared, Cause::Crash);
    }

    /// Counts an event, tells people, and returns the number of its VM's events.
    fn tell_dma(&mut self, event: &DmaEvent) -> u64 {
        let machine = self.machine;
        let owner = event.vm.and_then(|vm| machine.vm(vm));
        let owner = owner.map(|(config, _)| config);
        let count = machine.count_dma(owner.map(|config| config.id));
        if count > TOLD && !count.is_power_of_two() {
            return count;
        }
        let name = owner.map_or("nobody", |config| &config.name);
        let lost = if event.is_overflow {
            "; more were lost"
        } else {
            ""
        };
        let DmaEvent { stream, number, .. } = event;
        let refused = Refused(event);
        self.say(
            owner.map(|config| config.id),
            format_args!(
                "a device of {name} (StreamID {stream:#x}) {refused}: event {number:#x}, \
                 {count} by now{lost}"
            ),
        );
        count
    }
}

/// What is refused, as far as the event tells.
struct Refused<'e>(&'e DmaEvent);

impl fmt::Display for Refused<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.0.address;
        match self.0.kind {
            DmaKind::Read => write!(out, "may not read {address:#x}"),
            DmaKind::Write => write!(out, "may not write {address:#x}"),
            DmaKind::Unknown => write!(out, "reaches nothing"),
        }
    }
}
