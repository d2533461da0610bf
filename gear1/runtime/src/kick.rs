//! Notifications between CPUs: requests to vCPUs, wake-ups for a loop, kicks.
//!
//! Requirements: G1-VCPU-001.

use gear1_abi::boot::IrqOwner;
use gear1_abi::id::{CpuIndex, VcpuId, VmId};
use gear1_arch::cpu;
use gear1_core::vcpu::{Notify, Requests, VcpuShared};
use gear1_core::vgic::Kicks;

use crate::gic::{Gic, HostGic};
use crate::machine::{self, Cpu, Machine};

/// Kicks the vCPUs that a change of the virtual GIC concerns: each flushes its list registers. The
/// VM's lock is held. `cpu` is the one that runs this; its own running vCPU is flushed by the
/// caller.
pub(crate) fn kick_vcpus(cpu: &Cpu, machine: &Machine, vm: VmId, kicks: Kicks) {
    // Bound: 8 vCPUs.
    for index in kicks.iter() {
        if let Some(id) = machine::vcpu_of(machine, vm, index.index()) {
            request(cpu, machine, id, Requests::IRQ);
        }
    }
}

/// Raises requests to a vCPU, and wakes or kicks the CPU that must handle them.
pub(crate) fn request(cpu: &Cpu, machine: &Machine, id: VcpuId, what: Requests) {
    notify(cpu, machine, id, machine::vcpu(id).request(what));
}

/// Wakes or kicks the CPU that must handle a vCPU's new requests.
pub(crate) fn notify(cpu: &Cpu, machine: &Machine, id: VcpuId, notify: Notify) {
    match notify {
        Notify::Kick => kick_owner(cpu, machine, id),
        Notify::Wake => wake(cpu, machine, id),
        Notify::Nobody => {}
    }
}

/// Tells the loop of the vCPU's owner CPU that it became runnable.
///
/// The owner CPU is read once: the vCPU may move to another CPU meanwhile, and a signal that one
/// CPU gets and the interrupt that another one gets would leave the first idle beside its signal.
pub(crate) fn wake(cpu: &Cpu, machine: &Machine, id: VcpuId) {
    let shared = machine::vcpu(id);
    shared.begin_stolen(cpu::now());
    let target = shared.owner_cpu();
    machine::cpu_shared(target).wake(id.index());
    kick_cpu(cpu, machine, target);
}

/// Interrupts the CPU that runs a vCPU of an ordinary VM, which is another CPU than the caller's.
#[inline(always)]
pub(crate) fn kick_running(machine: &Machine, vcpu: &VcpuShared) {
    match *vcpu.owner_cpu().select(&machine.kicks) {
        0 => {}
        kick => Gic::send_sgi(kick),
    }
}

fn kick_owner(cpu: &Cpu, machine: &Machine, id: VcpuId) {
    // planted: no longer: a kick goes to one CPU
    // planted: no longer: a kick goes to one CPU, beside Linux
    kick_cpu(cpu, machine, machine::vcpu(id).owner_cpu());
}

/// Tells Gear2's first loop that a real-time vCPU's VM has ended, or was started anew.
pub(crate) fn notify_gear2(cpu: &Cpu, machine: &Machine, id: VcpuId) {
    if let Some(target) = CpuIndex::new(machine::irq_cpu(machine.boot, IrqOwner::GEAR2)) {
        machine::cpu_shared(target).wake(id.index());
        kick_cpu(cpu, machine, target);
    }
}

/// Interrupts another CPU so that it checks its pending requests. A real-time VM's CPU is kicked
/// only for a change of that VM's own life (G1-RT-008).
pub(crate) fn kick_cpu(cpu: &Cpu, machine: &Machine, target: CpuIndex) {
    if target == cpu.index() {
        return;
    }
    let other = target.select(&machine.boot.cpus);
    match *target.select(&machine.kicks) {
        // SAFETY: a CPU of a real-time VM's is one of the hand-over's.
        0 if other.real_time => unsafe { Gic::disturb(target, other.mpidr) },
        0 => {}
        kick => Gic::send_sgi(kick),
    }
}
