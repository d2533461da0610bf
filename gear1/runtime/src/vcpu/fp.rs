//! FP, SIMD and SVE registers, which move when another vCPU uses them.
//!
//! The registers stay on a CPU while other vCPUs that use none run there, so a switch between vCPUs
//! moves nothing. [`release_fp`] saves them before the vCPU goes to another CPU.
//!
//! Requirements: G1-RUN-004, G1-CPU-018.

use gear1_abi::exit::ExitReason;
use gear1_abi::id::VcpuId;
use gear1_arch::cpu::FpAccess;
use gear1_arch::fp::FpOwner;
use gear1_arch::{fp, sve};
use gear1_core::context::{FpState, VcpuContext};

use crate::machine::{self, Cpu, CpuData, Guest, Loaded};

/// Saves the FP registers that this CPU holds for `id`, if it does.
pub(crate) fn release_fp(cpu: &mut Cpu, id: VcpuId) {
    if !cpu.data.fp.is(id) {
        return;
    }
    let has_sve = cpu.data.fp.has_sve();
    cpu.data.fp = FpOwner::NOBODY;
    let mut claimed;
    let context = if cpu.data.is_loaded(id) {
        cpu.context()
    } else {
        claimed = machine::claim_context(id);
        claimed.as_deref_mut()
    };
    let Some(context) = context else { return };
    // SAFETY: the owner is the vCPU, whose context this is.
    unsafe { fp::save(&mut context.fp) };
    if has_sve && let Some(loaded) = machine::loadable(id) {
        // SAFETY: as above. SVE is open only for a vCPU whose VM has a length.
        unsafe { sve::save(id, loaded.boot.sve_bits) };
    }
}

/// A guest's first FP use since another's: moves the registers. The trapped
/// instruction runs again.
#[inline(never)]
pub(crate) fn take_fp(guest: Guest<'_>) {
    let loaded = guest.loaded;
    if let Some(owner) = guest.cpu.data.fp.vcpu() {
        release_fp(guest.cpu, owner);
    }
    if let (Some(context), _, data) = guest.cpu.parts() {
        loaded.shared.count(ExitReason::Fp);
        // planted: FP registers are not switched
        // SAFETY: the loaded guest trapped. The registers are nobody's, or were saved above.
        unsafe { fp::restore(&context.fp) };
        data.fp.give(loaded.id, FpAccess::FP);
        let length = loaded.boot.sve_bits;
        if length != 0 {
            // SAFETY: as above. The length is the VM's.
            unsafe { sve::restore(loaded.id, length) };
            data.fp.give(loaded.id, FpAccess::SVE);
        }
    }
}

/// Sets the registers of the loaded vCPU to those of its reset, in memory: its next use traps.
pub(super) fn reset(data: &mut CpuData, context: &mut VcpuContext, loaded: &Loaded) {
    context.fp = FpState::ZERO;
    let length = loaded.boot.sve_bits;
    if length != 0 {
        // planted: a vCPU starts with the vectors of its former life
        // SAFETY: the vCPU is loaded here. The length is the VM's.
        unsafe { sve::reset(loaded.id, length) };
    }
    if data.fp.is(loaded.id) {
        data.fp = FpOwner::NOBODY;
    }
}
