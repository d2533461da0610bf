//! State that a restarted Gear2 takes over from the one that failed.
//!
//! Three places outlive a Gear2: Gear1, with the states of VMs and vCPUs; the region shared with
//! the device model, with slots and rings; and the kept words, which Gear1 leaves as they are. The
//! failed Gear2 may have stopped anywhere, so each kept word is judged against what Gear1 says.

use core::sync::atomic::Ordering::Relaxed;

use gear1_abi::call::{Failure, Reply, VcpuState};
use gear1_abi::event::Mmio;
use gear1_abi::exit::ExitReason;
use gear1_abi::guest::NOT_SUPPORTED;
use gear1_abi::id::{VcpuId, VmId};

use super::{Machine, Platform, SharedVm};
use crate::config::VmConfig;
use crate::gear1::{Gear1, LastRestart};
use crate::kept;
use crate::lifecycle::Lifecycle;
use crate::lives::Reported;
use crate::pl011::Pl011;

impl<P: Platform> Machine<P> {
    /// Goes on where the Gear2 that failed was. No loop runs yet: the first loop does this, and the
    /// others wait for the machine.
    pub(super) fn take_over(&self, gear1: &mut impl Gear1, last: LastRestart) {
        self.take_over_places(gear1);
        self.take_over_shares();
        self.take_over_pools(gear1);
        for (config, shared) in self.config.vms.iter().zip(&self.vms) {
            self.take_over_vm(gear1, config, shared);
        }
        self.take_over_accesses(gear1, last);
        let why = match last.failure {
            Some(Failure::Hang) => "did not come back",
            Some(Failure::Fault) => "made a fault",
            Some(Failure::Fatal) => "gave up",
            None => "failed",
        };
        let LastRestart { count, pc, cpu, .. } = last;
        let text = format_args!("restarted, {count} in all: CPU {cpu} {why} at {pc:#x}");
        self.say(None, text);
    }

    /// Restores a VM's UART and lifecycle from the kept words, and reports what happened to the VM
    /// while no Gear2 ran. Typed input is lost with the Gear2 that failed; what the guest has set
    /// up is not.
    fn take_over_vm(&self, gear1: &mut impl Gear1, config: &VmConfig, shared: &SharedVm<P>) {
        let mut uart = shared.uart.lock();
        let mut lifecycle = shared.lifecycle.lock();
        *uart = Pl011::with(self.kept.uart(config.id));
        if let Some(console) = config.console {
            // A refusal means that the VM does not run.
            let _ = gear1.irq_set(config.id, console.intid, uart.level());
        }
        drop(uart);
        // planted: a restarted Gear2 forgets the watchdogs
        self.take_over_watchdog(gear1, config, shared);
        let Ok(history) = gear1.vm_history(config.id) else {
            return;
        };
        let reported = Reported::from_words(self.kept.reported(config.id), &history);
        let given_up = self.kept.is_given_up(config.id);
        *lifecycle = Lifecycle::resumed(self.kept.goal(config.id), reported, given_up);
        // planted: a fail-over that was under way begins anew
        lifecycle.resume_fail_over(self.kept.fail_over(config.id));
        let restarts = self.kept.restarts(config.id);
        // planted: a Gear2 that is restarted forgets the restarts of VMs
        lifecycle.resume_restarts(restarts, gear1.now(), &config.restarts);
        // An end that was reported was seen to, or is kept as wanted and owed.
        self.report_news(gear1, config, &mut lifecycle, None);
    }

    /// Takes over the slots of accesses that the device model has, and finds out which vCPU's
    /// access Gear2 may have failed at twice: it is one of the CPU that failed, and waits for Gear2
    /// itself.
    fn take_over_accesses(&self, gear1: &mut impl Gear1, last: LastRestart) {
        for (vcpu, config) in self.config.vcpus() {
            let place = self.awaited_place(gear1, vcpu, config.vm);
            let slots = self.device_model.as_ref().map(|model| model.slots.lock());
            let forwarded = slots.is_some_and(|mut slots| {
                slots.take_over(vcpu, place);
                slots.awaits(vcpu)
            });
            let is_suspect = awaits_answer(gear1, vcpu)
                && !forwarded
                && self.placement.cpu(vcpu).reg() == last.cpu;
            // The count of questions tells a question that is asked again from the next one.
            if is_suspect && self.kept.repeat(vcpu, asked(gear1, vcpu)) {
                self.blamed.fetch_or(kept::bit(vcpu), Relaxed);
            }
        }
        if let Some(model) = &self.device_model {
            model.raise(gear1);
        }
    }

    /// Returns device, register and access that a vCPU waits for, if the device model has them.
    /// Gear1 does not tell the value of a store: 0 stands for it, and the place does not depend on
    /// it.
    fn awaited_place(&self, gear1: &mut impl Gear1, vcpu: VcpuId, vm: VmId) -> Option<[u32; 3]> {
        let (ipa, access) = gear1.vcpu_awaits(vcpu)?;
        let mmio = Mmio::from_words(ipa, access, 0);
        let (device, register) = self.config.vm(vm)?.locate(mmio)?;
        Some([device, register, mmio.access_word() as u32])
    }

    /// Tells whether a vCPU that waits for an answer can go on: if nobody is going to give one,
    /// since an earlier Gear2 took the question with it, it asks again. If that is what Gear2
    /// failed at, and not for the first time, it is refused instead.
    pub(crate) fn can_go_on(&self, gear1: &mut impl Gear1, vcpu: VcpuId) -> bool {
        let slots = self.device_model.as_ref().map(|model| model.slots.lock());
        if slots.as_ref().is_some_and(|slots| slots.awaits(vcpu)) {
            return false;
        }
        match gear1.vcpu_state(vcpu) {
            Ok(VcpuState::AwaitsMmio | VcpuState::AwaitsHypercall) => {
                let bit = kept::bit(vcpu);
                let (reply, value) = if self.blamed.fetch_and(!bit, Relaxed) & bit != 0 {
                    (Reply::Abort, NOT_SUPPORTED)
                } else {
                    (Reply::None, 0)
                };
                gear1.vcpu_reply(vcpu, reply, value).is_ok()
            }
            Ok(VcpuState::Ready | VcpuState::Running) => true,
            Ok(VcpuState::Off | VcpuState::Wfi) | Err(_) => false,
        }
    }
}

/// Returns how often a vCPU has asked Gear2 for something.
fn asked(gear1: &mut impl Gear1, vcpu: VcpuId) -> u64 {
    let reasons = [ExitReason::MmioGear2, ExitReason::HypercallGear2];
    let counts = reasons.map(|reason| gear1.exit_stats(vcpu, reason).map_or(0, |(count, _)| count));
    counts.iter().sum()
}

/// Tells whether a vCPU waits for an answer to an access or a call.
fn awaits_answer(gear1: &mut impl Gear1, vcpu: VcpuId) -> bool {
    let state = gear1.vcpu_state(vcpu);
    matches!(
        state,
        Ok(VcpuState::AwaitsMmio | VcpuState::AwaitsHypercall)
    )
}
