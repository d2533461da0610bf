//! System registers: those of `aarch64-cpu`, and in one table those that the crate lacks. All have
//! the interfaces of `tock-registers`. Fields that the crate lacks are in a second table.
//!
//! An access to one of these registers never touches memory by itself. Where a write changes the
//! effect of memory accesses, its caller names the barrier that follows.
//!
//! The images reach guests' registers and timers, whose values act below EL2 only. Registers that
//! control EL2, stage 2, traps or the return from an exception are this crate's: `exception`,
//! `world` and `cpu` have functions for them.
//!
//! Requirements: G1-RUN-003.

use core::arch::asm;

#[cfg(feature = "check-locks")]
pub(crate) use aarch64_cpu::registers::TPIDR_EL2;
pub use aarch64_cpu::registers::{
    AFSR0_EL1, AFSR1_EL1, AMAIR_EL1, CNTFRQ_EL0, CNTHP_CTL_EL2, CNTKCTL_EL1, CNTP_CTL_EL0,
    CNTPCT_EL0, CNTV_CTL_EL0, CNTV_CVAL_EL0, CNTVOFF_EL2, CONTEXTIDR_EL1, CPACR_EL1, CSSELR_EL1,
    ELR_EL1, ESR_EL1, FAR_EL1, ID_AA64DFR0_EL1, ID_AA64ISAR0_EL1, ID_AA64ISAR1_EL1,
    ID_AA64MMFR0_EL1, ID_AA64MMFR1_EL1, ID_AA64MMFR2_EL1, ID_AA64PFR0_EL1, ID_AA64PFR1_EL1,
    MAIR_EL1, MDSCR_EL1, MIDR_EL1, MPIDR_EL1, PAR_EL1, SCTLR_EL1, SP_EL1, SPSR_EL1, TCR_EL1,
    TPIDR_EL0, TPIDR_EL1, TPIDRRO_EL0, TTBR0_EL1, TTBR1_EL1, VBAR_EL1, VMPIDR_EL2,
};
pub(crate) use aarch64_cpu::registers::{
    CNTHCTL_EL2, CPTR_EL2, ELR_EL2, ESR_EL2, FAR_EL2, HCR_EL2, HDFGRTR_EL2, HDFGWTR_EL2,
    HFGITR_EL2, HFGRTR_EL2, HFGWTR_EL2, ICC_SRE_EL2, ICH_AP0R0_EL2, ICH_AP0R1_EL2, ICH_AP0R2_EL2,
    ICH_AP0R3_EL2, ICH_AP1R0_EL2, ICH_AP1R1_EL2, ICH_AP1R2_EL2, ICH_AP1R3_EL2, ICH_HCR_EL2,
    ICH_LR0_EL2, ICH_LR1_EL2, ICH_LR2_EL2, ICH_LR3_EL2, ICH_LR4_EL2, ICH_LR5_EL2, ICH_LR6_EL2,
    ICH_LR7_EL2, ICH_LR8_EL2, ICH_LR9_EL2, ICH_LR10_EL2, ICH_LR11_EL2, ICH_LR12_EL2, ICH_LR13_EL2,
    ICH_LR14_EL2, ICH_LR15_EL2, ICH_VMCR_EL2, ICH_VTR_EL2, MDCR_EL2, SP_EL0, SPSR_EL2, VTCR_EL2,
    VTTBR_EL2,
};
pub(crate) use tock_registers::interfaces::ReadWriteable;
pub use tock_registers::interfaces::{Readable, Writeable};
use tock_registers::register_bitfields;

