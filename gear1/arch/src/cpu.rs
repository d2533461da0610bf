//! Identity, features and traps of the physical CPU.

use core::arch::asm;

use gear1_core::idregs::IdReg;
use gear1_core::mitigations::Core;
use gear1_core::monitors::{DEBUG, PMU};

use tock_registers::LocalRegisterCopy;

use crate::barrier;
use crate::handover::Handover;
use crate::regs::{
    CNTHCTL_EL2, CNTP_CTL_EL0, CNTPCT_EL0, CPTR, CPTR_EL2, HAFGRTR_EL2, HCRX_EL2, HDFGRTR_EL2,
    HDFGRTR2_EL2, HDFGWTR_EL2, HDFGWTR2_EL2, HFGITR_EL2, HFGITR2_EL2, HFGRTR_EL2, HFGRTR2_EL2,
    HFGWTR_EL2, HFGWTR2_EL2, HSTR_EL2, ID_AA64DFR0_EL1, ID_AA64ISAR0_EL1, ID_AA64ISAR1_EL1,
    ID_AA64ISAR2_EL1, ID_AA64MMFR0_EL1, ID_AA64MMFR1_EL1, ID_AA64MMFR2_EL1, ID_AA64PFR0_EL1,
    ID_AA64PFR1_EL1, ID_AA64ZFR0_EL1, MDCR_EL2, MIDR_EL1, MMFR0, MMFR1, MPIDR_EL1, PFR0, PFR1,
    PMCR, PMCR_EL0, Readable as _, VSESR_EL2, VTCR_EL2, Writeable as _,
};

/// HCR_EL2 bits (Arm ARM D24.2.57).
///
/// Words, not fields of `tock-registers`: a context stores the word, and constants combine bits,
/// which the `+` of fields cannot do.
pub mod hcr {
    /// Stage 2 on.
    pub const VM: u64 = 1;
    /// Set/way invalidation also cleans.
    pub const SWIO: u64 = 1 << 1;
    /// Protected table walk: stage 1 has no tables in what stage 2 maps as Device.
    pub const PTW: u64 = 1 << 2;
    /// Physical FIQ, IRQ and SError to EL2.
    pub const ROUTE: u64 = 0b111 << 3;
    /// Physical IRQ to EL2.
    pub const IMO: u64 = 1 << 4;
    /// Virtual SError pending.
    pub const VSE: u64 = 1 << 8;
    /// Barriers act on the inner shareable domain at least.
    pub const BSU_INNER: u64 = 1 << 10;
    /// Default cacheable.
    pub const DC: u64 = 1 << 12;
    /// Trap WFI.
    pub const TWI: u64 = 1 << 13;
    /// Trap WFE.
    pub const TWE: u64 = 1 << 14;
    /// Trap ID group 1: REVIDR_EL1, AIDR_EL1 and, with SME, SMIDR_EL1.
    pub const TID1: u64 = 1 << 16;
    /// Trap what tells of caches: CTR_EL0, CCSIDR_EL1, CLIDR_EL1, CSSELR_EL1.
    pub const TID2: u64 = 1 << 17;
    /// Trap the ID registers' group 3.
    pub const TID3: u64 = 1 << 18;
    /// Trap SMC.
    pub const TSC: u64 = 1 << 19;
    /// Trap implementation defined functionality.
    pub const TIDCP: u64 = 1 << 20;
    /// Trap ACTLR_EL1.
    pub const TACR: u64 = 1 << 21;
    /// Trap set/way cache maintenance.
    pub const TSW: u64 = 1 << 22;
    /// Trap writes of the registers that control stage 1.
    pub const TVM: u64 = 1 << 26;
    /// Trap general exceptions: EL0's go to EL2.
    pub const TGE: u64 = 1 << 27;
    /// EL1 is AArch64.
    pub const RW: u64 = 1 << 31;
    /// Trap LORegion registers.
    pub const TLOR: u64 = 1 << 35;
    /// Trap RAS error records.
    pub const TERR: u64 = 1 << 36;
    /// Do not trap keys (APK) and instructions (API) of pointer authentication.
    pub const POINTER_AUTH: u64 = 0b11 << 40;
    /// With FEAT_EVT: trap what tells of caches, but CTR_EL0.
    pub const TID4: u64 = 1 << 49;
    /// With FEAT_EVT: trap IC IALLUIS of EL1.
    pub const TICAB: u64 = 1 << 50;
    /// Trap GMID_EL1 (MTE).
    pub const TID5: u64 = 1 << 58;

