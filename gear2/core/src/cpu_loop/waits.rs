//! What WFI and WFE of the vCPU do that runs, and what the policy hears of waits that Gear2 took no
//! part in.

use gear1_abi::call::{Decision, WAITS_HERE, Waits};
use gear1_abi::event::Event;
use gear1_abi::id::VcpuId;

use super::CpuLoop;
use super::jobs::BALANCE_JOB;
use super::moves::vcpus_of;
use crate::gear1::{Gear1, Times};
use crate::machine::Platform;
use crate::scheduler;

impl<P: Platform> CpuLoop<'_, P> {
    /// Takes in a WFI, and decides what the CPU does next. The event after which most often another
    /// vCPU runs than before.
    #[inline(always)]
    pub(super) fn on_wfi(
        &mut self,
        gear1: &mut impl Gear1,
        vcpu: VcpuId,
        times: Times,
    ) -> Decision {
        if let Some(cause) = self.cause {
            self.charge_work(cause, Event::Wfi(vcpu), times);
        }
        self.charge(times.now);
        self.cause = Some(vcpu);
        self.scheduler.block(vcpu, times.now);
        self.decide(gear1, None, times.now)
    }

    /// Finds out what WFI does of a vCPU beside which no other one can run, by the vCPUs of this CPU.
    ///
    /// The balancer reads how many vCPUs are ready, so it has to hear of each wait. A vCPU that has
    /// the CPU to itself waits inside the guest, unless Gear2 looks whether the guest hangs, which
    /// takes the time for which the vCPU ran, or the guest counts cycles, which it must not while it
    /// waits.
    pub(super) fn judge_waits(&mut self) {
        let config = &self.machine.config;
        let mut vcpus = vcpus_of(self.moves.here);
        let first = vcpus.next().and_then(|vcpu| config.vcpu(vcpu));
        let vm = first.and_then(|vcpu| config.vm(vcpu.vm));
        let is_only = vcpus.next().is_none();
        let may_wait = vm.is_some_and(|vm| !vm.is_watched() && !vm.has_pmu);
        self.waits = if self.jobs & BALANCE_JOB != 0 {
            Waits::Leaves
        } else if is_only && may_wait {
            Waits::Alone
        } else {
            Waits::Stays
        };
    }

    /// Returns what WFI and WFE of the policy's choice do, and until when it holds. A vCPU that
    /// others wait for gives the CPU up at WFE, since it may spin for a lock that one of them holds.
    #[inline]
    pub(super) fn waits_of(&self, choice: scheduler::Run, now: u64) -> (Waits, u64) {
        if !choice.alone {
            let waits = match choice.contended {
                true => Waits::GivesWay,
                false => Waits::Leaves,
            };
            (waits, choice.until)
        } else if self.waits == Waits::Alone {
            self.waits_alone(choice, now)
        } else {
            (self.waits, choice.until)
        }
    }

    /// Returns it for the only vCPU of the CPU. WFI traps while people look at accounts, and no
    /// longer.
    #[inline(never)]
    fn waits_alone(&self, choice: scheduler::Run, now: u64) -> (Waits, u64) {
        match self.machine.is_looked_at(now) {
            Some(until) => (Waits::Stays, choice.until.min(until)),
            None => {
                self.machine.runs_unseen(choice.vcpu);
                (Waits::Alone, choice.until)
            }
        }
    }

    /// Notes a wait inside Gear1, if there was one.
    #[inline(always)]
    pub(super) fn note_wait_of(&mut self, times: Times) {
        if times.waited != 0 {
            self.note_wait(times.waited);
        }
    }

    /// Notes for how long the vCPU has waited inside Gear1. The short way back charges nothing, so
    /// the next charge leaves out several waits.
    #[cold]
    #[inline(never)]
    fn note_wait(&mut self, waited: u64) {
        // Ticks do not reach the bit.
        self.open_wait = self.open_wait.saturating_add(waited);
    }

    /// Leaves the time out for which the vCPU has waited inside Gear1 since the last charge. The
    /// policy hears of all these waits as of one, so the policy sees the idle time of the CPU, and the
    /// vCPU wakes as after any other wait.
    ///
    /// A wait that lasts comes last. Waits that are over come first: a vCPU that has run since does
    /// not wake now, and whoever wakes beside it finds its time used.
    #[inline(never)]
    pub(super) fn leave_out_wait(&mut self, vcpu: VcpuId, now: u64) {
        let open = core::mem::take(&mut self.open_wait);
        let ticks = open & !WAITS_HERE;
        self.waited = self.waited.wrapping_add(ticks);
        let lasts = open & WAITS_HERE != 0;
        let began = match lasts {
            true => now.saturating_sub(ticks).max(self.charged),
            false => self.charged,
        };
        let ended = began.saturating_add(ticks).min(now);
        self.charge_to(vcpu, began);
        self.charged = ended.max(began);
        self.scheduler.block(vcpu, began);
        // Nobody else can run before `until`, which is later.
        let _idle = self.scheduler.pick(began);
        // planted: a vCPU that waits inside Gear1 is ready
        if !lasts {
            self.scheduler.wake(vcpu, ended);
            let _again = self.scheduler.pick(ended);
        }
    }
}
