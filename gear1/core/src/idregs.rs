//! Identification of the CPU that a guest sees: ID registers without the features that Gear1 does
//! not virtualize. Hidden features trap to UNDEFINED.
//!
//! Requirements: G1-CPU-001 (consistent, filtered identification), G1-CPU-002 (hidden features are
//! UNDEFINED), G1-CPU-014 (what the CPU says of attacks on speculation).

use crate::monitors::{DEBUG, PMU};
use crate::pointer_auth::POINTER_AUTH;
use crate::sve::SVE;
use crate::syndrome::SysregId;

const fn id(crm: u32, op2: u32) -> SysregId {
    SysregId::new(3, 0, 0, crm, op2)
}

/// The ID registers that are read from the CPU and filtered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant has the name of the register")]
pub enum IdReg {
    Pfr0,
    Pfr1,
    Zfr0,
    Dfr0,
    Isar0,
    Isar1,
    Isar2,
    Mmfr0,
    Mmfr1,
    Mmfr2,
}

impl IdReg {
    /// All, and the place of each among [`Values`].
    pub const ALL: [(Self, usize); 10] = [
        (Self::Pfr0, place(id(4, 0))),
        (Self::Pfr1, place(id(4, 1))),
        (Self::Zfr0, place(id(4, 4))),
        (Self::Dfr0, place(id(5, 0))),
        (Self::Isar0, place(id(6, 0))),
        (Self::Isar1, place(id(6, 1))),
        (Self::Isar2, place(id(6, 2))),
        (Self::Mmfr0, place(id(7, 0))),
        (Self::Mmfr1, place(id(7, 1))),
        (Self::Mmfr2, place(id(7, 2))),
    ];
}

/// Values of the AArch64 ID registers (CRm 4 to 7) that a guest reads, in the order of their
/// encodings. Reserved registers and those of hidden features read as zero. The registers of CRm 1
/// to 3 describe AArch32 and read as zero, too: guests see a CPU without AArch32.
pub type Values = [u64; 32];

/// Returns the index of a register in [`Values`], if the register is one of them.
const fn place(reg: SysregId) -> usize {
    (reg.0 >> 1 & 3 | (reg.0 >> 17 & 7) << 2) as usize
}

/// Returns what the guest reads, if the register is one of `values`.
#[inline(always)]
pub fn value_of(reg: SysregId, values: &Values) -> Option<u64> {
    // Without Op2 and the lower bits of CRm.
    let is_one = reg.0 & !(7 << 17 | 3 << 1) == id(4, 0).0;
    is_one.then(|| values.get(place(reg)).copied().unwrap_or(0))
}

/// Returns whether the register is in the space of ID registers (Op0 3, Op1 0, CRn 0, CRm 1 to 7).
pub fn is_one(reg: SysregId) -> bool {
    matches!(reg.fields(), (3, 0, 0, 1..=7, _))
}

/// A 4-bit field of an ID register.
const fn field(value: u64, shift: u32) -> u64 {
    value.wrapping_shr(shift) & 0xf
}

const fn set(value: u64, shift: u32, new: u64) -> u64 {
    value & !0xf_u64.wrapping_shl(shift) | new.wrapping_shl(shift)
}

/// Returns `value` with every field outside `keep` (shifts of the fields) zeroed.
const fn only(value: u64, keep: &[u32]) -> u64 {
    let mut mask = 0_u64;
    let mut rest = keep;
    // Bound: 16 fields of a register.
    while let [shift, tail @ ..] = rest {
        mask |= 0xf_u64.wrapping_shl(*shift);
        rest = tail;
    }
    value & mask
}

const fn at_most(value: u64, shift: u32, limit: u64) -> u64 {
    if field(value, shift) > limit {
        set(value, shift, limit)
    } else {
        value
    }
}

/// DebugVer: the debug architecture of Armv8.0.
const DEBUG_V8: u64 = 6;
/// BRPs, WRPs.
const POINTS: u64 = crate::monitors::MAX_POINTS as u64 - 1;
/// PMUVer: FEAT_PMUv3p5, the last whose registers are known here.
const PMU_V8_5: u64 = 6;

/// Returns what the guest reads from `reg` when the CPU has `hardware`. `pa_range`: the PARange
/// field that stage 2 is limited to; `gicv3`: the guest has GIC system registers; `features`: what
/// the VM has of those that the manifest gives ([`DEBUG`], [`PMU`], [`POINTER_AUTH`], [`SVE`]).
pub const fn filter(reg: IdReg, hardware: u64, pa_range: u64, gicv3: bool, features: u64) -> u64 {
    // planted: guests are shown keys that are not switched
    let authentication = if features & POINTER_AUTH != 0 {
        only(hardware, authentication_fields(reg))
    } else {
        0
    };
    authentication | filter_always(reg, hardware, pa_range, gicv3, features)
}

