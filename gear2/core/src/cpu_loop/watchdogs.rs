//! The watchdogs of guests as a job of a loop.

use gear1_abi::id::VcpuId;
use gear1_abi::regs::NO_DEADLINE;

use super::CpuLoop;
use super::jobs::{WAIT_PAUSE_US, WATCHDOG_JOB};
use crate::config::VmConfig;
use crate::gear1::Gear1;
use crate::last_words::Cause;
use crate::machine::{Look, Platform, SharedVm, Sign, Slow, Usage};

impl<P: Platform> CpuLoop<'_, P> {
    /// Begins the watch over a VM that this loop has started, if the VM has a watchdog.
    pub(super) fn begin_watchdog(
        &mut self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        origin: u64,
    ) {
        let machine = self.machine;
        let Some((_, shared)) = machine.vm(config.id) else {
            return;
        };
        // The loop that starts a VM runs its boot vCPU next, so that it is the one with the least
        // to look up. Any other vCPU that refreshes the watchdog takes the look over.
        machine.begin_watchdog(gear1, config, shared, origin);
        if machine.look_after(config.id, self.cpu) {
            self.jobs |= WATCHDOG_JOB;
        }
    }

    /// Looks at the watchdog of a vCPU's VM from now on, first at `due`. The loop that looked so
    /// far sees that with its next look.
    pub(super) fn look_after_vcpu(&mut self, vcpu: VcpuId, due: u64) {
        let vm = self.machine.config.vcpu(vcpu).map(|vcpu| vcpu.vm);
        if vm.is_some_and(|vm| self.machine.look_after(vm, self.cpu)) {
            self.take_job(WATCHDOG_JOB, due);
        }
    }

    /// Looks at the watchdogs that this loop looks after, and returns when to do what follows.
    pub(super) fn look_at_watchdogs(&mut self, gear1: &mut impl Gear1, now: u64) -> u64 {
        let machine = self.machine;
        let mut due = NO_DEADLINE;
        // All watched VMs are visited, also those of other loops: the machine says "over" for a VM
        // that this loop no longer looks after, which ends the job with the last of them.
        let mut is_over = true;
        for config in &machine.config.vms {
            let Some((_, shared)) = machine.vm(config.id).filter(|_| config.is_watched()) else {
                continue;
            };
            let (look, slow) = machine.look_at_watchdog(gear1, config, shared, self.cpu);
            if let Some(slow) = slow {
                self.say_slow(config, slow);
            }
            match look {
                Look::Over => {}
                Look::At(time) => {
                    is_over = false;
                    due = due.min(time);
                }
                Look::Bites(sign) => {
                    self.end_by_watchdog(gear1, config, shared, sign);
                    // The stop may wait for a vCPU on another CPU or for a bus master. The next
                    // look tells.
                    due = due.min(now.saturating_add(machine.config.ticks(WAIT_PAUSE_US)));
                }
            }
        }
        if is_over {
            self.jobs &= !WATCHDOG_JOB;
        }
        due
    }

    /// Tells people of a VM that refreshes its watchdog too late, and goes on.
    fn say_slow(&mut self, config: &VmConfig, slow: Slow) {
        let (name, vm) = (&config.name, Some(config.id));
        let ms =
            |ticks: u64| ticks.saturating_mul(1_000) / self.machine.config.ticks(1_000_000).max(1);
        match slow {
            Slow::Late(count) => self.say(
                vm,
                format_args!(
                    "{name} is slow: it refreshed its watchdog late, {count} times by now"
                ),
            ),
            Slow::Starved(Usage { ran, waited }) => {
                let (ran, waited) = (ms(ran), ms(waited));
                let text = format_args!(
                    "{name} is slow: it waited {waited} ms for a CPU and ran {ran} ms; \
                     its watchdog waits once more"
                );
                self.say(vm, text);
            }
        }
    }

    /// Ends a VM whose watchdog nobody refreshes, as after a fault.
    fn end_by_watchdog(
        &mut self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        shared: &SharedVm<P>,
        sign: Sign,
    ) {
        let (name, vm) = (&config.name, Some(config.id));
        let how = match sign {
            Sign::Unfed => "it does not refresh its watchdog",
            Sign::Untouched => "it has not touched its watchdog since its start",
            Sign::NoProgress => "its vCPUs run, and do nothing that shows",
        };
        self.say(vm, format_args!("{name} hangs: {how}"));
        // In this order: a Gear2 that fails in between looks at the watchdog again.
        self.end_as_after_fault(gear1, config, shared, Cause::Hang);
        self.machine.has_bitten(config, shared);
    }
}
