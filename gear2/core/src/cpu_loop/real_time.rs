//! What a loop hears of real-time VMs, which it does not run.

use gear1_abi::event::Ended;
use gear1_abi::id::VcpuId;

use super::CpuLoop;
use crate::gear1::Gear1;
use crate::machine::Platform;

impl<P: Platform> CpuLoop<'_, P> {
    /// Reports what became of a real-time VM. Gear1 has seen to it already: a wake-up says only that
    /// there is something to hear.
    pub(super) fn look_at_real_time(&mut self, gear1: &mut impl Gear1, vcpu: VcpuId) {
        let vm = self.machine.config.real_time_vm(vcpu);
        let Some((config, shared)) = vm.and_then(|vm| self.machine.vm(vm.id)) else {
            return;
        };
        let Ok(history) = gear1.vm_history(config.id) else {
            return;
        };
        let restarted = shared.lifecycle.lock().has_restarted(history.starts);
        let what = match history.end {
            _ if restarted => "restarted by Gear1",
            Ended::Off => "turned itself off",
            Ended::Reset => "resets itself",
            Ended::Fault => "cannot go on: its registers are in Gear1's log",
            Ended::No => return,
        };
        let name = &config.name;
        self.say(Some(config.id), format_args!("{name} {what}"));
    }
}
