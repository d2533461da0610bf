//! The registers of vCPUs that are off, for people: where a guest was that ended. Gear2 sees those
//! of a VM whose manifest says so, and of no life that lasts.
//!
//! A vCPU that is off keeps its registers in its context until its next start. A real-time vCPU,
//! whose context never leaves its CPU and which that CPU starts again without Gear2, leaves a copy
//! when its VM ends; the copy is there also when the VM runs again.
//!
//! Requirements: G1-RUN-012.

use core::sync::atomic::{AtomicU64, Ordering};

use gear1_abi::boot::RealTime;
use gear1_abi::call::vcpu_reg::{COUNT, PER_CALL};
use gear1_abi::call::{Status, VcpuState};
use gear1_abi::id::{MAX_CPUS, VcpuId, VmId};

use crate::machine::{self, Cpu, Machine};
use crate::vcpu;

/// Copies by CPU: a real-time VM's CPU has one vCPU.
static COPIES: [[AtomicU64; COUNT]; MAX_CPUS] =
    [const { [const { AtomicU64::new(0) }; COUNT] }; MAX_CPUS];

/// Keeps the registers of this CPU's real-time vCPU, which has left its guest, if its VM has ended.
pub(crate) fn keep(cpu: &mut Cpu, vm: VmId) {
    if machine::running(vm).runs() {
        return;
    }
    let copy = cpu.index().select(&COPIES);
    let Some(registers) = vcpu::registers_here(cpu) else {
        return;
    };
    // Bound: 42 registers.
    for (word, value) in copy.iter().zip(registers) {
        word.store(value, Ordering::Relaxed);
    }
}

/// VCPU_REGS. Of a life that lasts, Gear2 sees no register; that is asked before anything is looked
/// at.
///
/// # Safety
///
/// Gear2 has trapped on this CPU.
pub(crate) unsafe fn answer(
    cpu: &mut Cpu,
    machine: &Machine,
    id: VcpuId,
    first: u64,
) -> Result<[u64; PER_CALL], Status> {
    let (vm, _) = *id.select(&machine.vcpus);
    let shared = machine::vcpu(id);
    let boot = machine::boot_vm(machine, vm);
    // planted: Gear2 reads registers that it is not to see
    if !boot.last_words {
        return Err(Status::NotFound);
    }
    let registers = if boot.real_time == RealTime::No {
        // planted: Gear2 reads registers of a VM that runs
        if machine::running(vm).runs() || shared.state() != VcpuState::Off {
            return Err(Status::WrongState);
        }
        if cpu.data.is_loaded(id) {
            // SAFETY: the caller's condition.
            unsafe { vcpu::unload(cpu, machine) };
        }
        machine::claim_context(id).ok_or(Status::Busy)?.registers()
    } else {
        let copy = shared.owner_cpu().select(&COPIES);
        let mut registers = [0; COUNT];
        // Bound: 42 registers.
        for (register, word) in registers.iter_mut().zip(copy) {
            *register = word.load(Ordering::Relaxed);
        }
        registers
    };
    let wanted = registers.get(first as usize..).unwrap_or_default();
    let mut answer = [0; PER_CALL];
    // Bound: 6 registers.
    for (register, value) in answer.iter_mut().zip(wanted) {
        *register = *value;
    }
    Ok(answer)
}
