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
use crate::{abort, gear2_call, guest_call, supervise, sysreg, vcpu};

/// Entry from the synchronous vectors.
#[unsafe(no_mangle)]
extern "C" fn gear1_sync(cpu: &mut Cpu, esr: u64) -> Resume {
    let Some(machine) = cpu.data.machine else {
        halt(cpu, HaltReason::Inconsistent)
    };
    let syndrome = Syndrome(esr);
    match syndrome.class() {
        // A guest's SVC stays in it: this is Gear2 at EL0.
        ec::SVC64 => gear2_call::dispatch(cpu, machine, syndrome.immediate()),
        ec::HVC64 => guest_call::hvc(cpu, machine, syndrome),
        _ if cpu.is_gear2_current() => supervise::failed(cpu, machine, Failure::Fault),
        ec::DATA_ABORT => abort::data(cpu, machine, syndrome),
        ec::SYSREG => sysreg::access(cpu, machine, syndrome),
        ec::SMC64 => guest_call::smc(cpu, machine),
        ec::WFX if !syndrome.is_wfxt() => guest_call::wait(cpu, machine, syndrome),
        ec::FP => vcpu::take_fp(cpu),
        ec::INSTRUCTION_ABORT => abort::instruction(cpu, machine, syndrome),
        _ => abort::undefined(cpu, machine),
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
