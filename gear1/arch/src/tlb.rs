//! TLB maintenance, scoped to what changed (Arm ARM D8.13).
//!
//! Requirements: G1-MEM-014.

use core::arch::asm;

use crate::barrier;

/// Invalidates everything that the VMID in VTTBR_EL2 cached, on every CPU of
/// the inner shareable domain, and waits for it.
pub fn invalidate_current_vmid() {
    barrier::dsb_ishst();
    // SAFETY: TLBI only drops cached translations; the walks that follow read the
    // tables, which the DSB above made visible.
    unsafe { asm!("tlbi vmalls12e1is", options(nostack, preserves_flags)) };
    barrier::dsb_ish();
    barrier::isb();
}

/// The same for every VMID: for a VM whose VMID is not in VTTBR_EL2, where installing it would let
/// another VM's stage 1 be walked under it (errata 1319367, 1319537).
pub fn invalidate_all_vmids() {
    barrier::dsb_ishst();
    // SAFETY: as above.
    unsafe { asm!("tlbi alle1is", options(nostack, preserves_flags)) };
    barrier::dsb_ish();
    barrier::isb();
}

/// Invalidates all stage-1 and stage-2 entries of EL1 and EL0 on this CPU.
pub fn invalidate_guests_local() {
    barrier::dsb_nsh();
    // SAFETY: as above.
    unsafe { asm!("tlbi alle1", options(nostack, preserves_flags)) };
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

/// Invalidates all instruction caches to the point of unification, inner shareable.
pub fn invalidate_instruction_caches() {
    // SAFETY: dropping cached instructions changes no memory.
    unsafe { asm!("ic ialluis", options(nostack, preserves_flags)) };
    barrier::dsb_ish();
    barrier::isb();
}
