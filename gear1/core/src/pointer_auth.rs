//! Pointer authentication (FEAT_PAuth, Arm ARM D8.10) of VMs that the manifest gives it to: the keys,
//! which move with the vCPU, and the fields that show the feature.
//!
//! Requirements: G1-CPU-015.

use crate::idregs::IdReg;

/// Bit of [`VcpuContext::features`](crate::context::VcpuContext::features): the VM has pointer
/// authentication. Beside it there are those of [`monitors`](crate::monitors).
pub const POINTER_AUTH: u64 = 4;

/// The low and the high half of the keys A and B of instructions, A and B of data, and of the
/// generic one, in the order of their encodings.
pub type Keys = [u64; 10];

/// Returns the fields of an ID register that show the feature, by their shifts: APA, API, GPA and
/// GPI; of QARMA3, and with them PAC_frac, GPA3 and APA3.
pub const fn fields(reg: IdReg) -> &'static [u32] {
    match reg {
        IdReg::Isar1 => &[4, 8, 24, 28],
        IdReg::Isar2 => &[8, 12, 24],
        IdReg::Pfr0
        | IdReg::Pfr1
        | IdReg::Dfr0
        | IdReg::Isar0
        | IdReg::Mmfr0
        | IdReg::Mmfr1
        | IdReg::Mmfr2 => &[],
    }
}