register_bitfields! { u64,
    /// CPTR_EL2 while HCR_EL2.E2H is 0.
    pub(crate) CPTR [
        TAM OFFSET(30) NUMBITS(1) [],
        TTA OFFSET(20) NUMBITS(1) [],
        TSM OFFSET(12) NUMBITS(1) [],
        TFP OFFSET(10) NUMBITS(1) [],
        TZ OFFSET(8) NUMBITS(1) [],
    ],
    /// ID_AA64ISAR0_EL1.
    pub(crate) ISAR0 [
        RNDR OFFSET(60) NUMBITS(4) [],
    ],
    /// ID_AA64PFR0_EL1.
    pub(crate) PFR0 [
        RAS OFFSET(28) NUMBITS(4) [],
        SVE OFFSET(32) NUMBITS(4) [],
        CSV2 OFFSET(56) NUMBITS(4) [],
    ],
    /// ID_AA64PFR1_EL1.
    pub(crate) PFR1 [
        SSBS OFFSET(4) NUMBITS(4) [],
    ],
    /// ID_AA64MMFR0_EL1.
    pub(crate) MMFR0 [
        FGT OFFSET(56) NUMBITS(4) [],
    ],
    /// ID_AA64MMFR1_EL1.
    pub(crate) MMFR1 [
        HCX OFFSET(40) NUMBITS(4) [],
    ],
    /// PMCR_EL0.
    pub(crate) PMCR [
        /// Event counters.
        N OFFSET(11) NUMBITS(5) [],
    ],
    /// ICC_CTLR_EL1.
    pub(crate) ICC_CTLR [
        /// Bits of priority, less one.
        PRIbits OFFSET(8) NUMBITS(3) [],
        /// The end of an interrupt takes two steps.
        EOImode OFFSET(1) NUMBITS(1) [],
    ],
    /// ICC_SGI1R_EL1.
    pub(crate) ICC_SGI1R [
        Aff3 OFFSET(48) NUMBITS(8) [],
        /// Bits 7:4 of Aff0.
        RS OFFSET(44) NUMBITS(4) [],
        Aff2 OFFSET(32) NUMBITS(8) [],
        INTID OFFSET(24) NUMBITS(4) [],
        Aff1 OFFSET(16) NUMBITS(8) [],
        /// Bit per value of Aff0's bits 3:0.
        TargetList OFFSET(0) NUMBITS(16) [],
    ],
    /// ICH_VMCR_EL2.
    pub(crate) ICH_VMCR [
        VPMR OFFSET(24) NUMBITS(8) [],
        /// The guest's EOImode.
        VEOIM OFFSET(9) NUMBITS(1) [],
        VFIQEn OFFSET(3) NUMBITS(1) [],
    ],
}

