//! How a running VM ends: what is noted of an end by itself, and how its vCPUs are asked to leave.
//! A real-time VM whose heartbeat stops ends here too, by the CPU that looks at the heartbeat.
//!
//! Requirements: G1-RT-005, G1-RT-006, G1-SUP-004.

use gear1_abi::boot::{IrqOwner, RealTime};
use gear1_abi::call::{VcpuState, VmState};
use gear1_abi::event::{Ended, Event};
use gear1_abi::id::{MAX_VMS, VmId};
use gear1_abi::record::RecordId;
use gear1_arch::{cpu, heartbeat};
use gear1_core::heartbeat::{Beat, LOOKS};

use crate::machine::{self, Cpu, Machine, VmInner};
use crate::{kick, log, messages, vm_state};

/// Notes how a running VM ends by itself, and whether its own CPU starts the VM again (G1-RT-006).
/// Gear2 asks later, by VM_STATE; a restarted Gear2 finds the note as well.
pub(crate) fn note(machine: &Machine, id: VmId, vm: &mut VmInner, event: Event) {
    let end = if let Event::VmEnd(_, how) = event {
        how.into()
    } else {
        Ended::Fault
    };
    note_end(machine, id, vm, end);
}

fn note_end(machine: &Machine, id: VmId, vm: &mut VmInner, end: Ended) {
    vm.end = end;
    vm.ends = vm.ends.end_life(end);
    vm.restarts = vm_state::restarts(machine, id, end);
}

/// Turns off what does not run, asks the rest to leave. The VM's lock is held.
///
/// [`machine::running`] ends first: who reads the state without the lock must not find a running
/// VM whose vCPUs are off.
pub(crate) fn stop_vcpus(cpu: &Cpu, machine: &Machine, id: VmId, vm: &mut VmInner) {
    vm.state = VmState::Stopping;
    machine::running(id).end();
    let count = usize::from(machine::boot_vm(machine, id).vcpu_count);
    // Bound: MAX_VCPUS_PER_VM (8).
    for index in 0..count {
        let Some(vcpu_id) = machine::vcpu_of(machine, id, index) else {
            continue;
        };
        let notify = machine::vcpu(vcpu_id).stop();
        // With pass-through a kick would be the guest's own interrupt: `vm_state::freeze` follows.
        if machine::boot_vm(machine, id).real_time != RealTime::PassThrough {
            kick::notify(cpu, machine, vcpu_id, notify);
        }
    }
    messages::end(cpu, machine, id, vcpu_bits(machine, id));
    // planted: no longer: who is stopped loses its own memory
    vm_state::freeze(cpu, machine, id);
}

/// Returns the VM's vCPUs, a bit for each `VcpuId`: they have consecutive identifiers, from the
/// VM's first on.
fn vcpu_bits(machine: &Machine, id: VmId) -> u32 {
    let boot = machine::boot_vm(machine, id);
    let lowest = 1_u32.wrapping_shl(boot.vcpu_count.into()).wrapping_sub(1);
    lowest.wrapping_shl(boot.first_vcpu.into())
}

/// Returns the VM whose first vCPU has the CPU numbered `owner`, and the time between two looks at
/// the VM's heartbeat, if there are both and this CPU is the one that looks: Gear2's first. No CPU
/// of a real-time VM looks, as it may have no timer of Gear1's (G1-RT-002).
pub(crate) fn to_look_at(cpu: &Cpu, machine: &Machine, owner: usize) -> Option<(VmId, u64)> {
    if machine::irq_cpu(machine.boot, IrqOwner::GEAR2) != cpu.index().index() {
        return None;
    }
    // Bound: MAX_VMS (16).
    for number in 0..MAX_VMS {
        let (id, vm) = (VmId::new(number)?, IrqOwner::vm(number)?);
        let period = machine::boot_vm(machine, id).heartbeat;
        // The manifest gives no CPU to two real-time VMs.
        if period != 0 && machine::irq_cpu(machine.boot, vm) == owner {
            return Some((id, (period / LOOKS).max(1)));
        }
    }
    None
}

/// Looks at the heartbeat of the VM whose first vCPU has the CPU numbered `owner`. Returns the time
/// of the next look.
///
/// Without a lock, unless the VM has to end: a real-time VM waits for nobody (G1-RT-001).
pub(crate) fn look(cpu: &Cpu, machine: &Machine, owner: usize) -> Option<u64> {
    let (id, interval) = to_look_at(cpu, machine, owner)?;
    let now = cpu::now();
    if let Some((starts, ..)) = machine::running(id).read() {
        // SAFETY: a VM of the manifest runs.
        let word = unsafe { heartbeat::word(id) };
        let period = machine::boot_vm(machine, id).heartbeat;
        let state = machine::heartbeat(id);
        if state.look(starts, word, now, period) == Beat::Silent {
            end_silent(cpu, machine, id, starts, word);
        }
    }
    Some(now.saturating_add(interval))
}

/// Ends a VM whose heartbeat has stopped, as after a fault, unless its life has ended since the
/// look.
#[inline(never)]
fn end_silent(cpu: &Cpu, machine: &Machine, id: VmId, starts: u32, word: u64) {
    #[cfg(feature = "check-locks")]
    gear1_arch::confine::open(machine::vm(id));
    let mut vm = machine::lock_vm(id);
    if vm.state != VmState::Running || vm.starts != starts {
        #[cfg(feature = "check-locks")]
        if vm.state == VmState::Running {
            gear1_arch::confine::close(machine::vm(id));
        }
        return;
    }
    log::log(cpu.index(), RecordId::VmSilent, [id.reg(), word, 0]);
    machine::note_silent(id, starts);
    note_end(machine, id, &mut vm, Ended::Fault);
    vm.is_left = vm.restarts;
    stop_vcpus(cpu, machine, id, &mut vm);
    wake_cpus(cpu, machine, id);
    drop(vm);
    if let Some(first) = machine::vcpu_of(machine, id, 0) {
        kick::notify_gear2(cpu, machine, first);
    }
}

/// Wakes the CPUs of a real-time VM that wait at EL2: one of them starts the VM again. Those inside
/// the guest leave it by the stop. The VM's lock is held, so that no kick outlives the wait
/// (G1-RT-007).
fn wake_cpus(cpu: &Cpu, machine: &Machine, id: VmId) {
    // Bound: MAX_VCPUS_PER_VM (8).
    for index in 0..usize::from(machine::boot_vm(machine, id).vcpu_count) {
        if let Some(vcpu) = machine::vcpu_of(machine, id, index)
            && machine::vcpu(vcpu).state() == VcpuState::Off
        {
            kick::kick_cpu(cpu, machine, machine::vcpu(vcpu).owner_cpu());
        }
    }
}