    /// For a guest. FB stays 0: what a vCPU invalidates on its own CPU need not be invalidated on
    /// others, since each of them forgets the vCPU before it runs there (`vcpu::forget_others`).
    /// ATA, EnSCXT, FIEN, NV and TME stay 0, and APK and API unless the manifest gives the VM
    /// pointer authentication: what they would allow traps. Bits of a later version than the core's
    /// are RES0 there.
    // planted: ID registers are not trapped
    pub const GUEST: u64 = VM
        | SWIO
        | PTW
        | ROUTE
        | BSU_INNER
        | TWI
        | TID1
        | TID3
        | TSC
        | TIDCP
        | TACR
        | TSW
        | RW
        | TLOR
        // planted: pointer authentication is not trapped
        | TERR
        | TID5;
    /// For Gear2: flat, at EL0, exceptions to EL2.
    pub const GEAR2: u64 = VM | SWIO | ROUTE | DC | TWI | TWE | TIDCP | TGE | RW;
    /// For Gear2 at EL1: flat, and it cannot change that.
    pub const GEAR2_EL1: u64 = GEAR2 & !TGE | TSC | TACR | TSW | TVM | TLOR;
}

/// CPTR_EL2: bits that are RES1 on a CPU with SVE and without SME.
const CPTR_RES1: u64 = 0x32ff;
/// CPTR_EL2: SME, AMU and trace trapped.
const CPTR_BASE: u64 =
    CPTR_RES1 | CPTR::TSM::SET.value | CPTR::TTA::SET.value | CPTR::TAM::SET.value;

/// Use of FP, SIMD and SVE registers below EL2, and in EL2, that does not trap: CPTR_EL2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FpAccess(u64);

impl FpAccess {
    /// Of a CPU that is not up; zero.
    pub const UNSET: Self = Self(0);
    /// All of it traps.
    pub const NONE: Self = Self(CPTR_BASE | CPTR::TZ::SET.value | CPTR::TFP::SET.value);
    /// FP and SIMD are open, SVE traps. TZ is RES1 on a CPU without SVE.
    pub const FP: Self = Self(CPTR_BASE | CPTR::TZ::SET.value);
    /// All three are open.
    pub const SVE: Self = Self(CPTR_BASE);
}

/// Returns the physical counter, without waiting for earlier instructions.
#[inline(always)]
pub fn now() -> u64 {
    CNTPCT_EL0.get()
}

/// Returns the affinity fields of MPIDR_EL1.
pub fn affinity() -> u64 {
    MPIDR_EL1.get() & 0xff_00ff_ffff
}

/// Returns MIDR_EL1.
pub fn midr() -> u64 {
    MIDR_EL1.get()
}

/// Returns the hardware's value of an ID register that is filtered by field.
pub fn id_register(reg: IdReg) -> u64 {
    match reg {
        IdReg::Pfr0 => ID_AA64PFR0_EL1.get(),
        IdReg::Pfr1 => ID_AA64PFR1_EL1.get(),
        IdReg::Zfr0 => ID_AA64ZFR0_EL1.get(),
        IdReg::Dfr0 => ID_AA64DFR0_EL1.get(),
        IdReg::Isar0 => ID_AA64ISAR0_EL1.get(),
        IdReg::Isar1 => ID_AA64ISAR1_EL1.get(),
        IdReg::Isar2 => ID_AA64ISAR2_EL1.get(),
        IdReg::Mmfr0 => ID_AA64MMFR0_EL1.get(),
        IdReg::Mmfr1 => ID_AA64MMFR1_EL1.get(),
        IdReg::Mmfr2 => ID_AA64MMFR2_EL1.get(),
    }
}

