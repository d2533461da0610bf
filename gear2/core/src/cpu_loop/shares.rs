//! A CPU's part in a change of scheduling parameters.

use super::CpuLoop;
use super::moves::vcpus_of;
use crate::gear1::Gear1;
use crate::machine::{Platform, Stays};

impl<P: Platform> CpuLoop<'_, P> {
    /// Sets the parameters of a VM's vCPUs on this CPU, if a change waits for that. After a refusal
    /// none of them has the new ones.
    pub(super) fn change_shares(&mut self, gear1: &mut impl Gear1, now: u64) {
        let machine = self.machine;
        let task = machine.shares.lock().task(self.cpu);
        let Some((change, share)) = task else {
            return;
        };
        // Only vCPUs that this CPU's policy knows: one that is on its way gets the new parameters
        // from the loop that takes it.
        let vcpus = self.moves.known();
        let of_vm = |vcpu: &_| {
            machine
                .config
                .vcpu(*vcpu)
                .is_some_and(|v| v.vm == change.vm)
        };
        let mut refused = None;
        for vcpu in vcpus_of(vcpus).filter(of_vm) {
            // A sum of budgets may exceed this CPU although each of them fits.
            if let Err(why) = self.scheduler.set(vcpu, &share, now) {
                refused = Some(Stays::Policy(why));
                break;
            }
        }
        if refused.is_some() {
            // The sum of the old ones fitted before, and no vCPU has come since.
            for vcpu in vcpus_of(vcpus).filter(of_vm) {
                let _ = self.scheduler.set(vcpu, &change.old, now);
            }
        }
        machine.changed_share(gear1, self.cpu, refused);
    }
}
