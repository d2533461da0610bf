//! Events of real-time VMs, which Gear1 runs by itself.

use gear1_abi::id::VcpuId;

use super::CpuLoop;
use super::jobs::vm_job;
use crate::gear1::Gear1;
use crate::machine::Platform;

impl<P: Platform> CpuLoop<'_, P> {
    /// Reports what became of a real-time VM. Gear1 has seen to it already: a wake-up says only
    /// that there is something to hear, however much it is.
    pub(super) fn look_at_real_time(&mut self, gear1: &mut impl Gear1, vcpu: VcpuId) {
        let vm = self.machine.config.real_time_vm(vcpu);
        let Some((config, shared)) = vm.and_then(|vm| self.machine.vm(vm.id)) else {
            return;
        };
        let mut lifecycle = shared.lifecycle.lock();
        let machine = self.machine;
        machine.report_news(gear1, config, &mut lifecycle, None);
        drop(lifecycle);
        // The last words of a life that has ended are collected by a job.
        self.take_job(vm_job(config.id), 0);
        self.schedule_console();
    }
}
