//! Collects the last words of VMs that have ended.
//!
//! Gear1 gives the registers of a vCPU that is off once no CPU holds them. A CPU that has the vCPU
//! loaded lets go of it when its own loop asks: the collecting loop pokes the others for that.

use alloc::vec::Vec;

use gear1_abi::call::{Status, VmState};
use gear1_abi::id::{CpuIndex, VcpuId, VmId};

use super::placement::WORDS;
use super::{Machine, Platform, SharedVm};
use crate::config::VmConfig;
use crate::gear1::Gear1;
use crate::last_words::CONSOLE_BYTES;
use crate::lifecycle::Lifecycle;

/// Another loop has so long to let go of a vCPU's registers. An event takes less.
const PATIENCE_US: u64 = 10_000;

impl<P: Platform> Machine<P> {
    /// Returns the last life of a VM that has ended for good, by the number of starts. Gear1 starts
    /// a real-time VM again by itself, and keeps the registers of its former life.
    fn ended_life(gear1: &mut impl Gear1, config: &VmConfig, lifecycle: &Lifecycle) -> Option<u32> {
        let starts = lifecycle.starts();
        let life = match (gear1.vm_state(config.id), config.scheduled) {
            (Ok(VmState::Stopped), _) | (Ok(VmState::Loading | VmState::Loaded), false) => starts,
            (Ok(VmState::Running), false) => starts.saturating_sub(1),
            _ => 0,
        };
        (life != 0).then_some(life)
    }

    /// Collects the last words of a VM that has ended, for the loop of `cpu`. Its lifecycle is
    /// locked. Returns whether that is done, or no longer waited for: the VM may be loaded anew.
    pub(crate) fn collect_last_words(
        &self,
        gear1: &mut impl Gear1,
        config: &VmConfig,
        shared: &SharedVm<P>,
        lifecycle: &Lifecycle,
        cpu: CpuIndex,
    ) -> bool {
        let Some(life) = Self::ended_life(gear1, config, lifecycle) else {
            return true;
        };
        let mut words = shared.last_words.lock();
        let now = gear1.now();
        if words.life != life {
            words.begin(life, lifecycle.cause(), now);
            self.console_tail(config.id, &mut words.console);
        }
        let mut is_complete = true;
        let vcpus = config.vcpus.clone().filter_map(VcpuId::new);
        for (vcpu, place) in vcpus.zip(&mut words.vcpus) {
            if place.is_some() {
                continue;
            }
            match gear1.vcpu_registers(vcpu) {
                Ok(registers) => *place = Some(registers),
                Err(Status::Busy) => {
                    is_complete = false;
                    let owner = self.placement.cpu(vcpu);
                    if owner != cpu {
                        self.poke(gear1, owner, WORDS);
                    }
                }
                // An older Gear1 has no such call, a VM that was started has no last words, and a
                // vCPU that was off in all of that life has no registers.
                Err(_) => {}
            }
        }
        is_complete || now.saturating_sub(words.time) > self.config.ticks(PATIENCE_US)
    }

    /// Appends the end of a VM's console output: the terminal's, or what GDM sees.
    fn console_tail(&self, vm: VmId, to: &mut Vec<u8>) {
        if let Some(console) = &self.console {
            console.lock().tail(vm.index(), CONSOLE_BYTES.into(), to);
        } else if let Some(model) = &self.device_model {
            model.tail(vm.index(), CONSOLE_BYTES, to);
        }
    }
}
