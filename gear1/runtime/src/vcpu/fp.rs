//! FP, SIMD and SVE registers, which move when another vCPU uses them.
//!
//! The registers stay on a CPU while other vCPUs that use none run there, so a switch between vCPUs
//! moves nothing. [`release_fp`] saves them before the vCPU goes to another CPU.
//!
//! Requirements: G1-RUN-004, G1-CPU-018.

use gear1_abi::exit::ExitReason;
use gear1_abi::id::VcpuId;
use gear1_arch::cpu::FpAccess;
use gear1_arch::{fp, sve};
use gear1_core::context::{FpState, VcpuContext};

use crate::machine::{self, Cpu, CpuData, Guest, Loaded};

/// Saves the FP registers that this CPU holds for `id`, if it does.
pub(crate) fn release_fp(cpu: &mut Cpu, id: VcpuId) {
    if cpu.data.fp_owner != Some(id) {
        return;
    }
    cpu.data.fp_owner = None;
    let has_sve = cpu.data.fp_access == FpAccess::SVE;
    if cpu.data.is_loaded(id) {
        if let Some(context) = cpu.context() {
            // SAFETY: `fp_owner` named the vCPU, which is the loaded one.
            unsafe { save(context, id, has_sve) };
        }
    } else if let Some(mut context) = machine::claim_context(id) {
        // SAFETY: `fp_owner` named the vCPU, whose context this is.
        unsafe { save(&mut context, id, has_sve) };
    }
}

/// Saves the FP registers, and those of SVE if the VM has them.
///
/// # Safety
///
/// The registers hold the values of the vCPU, whose context this is.
#[inline(always)]
unsafe fn save(context: &mut VcpuContext, id: VcpuId, has_sve: bool) {
    // SAFETY: the caller's condition.
    unsafe { fp::save(&mut context.fp) };
    if has_sve && let Some(loaded) = machine::loadable(id) {
        // SAFETY: the caller's condition. `fp_access` is SVE's only for a VM that has a length.
        unsafe { sve::save(id, loaded.boot.sve_bits) };
    }
}

/// A guest's first FP use since another's: moves the registers. The trapped
/// instruction runs again.
#[inline(never)]
pub(crate) fn take_fp(guest: Guest<'_>) {
    let loaded = guest.loaded;
    if let Some(owner) = guest.cpu.data.fp_owner {
        release_fp(guest.cpu, owner);
    }
    if let (Some(context), _, data) = guest.cpu.parts() {
        loaded.shared.count(ExitReason::Fp);
        // planted: FP registers are not switched
        // SAFETY: the loaded guest trapped. The registers are nobody's, or were saved above.
        unsafe { fp::restore(&context.fp) };
        data.fp_owner = Some(loaded.id);
        data.fp_access = FpAccess::FP;
        let length = loaded.boot.sve_bits;
        if length != 0 {
            // SAFETY: as above. The length is the VM's.
            unsafe { sve::restore(loaded.id, length) };
            data.fp_access = FpAccess::SVE;
        }
    }
}

/// Sets the registers of the loaded vCPU to those of its reset, in memory: its next use traps.
pub(super) fn reset(data: &mut CpuData, context: &mut VcpuContext, loaded: &Loaded) {
    context.fp = FpState::ZERO;
    let length = loaded.boot.sve_bits;
    if length != 0 {
        // planted: a VM starts with the vectors of its former life
        // SAFETY: the vCPU is loaded here. The length is the VM's.
        unsafe { sve::reset(loaded.id, length) };
    }
    if data.fp_owner == Some(loaded.id) {
        data.fp_owner = None;
    }
}
