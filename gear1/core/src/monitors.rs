//! Debug and performance monitors of guests that the manifest gives them to (Arm ARM D2, D13).
//!
//! Each access traps and is carried out here or, for counters, on the hardware that counts. Only a
//! real-time VM with pass-through has the registers themselves, as nobody else is on its CPU.
//!
//! Requirements: G1-CPU-007, G1-CPU-008.

use crate::syndrome::SysregId;

/// Bit of [`Monitors::has`]: the vCPU has the self-hosted debug registers.
pub const DEBUG: u64 = 1;
/// Bit of [`Monitors::has`]: the vCPU has the performance monitors.
pub const PMU: u64 = 2;
/// Both.
pub const ALL: u64 = DEBUG | PMU;

/// PPI of the PMU, on machines that follow Arm's base system architecture (Arm DEN 0094) and in
/// each guest.
pub const PMU_INTID: u32 = gear1_abi::boot::PMU_INTID;

/// Registers that are switched at each exit between a guest and Gear2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Monitors {
    /// [`DEBUG`], [`PMU`], both or neither: the manifest's word.
    pub has: u64,
    /// MDSCR_EL1.
    pub mdscr: u64,
    /// PMCR_EL0.
    pub pmcr: u64,
}

impl Monitors {
    /// Neither.
    pub const NONE: Self = Self {
        has: 0,
        mdscr: 0,
        pmcr: 0,
    };
}

/// MDSCR_EL1 bits that a guest sets: SS, TDCC, KDE, MDE. The rest is for an external debugger.
pub const MDSCR_GUEST: u64 = 1 | 1 << 12 | 1 << 13 | 1 << 15;
/// PMCR_EL0.E: everything counts, and interrupts.
pub const PMCR_ENABLE: u64 = 1;
/// PMCR_EL0 bits that a guest sets: E, P, C, D, DP, LC, LP; not X, which exports events.
pub const PMCR_GUEST: u64 = 0b1110_1111;
/// PMEVTYPER, PMCCFILTR: bits of Armv8.4 and before, but NSH and SH: EL2 never counts.
// planted: a guest counts at EL2
pub const TYPE_GUEST: u64 = 0xf600_ffff;

/// Breakpoint value, breakpoint control, watchpoint value, watchpoint control.
pub const BANKS: usize = 4;
/// Most breakpoints, and most watchpoints: of more, a guest is not shown the rest. Arm's cores have
/// 6 and 4.
pub const MAX_POINTS: usize = 8;
/// Most event counters.
pub const MAX_COUNTERS: usize = 31;

/// A debug register that is more than RAZ/WI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugReg {
    /// MDSCR_EL1.
    Control,
    /// OSLAR_EL1.
    Lock,
    /// OSLSR_EL1.
    LockStatus,
    /// A register of a breakpoint or watchpoint.
    Point {
        /// Index in [`BANKS`].
        bank: usize,
        /// Number of the breakpoint or watchpoint.
        number: usize,
    },
}

impl DebugReg {
    /// Returns the register with this encoding.
    pub fn from_id(id: SysregId) -> Option<Self> {
        // S2_0_C0_Cn_4 to S2_0_C0_Cn_7: two bits of Op2 and all of CRm vary.
        const POINTS: u32 = SysregId::new(2, 0, 0, 0, 4).0;
        const VARIES: u32 = SysregId::new(0, 0, 0, 15, 3).0;
        const CONTROL: SysregId = SysregId::new(2, 0, 0, 2, 2);
        const LOCK: SysregId = SysregId::new(2, 0, 1, 0, 4);
        const LOCK_STATUS: SysregId = SysregId::new(2, 0, 1, 1, 4);
        if id.0 & !VARIES == POINTS {
            let (_, _, _, number, op2) = id.fields();
            return Some(Self::Point {
                bank: op2 as usize & 3,
                number: number as usize,
            });
        }
        match id {
            CONTROL => Some(Self::Control),
            LOCK => Some(Self::Lock),
            LOCK_STATUS => Some(Self::LockStatus),
            _ => None,
        }
    }
}

