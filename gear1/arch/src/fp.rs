//! FP and SIMD registers. Gear1 is built without them, so they hold the last
//! FP user's values until somebody else needs them.
//!
//! Requirements: G1-RUN-004.

use core::arch::asm;
use core::mem::offset_of;

use gear1_abi::id::VcpuId;
use gear1_core::context::FpState;

use crate::barrier;
use crate::cpu::{FpAccess, set_fp_access};

/// vCPU whose values the FP registers of a CPU hold, and what follows from it for the loaded one.
#[derive(Clone, Copy, Debug)]
pub struct FpOwner {
    vcpu: Option<VcpuId>,
    /// Registers that the owner reaches without a trap.
    access: FpAccess,
    /// Registers that the loaded vCPU reaches without a trap: those, if it is the owner. Kept, as
    /// each entry of a guest asks, and the answer seldom changes.
    open: FpAccess,
}

impl FpOwner {
    /// Of a CPU that is not up; zero.
    pub const UNSET: Self = Self {
        vcpu: None,
        access: FpAccess::UNSET,
        open: FpAccess::UNSET,
    };

    /// The registers are nobody's.
    pub const NOBODY: Self = Self {
        vcpu: None,
        access: FpAccess::NONE,
        open: FpAccess::NONE,
    };

    /// Returns the registers that the loaded vCPU reaches without a trap.
    #[inline(always)]
    #[must_use]
    pub const fn open(&self) -> FpAccess {
        self.open
    }

    /// Another vCPU is loaded.
    #[inline(always)]
    pub fn note_loaded(&mut self, id: VcpuId) {
        // planted: FP is open for who does not own it
        let is_owner = self.vcpu == Some(id);
        self.open = if is_owner {
            self.access
        } else {
            FpAccess::NONE
        };
    }

    /// The registers are those of the loaded vCPU, which is `id`, from now on.
    pub const fn give(&mut self, id: VcpuId, access: FpAccess) {
        *self = Self {
            vcpu: Some(id),
            access,
            open: access,
        };
    }

    /// Returns the vCPU, if the registers are somebody's.
    #[must_use]
    pub const fn vcpu(&self) -> Option<VcpuId> {
        self.vcpu
    }

    /// Tells whether SVE is open to the owner.
    #[must_use]
    pub fn has_sve(&self) -> bool {
        self.access == FpAccess::SVE
    }

    /// Tells whether the registers are this vCPU's.
    #[must_use]
    pub fn is(&self, id: VcpuId) -> bool {
        self.vcpu == Some(id)
    }
}

/// Stores the FP registers of this CPU. FP traps from here on.
///
/// # Safety
///
/// The registers hold the values of the vCPU that `state` belongs to: else one guest reads another
/// one's.
pub unsafe fn save(state: &mut FpState) {
    set_fp_access(FpAccess::FP);
    barrier::isb();
    // SAFETY: stores 32 x 16 bytes and two words at `state`, which is exclusively
    // ours and has exactly these fields at these offsets; FP is open; no FP register
    // is live in this soft-float image.
    unsafe {
        asm!(
            ".arch_extension fp",
            ".arch_extension simd",
            "stp q0, q1, [{s}, #0]",
            "stp q2, q3, [{s}, #32]",
            "stp q4, q5, [{s}, #64]",
            "stp q6, q7, [{s}, #96]",
            "stp q8, q9, [{s}, #128]",
            "stp q10, q11, [{s}, #160]",
            "stp q12, q13, [{s}, #192]",
            "stp q14, q15, [{s}, #224]",
            "stp q16, q17, [{s}, #256]",
            "stp q18, q19, [{s}, #288]",
            "stp q20, q21, [{s}, #320]",
            "stp q22, q23, [{s}, #352]",
            "stp q24, q25, [{s}, #384]",
            "stp q26, q27, [{s}, #416]",
            "stp q28, q29, [{s}, #448]",
            "stp q30, q31, [{s}, #480]",
            "mrs {t}, fpsr",
            "str {t}, [{s}, #{fpsr}]",
            "mrs {t}, fpcr",
            "str {t}, [{s}, #{fpcr}]",
            s = in(reg) state,
            t = out(reg) _,
            fpsr = const offset_of!(FpState, fpsr),
            fpcr = const offset_of!(FpState, fpcr),
            options(nostack, preserves_flags),
        );
    }
    set_fp_access(FpAccess::NONE);
}

/// Loads the FP registers of this CPU, and opens FP to what runs next.
///
/// # Safety
///
/// The vCPU that `state` belongs to trapped and runs next, and the values that the registers held
/// are saved.
pub unsafe fn restore(state: &FpState) {
    set_fp_access(FpAccess::FP);
    barrier::isb();
    // SAFETY: loads 32 x 16 bytes and two words from `state`, which has exactly
    // these fields at these offsets; FP is open; no FP register is live in this image.
    unsafe {
        asm!(
            ".arch_extension fp",
            ".arch_extension simd",
            "ldp q0, q1, [{s}, #0]",
            "ldp q2, q3, [{s}, #32]",
            "ldp q4, q5, [{s}, #64]",
            "ldp q6, q7, [{s}, #96]",
            "ldp q8, q9, [{s}, #128]",
            "ldp q10, q11, [{s}, #160]",
            "ldp q12, q13, [{s}, #192]",
            "ldp q14, q15, [{s}, #224]",
            "ldp q16, q17, [{s}, #256]",
            "ldp q18, q19, [{s}, #288]",
            "ldp q20, q21, [{s}, #320]",
            "ldp q22, q23, [{s}, #352]",
            "ldp q24, q25, [{s}, #384]",
            "ldp q26, q27, [{s}, #416]",
            "ldp q28, q29, [{s}, #448]",
            "ldp q30, q31, [{s}, #480]",
            "ldr {t}, [{s}, #{fpsr}]",
            "msr fpsr, {t}",
            "ldr {t}, [{s}, #{fpcr}]",
            "msr fpcr, {t}",
            s = in(reg) state,
            t = out(reg) _,
            fpsr = const offset_of!(FpState, fpsr),
            fpcr = const offset_of!(FpState, fpcr),
            options(nostack, preserves_flags),
        );
    }
}
