//! A guest's own address translation, asked of the hardware. The only place
//! with AT instructions (errata of A57 and A72 make them dangerous elsewhere:
//! here the guest's stage 2 is installed and stays so).
//!
//! A guest's tables may have been changed since it faulted, to lie where a read aborts: the walk
//! then takes an external abort at EL2, which counts as a translation that failed (`entry`).
//!
//! Requirements: G1-FLT-001, G1-FLT-007.

use crate::entry::gear1_translate;
use crate::regs::{PAR_EL1, Readable as _, Writeable as _};

/// Returns the IPA to which stage 1 of the guest that trapped maps `va`, or `None` when `va` is no
/// longer mapped. Keeps the guest's PAR_EL1.
pub fn stage1(va: u64, from_el0: bool) -> Option<u64> {
    let kept = PAR_EL1.get();
    let aborted = gear1_translate(va, from_el0.into()) != 0;
    let par = PAR_EL1.get();
    PAR_EL1.set(kept);
    let is_mapped = !aborted && !PAR_EL1::F.is_set(par);
    is_mapped.then_some(PAR_EL1::PA.read(par) << 12 | va & 0xfff)
}