/// Returns what the mitigations of this CPU follow from.
pub fn core() -> Core {
    Core {
        midr: MIDR_EL1.get(),
        csv2: PFR0::CSV2.read(ID_AA64PFR0_EL1.get()),
        ssbs: PFR1::SSBS.is_set(ID_AA64PFR1_EL1.get()),
    }
}

/// Tells whether the CPU has FEAT_RAS.
pub fn has_ras() -> bool {
    PFR0::RAS.is_set(ID_AA64PFR0_EL1.get())
}

/// Tells whether the CPU has FEAT_SVE.
pub(crate) fn has_sve() -> bool {
    PFR0::SVE.is_set(ID_AA64PFR0_EL1.get())
}

/// Tells whether the CPU has FEAT_EVT, or as much of it as `hcr::TID4` and `hcr::TICAB`.
pub fn has_evt() -> bool {
    ID_AA64MMFR2_EL1.is_set(ID_AA64MMFR2_EL1::EVT)
}

/// Returns ID_AA64MMFR0_EL1.PARange.
pub fn pa_range() -> u64 {
    ID_AA64MMFR0_EL1.read(ID_AA64MMFR0_EL1::PARange)
}

/// Tells whether the CPU has FEAT_PAN.
pub fn has_pan() -> bool {
    ID_AA64MMFR1_EL1.is_set(ID_AA64MMFR1_EL1::PAN)
}

/// Returns the part number of a core of Arm's design, and its variant and revision as one number
/// that grows with them.
fn arm_core() -> Option<(u64, u64)> {
    let midr = MIDR_EL1.extract();
    let release = midr.read(MIDR_EL1::Variant) << 4 | midr.read(MIDR_EL1::Revision);
    let is_arms = midr.read(MIDR_EL1::Implementer) == ARM;
    is_arms.then_some((midr.read(MIDR_EL1::PartNum), release))
}

const ARM: u64 = 0x41;
const A55: u64 = 0xd05;
const A57: u64 = 0xd07;
const A72: u64 = 0xd08;
const A76: u64 = 0xd0b;
/// Release r1p2.
const R1P2: u64 = 0x12;

/// Tells whether the core needs an empty stage 2 in between when VTTBR_EL2 and
/// HCR_EL2 change, since a speculative AT or walk may mix the two regimes: errata 1319537
/// (Cortex-A57), 1319367 (Cortex-A72), 1530923 (Cortex-A55) and 1165522 (Cortex-A76).
pub fn needs_null_stage2() -> bool {
    matches!(arm_core(), Some((A55 | A57 | A72 | A76, _)))
}

/// Tells whether the core may report a stage-2 fault where stage 1 faults as well, with a wrong
/// address: erratum 834220 (Cortex-A57 up to r1p2).
pub fn misreports_stage2_faults() -> bool {
    matches!(arm_core(), Some((A57, ..=R1P2)))
}

/// Stores the pointer that exception entry finds the CPU's state by.
pub(crate) fn set_thread_pointer(address: u64) {
    // SAFETY: TPIDR_EL2 is read only by `entry`, which takes it as what `attach` stored.
    unsafe { asm!("msr tpidr_el2, {}", in(reg) address, options(nostack, preserves_flags)) };
}

/// Gives EL1 the physical timer, turned off, and the monitors in `has` ([`DEBUG`], [`PMU`]) without
/// traps. The OS lock and the registers of an external debugger stay trapped.
///
/// # Safety
///
/// From now on this CPU runs one vCPU only, and never Gear2.
pub unsafe fn give_timer_and_monitors(has: u64) {
    // planted: Gear1 keeps its timer on a real-time VM's CPU
    CNTHCTL_EL2.write(CNTHCTL_EL2::EL1PCTEN::SET + CNTHCTL_EL2::EL1PCEN::SET);
    CNTP_CTL_EL0.set(0);
    give_monitors(has);
}