/// A register of the performance monitors, selected ones resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant has the name of the register")]
pub enum PmuReg {
    Pmcr,
    Pmcntenset,
    Pmcntenclr,
    Pmovsset,
    Pmovsclr,
    Pmintenset,
    Pmintenclr,
    Pmswinc,
    Pmselr,
    Pmceid0,
    Pmceid1,
    Pmccntr,
    Pmuserenr,
    /// PMMIR_EL1, which reads as zero.
    Pmmir,
    /// A counter.
    Pmevcntr(u8),
    /// A counter's type; 31 is PMCCFILTR.
    Pmevtyper(u8),
}

/// PMU registers with CRn 9, by CRm (from 12) and Op2, each with its Op1. The entries for the
/// selected counter name counter 0.
const CONTROLS: [(u32, Option<PmuReg>); 24] = {
    let mut table = [(3, None); 24];
    table[0].1 = Some(PmuReg::Pmcr);
    table[1].1 = Some(PmuReg::Pmcntenset);
    table[2].1 = Some(PmuReg::Pmcntenclr);
    table[3].1 = Some(PmuReg::Pmovsclr);
    table[4].1 = Some(PmuReg::Pmswinc);
    table[5].1 = Some(PmuReg::Pmselr);
    table[6].1 = Some(PmuReg::Pmceid0);
    table[7].1 = Some(PmuReg::Pmceid1);
    table[8].1 = Some(PmuReg::Pmccntr);
    table[9].1 = Some(PmuReg::Pmevtyper(0));
    table[10].1 = Some(PmuReg::Pmevcntr(0));
    table[16].1 = Some(PmuReg::Pmuserenr);
    table[17] = (0, Some(PmuReg::Pmintenset));
    table[18] = (0, Some(PmuReg::Pmintenclr));
    table[19].1 = Some(PmuReg::Pmovsset);
    table[22] = (0, Some(PmuReg::Pmmir));
    table
};

impl PmuReg {
    /// Returns the register with this encoding. `selected`: PMSELR_EL0.
    pub fn from_id(id: SysregId, selected: u8) -> Option<Self> {
        let (op0, op1, crn, crm, op2) = id.fields();
        let number = crm.wrapping_mul(8).wrapping_add(op2);
        let counter = number as u8 & 31;
        if (op0, op1, crn) == (3, 3, 14) {
            return match number {
                64..=94 => Some(Self::Pmevcntr(counter)),
                96.. => Some(Self::Pmevtyper(counter)),
                _ => None,
            };
        }
        let (level, reg) = *CONTROLS.get(number.wrapping_sub(96) as usize)?;
        if (op0, op1, crn) != (3, level, 9) {
            return None;
        }
        match number {
            105 => Some(Self::Pmevtyper(selected & 31)),
            106 => Some(Self::Pmevcntr(selected & 31)),
            _ => reg,
        }
    }
}

/// The rest, kept while the vCPU is not loaded.
#[derive(Clone, Copy, Debug)]
pub struct Bank {
    /// The registers of breakpoints and watchpoints.
    pub points: [[u64; MAX_POINTS]; BANKS],
    /// OSLSR_EL1.OSLK is 0.
    pub unlocked: bool,
    /// PMSELR_EL0.
    pub selected: u8,
    /// PMCNTENSET_EL0, PMOVSSET_EL0 and PMINTENSET_EL1.
    pub sets: [u64; 3],
    /// PMCCNTR_EL0.
    pub cycles: u64,
    /// PMUSERENR_EL0.
    pub user: u64,
    /// PMCCFILTR_EL0.
    pub filter: u64,
    /// PMEVTYPER and PMEVCNTR of each counter.
    pub counters: [[u64; 2]; MAX_COUNTERS],
}

impl Bank {
    /// At a reset.
    pub const ZERO: Self = Self {
        points: [[0; MAX_POINTS]; BANKS],
        unlocked: false,
        selected: 0,
        sets: [0; 3],
        cycles: 0,
        user: 0,
        filter: 0,
        counters: [[0; 2]; MAX_COUNTERS],
    };
}

#[cfg(test)]
mod tests;
