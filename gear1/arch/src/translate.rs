//! A guest's own address translation, asked of the hardware. The only place
//! with AT instructions (errata of A57 and A72 make them dangerous elsewhere:
//! here the guest's stage 2 is installed and stays so).
//!
//! Requirements: G1-FLT-001.

use core::arch::asm;

use crate::barrier;
use crate::regs::{PAR_EL1, Readable as _, Writeable as _};

/// PAR_EL1.F: the translation faulted.
const FAULT: u64 = 1;
const ADDRESS: u64 = 0xffff_ffff_f000;

/// Returns the IPA to which stage 1 of the guest that trapped maps `va`, or
/// `None` when it maps it no more. The guest's PAR_EL1 is kept.
pub fn stage1(va: u64, from_el0: bool) -> Option<u64> {
    let kept = PAR_EL1.get();
    if from_el0 {
        // SAFETY: AT changes nothing but PAR_EL1, which is put back below.
        unsafe { asm!("at s1e0r, {}", in(reg) va, options(nostack, preserves_flags)) };
    } else {
        // SAFETY: as above.
        unsafe { asm!("at s1e1r, {}", in(reg) va, options(nostack, preserves_flags)) };
    }
    barrier::isb();
    let par = PAR_EL1.get();
    PAR_EL1.set(kept);
    (par & FAULT == 0).then_some(par & ADDRESS | va & 0xfff)
}