macro_rules! system_registers {
    ($($(#[$doc:meta])* $visibility:vis $name:ident = $encoding:literal;)+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            #[expect(non_camel_case_types, reason = "the register's name in the Arm ARM")]
            $visibility struct $name;

            impl Readable for $name {
                type T = u64;
                type R = ();

                #[inline(always)]
                fn get(&self) -> u64 {
                    let value: u64;
                    // SAFETY: MRS of a register that exists at EL2 on every CPU this
                    // image accepts changes nothing and touches no memory.
                    unsafe { asm!(concat!("mrs {}, ", $encoding), out(reg) value, options(nomem, nostack, preserves_flags)) };
                    value
                }
            }

            impl Writeable for $name {
                type T = u64;
                type R = ();

                #[inline(always)]
                fn set(&self, value: u64) {
                    // SAFETY: these registers hold guest state, the GIC's virtual
                    // interface, timers or traps; none changes how EL2 itself
                    // translates or executes, so Rust's view of memory is kept.
                    // Without `nomem`, so that accesses are not moved across.
                    unsafe { asm!(concat!("msr ", $encoding, ", {}"), in(reg) value, options(nostack, preserves_flags)) };
                }
            }
        )+
    };
}

system_registers! {
    /// HSTR_EL2: AArch32 traps.
    pub(crate) HSTR_EL2 = "HSTR_EL2";
    /// VPIDR_EL2: the MIDR a guest sees.
    pub VPIDR_EL2 = "VPIDR_EL2";
    /// CNTHP_CVAL_EL2.
    pub CNTHP_CVAL_EL2 = "CNTHP_CVAL_EL2";
    /// HPFAR_EL2.
    pub(crate) HPFAR_EL2 = "HPFAR_EL2";
    /// PMCR_EL0.
    pub(crate) PMCR_EL0 = "PMCR_EL0";
    /// PMCNTENSET_EL0.
    pub(crate) PMCNTENSET_EL0 = "PMCNTENSET_EL0";
    /// PMCNTENCLR_EL0.
    pub(crate) PMCNTENCLR_EL0 = "PMCNTENCLR_EL0";
    /// PMOVSSET_EL0.
    pub(crate) PMOVSSET_EL0 = "PMOVSSET_EL0";
    /// PMOVSCLR_EL0.
    pub(crate) PMOVSCLR_EL0 = "PMOVSCLR_EL0";
    /// PMINTENSET_EL1.
    pub(crate) PMINTENSET_EL1 = "PMINTENSET_EL1";
    /// PMINTENCLR_EL1.
    pub(crate) PMINTENCLR_EL1 = "PMINTENCLR_EL1";
    /// PMSWINC_EL0 (write-only).
    pub(crate) PMSWINC_EL0 = "S3_3_C9_C12_4";
    /// PMSELR_EL0.
    pub(crate) PMSELR_EL0 = "PMSELR_EL0";
    /// PMCEID0_EL0 (read-only).
    pub(crate) PMCEID0_EL0 = "S3_3_C9_C12_6";
    /// PMCEID1_EL0 (read-only).
    pub(crate) PMCEID1_EL0 = "S3_3_C9_C12_7";
    /// PMCCNTR_EL0.
    pub(crate) PMCCNTR_EL0 = "PMCCNTR_EL0";
    /// PMXEVTYPER_EL0: the type of the counter that PMSELR_EL0 names.
    pub(crate) PMXEVTYPER_EL0 = "PMXEVTYPER_EL0";
    /// PMXEVCNTR_EL0: that counter.
    pub(crate) PMXEVCNTR_EL0 = "PMXEVCNTR_EL0";
    /// PMUSERENR_EL0.
    pub(crate) PMUSERENR_EL0 = "PMUSERENR_EL0";
    /// OSLAR_EL1 (write-only).
    pub(crate) OSLAR_EL1 = "S2_0_C1_C0_4";
    /// OSLSR_EL1 (read-only).
    pub(crate) OSLSR_EL1 = "S2_0_C1_C1_4";
    /// ICC_SRE_EL1.
    pub(crate) ICC_SRE_EL1 = "S3_0_C12_C12_5";
    /// ICC_PMR_EL1.
    pub(crate) ICC_PMR_EL1 = "S3_0_C4_C6_0";
    /// ICC_CTLR_EL1.
    pub(crate) ICC_CTLR_EL1 = "S3_0_C12_C12_4";
    /// ICC_IGRPEN1_EL1.
    pub(crate) ICC_IGRPEN1_EL1 = "S3_0_C12_C12_7";
    /// ICC_BPR1_EL1.
    pub(crate) ICC_BPR1_EL1 = "S3_0_C12_C12_3";
    /// ICC_SGI1R_EL1 (write-only).
    pub(crate) ICC_SGI1R_EL1 = "S3_0_C12_C11_5";
    /// ICC_AP1R0_EL1.
    pub(crate) ICC_AP1R0_EL1 = "S3_0_C12_C9_0";
    /// ICC_AP1R1_EL1.
    pub(crate) ICC_AP1R1_EL1 = "S3_0_C12_C9_1";
    /// ICC_AP1R2_EL1.
    pub(crate) ICC_AP1R2_EL1 = "S3_0_C12_C9_2";
    /// ICC_AP1R3_EL1.
    pub(crate) ICC_AP1R3_EL1 = "S3_0_C12_C9_3";
    /// ICC_IAR1_EL1: reading acknowledges.
    pub(crate) ICC_IAR1_EL1 = "S3_0_C12_C12_0";
    /// ICC_EOIR1_EL1 (write-only).
    pub(crate) ICC_EOIR1_EL1 = "S3_0_C12_C12_1";
    /// ICC_DIR_EL1 (write-only).
    pub(crate) ICC_DIR_EL1 = "S3_0_C12_C11_1";
    /// ICH_ELRSR_EL2: empty list registers.
    pub(crate) ICH_ELRSR_EL2 = "S3_4_C12_C11_5";
    /// HAFGRTR_EL2 (FEAT_FGT and FEAT_AMUv1).
    pub(crate) HAFGRTR_EL2 = "S3_4_C3_C1_6";
    /// HDFGRTR2_EL2 (FEAT_FGT2).
    pub(crate) HDFGRTR2_EL2 = "S3_4_C3_C1_0";
    /// HDFGWTR2_EL2 (FEAT_FGT2).
    pub(crate) HDFGWTR2_EL2 = "S3_4_C3_C1_1";
    /// HFGRTR2_EL2 (FEAT_FGT2).
    pub(crate) HFGRTR2_EL2 = "S3_4_C3_C1_2";
    /// HFGWTR2_EL2 (FEAT_FGT2).
    pub(crate) HFGWTR2_EL2 = "S3_4_C3_C1_3";
    /// HFGITR2_EL2 (FEAT_FGT2).
    pub(crate) HFGITR2_EL2 = "S3_4_C3_C1_7";
    /// HCRX_EL2 (FEAT_HCX).
    pub(crate) HCRX_EL2 = "S3_4_C1_C2_2";
    /// VSESR_EL2 (FEAT_RAS).
    pub(crate) VSESR_EL2 = "S3_4_C5_C2_3";
    /// VDISR_EL2 (FEAT_RAS): a guest's DISR_EL1.
    pub VDISR_EL2 = "S3_4_C12_C1_1";
    /// APIAKEYLO_EL1 (FEAT_PAuth).
    pub(crate) APIAKEYLO_EL1 = "S3_0_C2_C1_0";
    /// APIAKEYHI_EL1 (FEAT_PAuth).
    pub(crate) APIAKEYHI_EL1 = "S3_0_C2_C1_1";
    /// APIBKEYLO_EL1 (FEAT_PAuth).
    pub(crate) APIBKEYLO_EL1 = "S3_0_C2_C1_2";
    /// APIBKEYHI_EL1 (FEAT_PAuth).
    pub(crate) APIBKEYHI_EL1 = "S3_0_C2_C1_3";
    /// APDAKEYLO_EL1 (FEAT_PAuth).
    pub(crate) APDAKEYLO_EL1 = "S3_0_C2_C2_0";
    /// APDAKEYHI_EL1 (FEAT_PAuth).
    pub(crate) APDAKEYHI_EL1 = "S3_0_C2_C2_1";
    /// APDBKEYLO_EL1 (FEAT_PAuth).
    pub(crate) APDBKEYLO_EL1 = "S3_0_C2_C2_2";
    /// APDBKEYHI_EL1 (FEAT_PAuth).
    pub(crate) APDBKEYHI_EL1 = "S3_0_C2_C2_3";
    /// APGAKEYLO_EL1 (FEAT_PAuth).
    pub(crate) APGAKEYLO_EL1 = "S3_0_C2_C3_0";
    /// APGAKEYHI_EL1 (FEAT_PAuth).
    pub(crate) APGAKEYHI_EL1 = "S3_0_C2_C3_1";
    /// ZCR_EL2 (FEAT_SVE).
    pub(crate) ZCR_EL2 = "S3_4_C1_C2_0";
    /// ID_AA64ZFR0_EL1, which reads as zero without FEAT_SVE.
    pub(crate) ID_AA64ZFR0_EL1 = "S3_0_C0_C4_4";
    /// ID_AA64ISAR2_EL1, which reads as zero before Armv8.7.
    pub(crate) ID_AA64ISAR2_EL1 = "S3_0_C0_C6_2";
    /// REVIDR_EL1.
    pub REVIDR_EL1 = "REVIDR_EL1";
    /// AIDR_EL1.
    pub AIDR_EL1 = "AIDR_EL1";
    /// CCSIDR_EL1: of the cache that CSSELR_EL1 selects.
    pub CCSIDR_EL1 = "CCSIDR_EL1";
    /// CLIDR_EL1.
    pub CLIDR_EL1 = "CLIDR_EL1";
    /// CTR_EL0.
    pub CTR_EL0 = "CTR_EL0";
    /// DCZID_EL0.
    pub DCZID_EL0 = "DCZID_EL0";
}