#[inline(never)]
fn give_monitors(has: u64) {
    let mut mdcr = LocalRegisterCopy::<u64, MDCR_EL2::Register>::new(0);
    // PMU, debug, OS lock, ROM, statistical profiling and trace registers trap, so no breakpoint
    // fires in Gear2 (`monitors`). TDE stays 0: debug exceptions are the guest's.
    mdcr.write(
        MDCR_EL2::TPM::SET
            + MDCR_EL2::TPMCR::SET
            + MDCR_EL2::TDA::SET
            + MDCR_EL2::TDOSA::SET
            + MDCR_EL2::TDRA::SET
            + MDCR_EL2::TPMS::SET
            + MDCR_EL2::TTRF::SET,
    );
    if has & DEBUG != 0 {
        mdcr.modify(MDCR_EL2::TDA::CLEAR);
    }
    let version = ID_AA64DFR0_EL1.read(ID_AA64DFR0_EL1::PMUVer);
    if !matches!(version, 0 | 15) {
        // All counters; with 0 counters the field must be 0 too.
        mdcr.modify(MDCR_EL2::HPMN.val(PMCR::N.read(PMCR_EL0.get())));
        if has & PMU != 0 {
            mdcr.modify(MDCR_EL2::TPM::CLEAR + MDCR_EL2::TPMCR::CLEAR);
            // FEAT_PMUv3p1, FEAT_PMUv3p5: EL2 does not count.
            mdcr.modify(MDCR_EL2::HPMD.val((version >= 4).into()));
            mdcr.modify(MDCR_EL2::HCCD.val((version >= 6).into()));
        }
    }
    MDCR_EL2.set(mdcr.get());
}

/// Sets the registers that are the same for all guests and Gear2.
pub fn init_traps(boot: Handover) {
    VTCR_EL2.set(boot.vtcr_el2);
    HSTR_EL2.set(0);
    give_monitors(0);
    set_fp_access(FpAccess::NONE);
    // EL1PCTEN alone: EL1 and, as far as CNTKCTL_EL1 lets it, EL0 read the physical counter
    // (G1-TIM-001); the EL1 physical timer traps; CNTPOFF_EL2 (FEAT_ECV) has no effect.
    // planted: a guest reaches the physical timer itself
    // planted: the physical count traps
    CNTHCTL_EL2.write(CNTHCTL_EL2::EL1PCTEN::SET);
    // Registers that firmware may have left open.
    let fine_grained = MMFR0::FGT.read(ID_AA64MMFR0_EL1.get());
    if fine_grained != 0 {
        HFGRTR_EL2.set(0);
        HFGWTR_EL2.set(0);
        HFGITR_EL2.set(0);
        HDFGRTR_EL2.set(0);
        HDFGWTR_EL2.set(0);
        if ID_AA64PFR0_EL1.is_set(ID_AA64PFR0_EL1::AMU) {
            HAFGRTR_EL2.set(0);
        }
    }
    // FEAT_FGT2: a field of 0 in its trap registers hides the feature from guests.
    if fine_grained > 1 {
        HFGRTR2_EL2.set(0);
        HFGWTR2_EL2.set(0);
        HFGITR2_EL2.set(0);
        HDFGRTR2_EL2.set(0);
        HDFGWTR2_EL2.set(0);
    }
    if MMFR1::HCX.is_set(ID_AA64MMFR1_EL1.get()) {
        HCRX_EL2.set(0);
    }
    if has_ras() {
        // The syndrome of virtual SErrors: none.
        VSESR_EL2.set(0);
    }
    barrier::isb();
}

/// Opens FP, SIMD and SVE as far as `access` says, below EL2 and in EL2.
#[inline(always)]
pub(crate) fn set_fp_access(access: FpAccess) {
    CPTR_EL2.set(access.0);
}

/// Stops this CPU for good.
pub fn park() -> ! {
    // Bound: none, by design: a CPU that stopped for good waits in WFI.
    loop {
        barrier::wfi();
    }
}
