//! The registers of vCPUs that do not run, for people: where a guest was that ended, or is. Gear2
//! sees those of a life that has ended with `last-words`, and of one that lasts only with `dump`.
//!
//! A vCPU that is off keeps its registers in its context until its next start, which may be after
//! several lives of its VM: the context knows its life. A real-time vCPU, whose context never
//! leaves its CPU and which that CPU starts again without Gear2, leaves a copy when it turns off;
//! the copy is shown when that life has ended, also when the VM runs again.
//!
//! Requirements: G1-RUN-012.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gear1_abi::boot::RealTime;
use gear1_abi::call::vcpu_reg::{COUNT, FP, PER_CALL};
use gear1_abi::call::{Status, VcpuState};
use gear1_abi::id::{MAX_CPUS, VcpuId, VmId};

use crate::machine::{self, Cpu, Machine};
use crate::vcpu;

/// Registers of a real-time vCPU, as its CPU left them.
struct Copy {
    /// Life of the VM, by the number of starts; 0 while the registers change.
    life: AtomicU32,
    registers: [AtomicU64; COUNT],
}

/// Copies by CPU: a real-time VM's CPU has one vCPU.
static COPIES: [Copy; MAX_CPUS] = [const {
    Copy {
        life: AtomicU32::new(0),
        registers: [const { AtomicU64::new(0) }; COUNT],
    }
}; MAX_CPUS];

impl Copy {
    /// Keeps the registers of a life.
    fn store(&self, life: u32, registers: [u64; COUNT]) {
        self.life.store(0, Ordering::SeqCst);
        // Bound: 44 registers.
        for (word, value) in self.registers.iter().zip(registers) {
            word.store(value, Ordering::SeqCst);
        }
        self.life.store(life, Ordering::SeqCst);
    }

    /// Returns the registers of a life, unless the copy is of another one or changes meanwhile.
    fn load(&self, life: u32) -> Option<[u64; COUNT]> {
        let is_of_life = || self.life.load(Ordering::SeqCst) == life;
        if life == 0 || !is_of_life() {
            return None;
        }
        let mut registers = [0; COUNT];
        // Bound: 44 registers.
        for (register, word) in registers.iter_mut().zip(&self.registers) {
            *register = word.load(Ordering::SeqCst);
        }
        is_of_life().then_some(registers)
    }
}

/// Keeps the registers of this CPU's real-time vCPU, which has left its guest and is off.
pub(crate) fn keep(cpu: &mut Cpu) {
    let copy = cpu.index().select(&COPIES);
    if let Some((life, registers)) = vcpu::registers_here(cpu) {
        copy.store(life, registers);
    }
}

/// VCPU_REGS. Without the manifest's leave Gear2 sees no register; that is asked before anything is
/// looked at. A vCPU that runs is loaded on another CPU, which has its registers.
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
    let boot = machine::boot_vm(machine, vm);
    // planted: Gear2 reads registers that it is not to see
    if !boot.last_words && !boot.dump {
        return Err(Status::NotFound);
    }
    if boot.real_time != RealTime::No {
        let registers = of_real_time(vm, id).ok_or(Status::NotFound)?;
        return Ok(six(&registers, first as usize));
    }
    // SAFETY: the caller's condition.
    unsafe { of_guest(cpu, machine, vm, id, first as usize) }
}

/// Returns the first six of some registers, from an index on.
fn six(registers: &[u64], first: usize) -> [u64; PER_CALL] {
    let mut answer = [0; PER_CALL];
    let wanted = registers.get(first..).unwrap_or_default();
    // Bound: 6 registers.
    for (register, value) in answer.iter_mut().zip(wanted) {
        *register = *value;
    }
    answer
}

/// Returns six registers of a vCPU whose VM does not run, or which does not run itself if the
/// manifest has `dump` for the VM. Its CPU saves FP registers that it holds: as long as it may hold
/// some, no other CPU claims the context, without which they could not be saved.
///
/// # Safety
///
/// Gear2 has trapped on this CPU.
unsafe fn of_guest(
    cpu: &mut Cpu,
    machine: &Machine,
    vm: VmId,
    id: VcpuId,
    first: usize,
) -> Result<[u64; PER_CALL], Status> {
    let dump = machine::boot_vm(machine, vm).dump;
    if !dump && !has_ended(vm, id) {
        return Err(Status::WrongState);
    }
    if cpu.data.is_loaded(id) {
        // SAFETY: the caller's condition.
        unsafe { vcpu::unload(cpu, machine) };
    }
    let shared = machine::vcpu(id);
    if shared.owner_cpu() == cpu.index() {
        // planted: FP registers are told that a CPU still holds
        vcpu::release_fp(cpu, id);
        shared.note_saved_fp();
    } else if dump && !shared.has_saved_fp() {
        return Err(Status::Busy);
    }
    // A start takes the lock: no other CPU begins a life, and takes the registers, meanwhile.
    let inner = machine::lock_vm(vm);
    if !dump && !has_ended(vm, id) {
        return Err(Status::WrongState);
    }
    let context = machine::claim_context(id).ok_or(Status::Busy)?;
    // planted: Gear2 takes registers of a former life for the last one's
    if context.life != inner.starts {
        return Err(Status::NotFound);
    }
    Ok(match first.checked_sub(FP) {
        None => six(&context.registers(), first),
        Some(first) if dump => six(&context.fp.registers(), first),
        Some(_) => [0; PER_CALL],
    })
}

/// Tells whether a vCPU runs no more before its VM is started again.
fn has_ended(vm: VmId, id: VcpuId) -> bool {
    let runs = machine::running(vm).runs();
    // planted: Gear2 reads registers of a VM that runs
    !runs && machine::vcpu(id).state() == VcpuState::Off
}

/// Returns the registers of a real-time vCPU at the end of the VM's last life that has ended.
fn of_real_time(vm: VmId, id: VcpuId) -> Option<[u64; COUNT]> {
    let life = match machine::running(vm).read() {
        Some((starts, ..)) => starts.wrapping_sub(1),
        None => machine::lock_vm(vm).starts,
    };
    let copy = machine::vcpu(id).owner_cpu().select(&COPIES);
    copy.load(life)
}
