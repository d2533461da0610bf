//! TLB maintenance, scoped to what changed (Arm ARM D8.13).
//!
//! Requirements: G1-MEM-014, G1-MEM-022, G1-RT-008.

use core::arch::asm;

use crate::barrier;

/// Invalidates everything that the VMID in VTTBR_EL2 cached, on every CPU of
/// the inner shareable domain, and waits for it.
pub fn invalidate_current_vmid() {
    barrier::dsb_ishst();
    // SAFETY: TLBI only drops cached translations; the walks that follow read the
    // tables, which the DSB above made visible.
    // planted: a lost page stays in other CPUs' TLBs, which QEMU does not show
    // planted: a lost page stays in other CPUs' TLBs
    unsafe { asm!("tlbi vmalls12e1is", options(nostack, preserves_flags)) };
    barrier::dsb_ish();
    barrier::isb();
}

/// Invalidates all stage-1 and stage-2 entries of EL1 and EL0 on this CPU, and its instruction
/// cache.
pub fn invalidate_guests_local() {
    barrier::dsb_nsh();
    // SAFETY: as above.
    unsafe { asm!("tlbi alle1", "ic iallu", options(nostack, preserves_flags)) };
    barrier::dsb_nsh();
    barrier::isb();
}

/// Invalidates the stage-1 entries of the VMID in VTTBR_EL2 on this CPU, and its instruction cache,
/// which a vCPU whose MMU is off fills from memory that another's clean to the point of unification
/// has not reached.
pub fn invalidate_vcpu_local() {
    barrier::dsb_nsh();
    // SAFETY: as above; dropping cached instructions changes no memory.
    unsafe {
        asm!(
            "tlbi vmalle1",
            "ic iallu",
            options(nostack, preserves_flags)
        )
    };
    barrier::dsb_nsh();
    barrier::isb();
}

/// Invalidates what this CPU cached for a page of EL2.
pub fn invalidate_el2_page(va: u64) {
    barrier::dsb_nsh();
    // SAFETY: as above; the operand is the page number (VA[55:12]).
    unsafe { asm!("tlbi vae2, {}", in(reg) va >> 12, options(nostack, preserves_flags)) };
    barrier::dsb_nsh();
    barrier::isb();
}

/// Invalidates all instruction caches to the point of unification, inner shareable. For init alone:
/// later it would cost real-time VMs theirs.
#[cfg(feature = "boot")]
pub fn invalidate_instruction_caches() {
    // SAFETY: dropping cached instructions changes no memory.
    unsafe { asm!("ic ialluis", options(nostack, preserves_flags)) };
    barrier::dsb_ish();
    barrier::isb();
}
