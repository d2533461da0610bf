//! Synchronous exceptions from guests and from Gear2: decode, dispatch.
//!
//! Requirements: G1-RUN-003.

use gear1_abi::call::Failure;
use gear1_arch::cpu::hcr;
use gear1_arch::entry::Resume;
use gear1_arch::regs::{HCR_EL2, Readable as _, Writeable as _};
use gear1_core::syndrome::{Syndrome, ec};

use crate::halt::{HaltReason, halt};
use crate::machine::Cpu;
use crate::{abort, gear2_call, guest_call, inject, supervise, sysreg, vcpu};

/// Entry from the synchronous vectors.
#[unsafe(no_mangle)]
extern "C" fn gear1_sync(cpu: &mut Cpu, esr: u64) -> Resume {
    let syndrome = Syndrome(esr);
    let Some(shared) = cpu.running() else {
        return of_gear2(cpu, syndrome);
    };
    match syndrome.class() {
        ec::HVC64 => guest_call::hvc(cpu, shared),
        ec::SYSREG => sysreg::access(cpu, syndrome, shared),
        ec::DATA_ABORT => abort::data(cpu, syndrome, shared),
        _ => other(cpu, syndrome),
    }
}

/// Handles a synchronous exception of Gear2.
#[inline(never)]
fn of_gear2(cpu: &mut Cpu, syndrome: Syndrome) -> Resume {
    let Some(machine) = cpu.data.machine else {
        halt(cpu, HaltReason::Inconsistent)
    };
    match (syndrome.class(), cpu.data.world.el1) {
        (ec::SVC64, _) | (ec::HVC64, true) => {
            gear2_call::dispatch(cpu, machine, syndrome.immediate())
        }
        _ => supervise::failed(cpu, machine, Failure::Fault),
    }
}

/// Handles exits of guests outside the fast path.
#[inline(never)]
fn other(cpu: &mut Cpu, syndrome: Syndrome) -> Resume {
    let Some(machine) = cpu.data.machine else {
        return Resume::Same;
    };
    match syndrome.class() {
        ec::SMC64 => guest_call::smc(cpu),
        ec::WFX if !syndrome.is_wfxt() => guest_call::wait(cpu, machine, syndrome),
        ec::FP => vcpu::take_fp(cpu),
        ec::INSTRUCTION_ABORT => abort::instruction(cpu, machine, syndrome),
        _ => inject::undefined(cpu, machine),
    }
}

/// Entry from the SError vectors: reflected to the guest that runs, since an
/// asynchronous error cannot be told apart from one it caused. Gear2's is a fault of Gear2's.
#[unsafe(no_mangle)]
extern "C" fn gear1_serror(cpu: &mut Cpu) -> Resume {
    if cpu.is_gear2_current()
        && let Some(machine) = cpu.data.machine
    {
        return supervise::failed(cpu, machine, Failure::Fault);
    }
    HCR_EL2.set(HCR_EL2.get() | hcr::VSE);
    Resume::Same
}
