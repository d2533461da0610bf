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
    let mut claimed;
    let context = if cpu.data.is_loaded(id) {
        cpu.context()
    } else {
        claimed = machine::claim_context(id);
        claimed.as_deref_mut()
    };
    let Some(context) = context else { return };
    // SAFETY: `fp_owner` named the vCPU, whose context this is.
    unsafe { fp::save(&mut context.fp) };
    if has_sve && let Some(loaded) = machine::loadable(id) {
        // SAFETY: as above. `fp_access` is SVE's only of a vCPU whose VM has a length.
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
        // planted: a vCPU starts with the vectors of its former life
        // SAFETY: the vCPU is loaded here. The length is the VM's.
        unsafe { sve::reset(loaded.id, length) };
    }
    if data.fp_owner == Some(loaded.id) {
        data.fp_owner = None;
    }
}