/// Returns the fields of a register that show pointer authentication, by their shifts: APA, API, GPA
/// and GPI; of QARMA3, and with them PAC_frac, GPA3 and APA3.
pub const fn authentication_fields(reg: IdReg) -> &'static [u32] {
    match reg {
        IdReg::Isar1 => &[4, 8, 24, 28],
        IdReg::Isar2 => &[8, 12, 24],
        IdReg::Pfr0
        | IdReg::Pfr1
        | IdReg::Zfr0
        | IdReg::Dfr0
        | IdReg::Isar0
        | IdReg::Mmfr0
        | IdReg::Mmfr1
        | IdReg::Mmfr2 => &[],
    }
}

/// Returns what each guest reads, and of monitors and SVE what it has.
const fn filter_always(
    reg: IdReg,
    hardware: u64,
    pa_range: u64,
    gicv3: bool,
    features: u64,
) -> u64 {
    // planted: a VM without SVE is shown SVE
    let vectors = if features & SVE != 0 { hardware } else { 0 };
    match reg {
        // EL0, EL1 (both AArch64 only), FP, AdvSIMD, GIC, DIT, CSV2 (without CSV2_2's registers),
        // CSV3.
        IdReg::Pfr0 => {
            // planted: guests are shown SVE
            let kept = only(hardware, &[0, 16, 20, 48, 56, 60]);
            let gic = if gicv3 { 1 } else { 0 };
            at_most(set(set(set(kept, 0, 1), 4, 1), 24, gic), 56, 1) | only(vectors, &[32])
        }
        // BT and SSBS.
        IdReg::Pfr1 => only(hardware, &[0, 4]),
        // SVEver, AES, EltPerm, BitPerm, BF16, B16B16, SHA3, SM4, I8MM, F32MM, F64MM: instructions
        // without other registers than those of SVE.
        IdReg::Zfr0 => only(vectors, &[0, 4, 12, 16, 20, 24, 32, 40, 44, 52, 56]),
        IdReg::Dfr0 => debug_features(hardware, features),
        // All: no EL2 or EL1 state behind them, but TME (24).
        IdReg::Isar0 => set(hardware, 24, 0),
        // All but LS64 (60), XS (56) and pointer authentication.
        IdReg::Isar1 => only(hardware, &[0, 12, 16, 20, 32, 36, 40, 44, 48, 52]),
        IdReg::Isar2 => 0,
        IdReg::Mmfr0 => memory_features(hardware, pa_range),
        // HAFDBS, VMIDBits, HPDS, PAN, SpecSEI, XNX, ETS, AFP, ECBHB; not VH, LO, TWED, HCX.
        // planted: a guest is not told that its branch history is safe
        IdReg::Mmfr1 => only(hardware, &[0, 4, 12, 20, 24, 28, 36, 44, 60]),
        // CnP, UAO, VARange, CCIDX, ST, AT, IDS, TTL, BBM, E0PD; not LSM, IESB (no RAS), NV, FWB,
        // EVT.
        IdReg::Mmfr2 => only(hardware, &[0, 4, 16, 20, 28, 32, 36, 48, 52, 60]),
    }
}

/// Returns ID_AA64DFR0_EL1: DebugVer of Armv8.0 and, without debug of its own, two breakpoints and
/// two watchpoints, the fewest the architecture allows, which read as zero and ignore writes. No
/// trace or profiling.
const fn debug_features(hardware: u64, monitors: u64) -> u64 {
    let points = if monitors & DEBUG == 0 {
        1 << 12 | 1 << 20
    } else {
        let kept = only(hardware, &[12, 20, 28]);
        at_most(at_most(kept, 12, POINTS), 20, POINTS)
    };
    // 15: the PMU is not Arm's.
    let pmu = if monitors & PMU == 0 || field(hardware, 8) == 15 {
        0
    } else {
        at_most(only(hardware, &[8]), 8, PMU_V8_5)
    };
    at_most(only(hardware, &[0]), 0, DEBUG_V8) | points | pmu
}

/// Returns ID_AA64MMFR0_EL1: PARange, ASIDBits, BigEnd, SNSMem, TGran* without LPA2; not ECV, FGT,
/// ExS.
const fn memory_features(hardware: u64, pa_range: u64) -> u64 {
    let kept = only(hardware, &[0, 4, 8, 12, 16, 20, 24, 28]);
    let pages = if field(kept, 28) == 1 {
        set(kept, 28, 0)
    } else {
        kept
    };
    at_most(at_most(pages, 20, 1), 0, pa_range)
}

#[cfg(test)]
mod tests;
