//! Messages between vCPUs (FF-A direct requests and responses): the machine behind
//! `gear1_core::ffa::message`.
//!
//! [`MESSAGES`] is taken after a VM's lock. Its longest hold is a look at all vCPUs.
//!
//! Requirements: G1-MEM-020.

use gear1_abi::call::VmState;
use gear1_abi::id::{VcpuId, VmId};
use gear1_abi::regs::Regs;
use gear1_arch::sync::TicketLock;
use gear1_core::ffa::message::{Messages, Next};
use gear1_core::vcpu::Requests;

use crate::kick;
use crate::machine::{self, Cpu, Loaded, Machine};

static MESSAGES: TicketLock<Messages> = TicketLock::new(Messages::new());

/// Makes a call about messages. Under the lock of the VM, whose end forgets what came before.
pub(crate) fn call(machine: &Machine, loaded: &Loaded, peers: u16, regs: &Regs) -> Next {
    let vm = machine::lock_vm(loaded.vm);
    if vm.state == VmState::Running {
        let mut messages = MESSAGES.lock();
        messages.call(&machine.vcpus, peers, loaded.id, regs)
    } else {
        // It does not return from this.
        Next::Yield
    }
}

/// Gives the loaded vCPU, which is entered next, what ends the call that it is blocked in.
#[inline(never)]
pub(crate) fn resume(cpu: &mut Cpu, machine: &Machine, loaded: &Loaded) {
    // First, so that a message that comes now is heard of again.
    loaded.shared.take(Requests::MESSAGE);
    if loaded.shared.take(Requests::AWAITS) {
        let regs = MESSAGES.lock().resume(&machine.vcpus, loaded.id);
        if let Some(context) = cpu.context() {
            context.frame.set_result(regs);
        }
    }
}

/// Ends the messages of vCPUs, bit per vCPU, that are off from now on. Their VM's lock is held.
#[inline(never)]
pub(crate) fn end(cpu: &Cpu, machine: &Machine, vm: VmId, gone: u32) {
    if machine::boot_vm(machine, vm).peers == 0 {
        return;
    }
    let mut notified = MESSAGES.lock().end(gone);
    // Bound: MAX_VCPUS (32).
    while let Some(id) = VcpuId::from_reg(notified.trailing_zeros().into()) {
        notified &= notified.wrapping_sub(1);
        kick::request(cpu, machine, id, Requests::MESSAGE);
    }
}
