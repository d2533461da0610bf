//! System registers that `aarch64-cpu` lacks, as safe one-instruction wrappers.
//!
//! Reading or writing one of these never touches memory by itself; where a
//! write changes what memory accesses do, its caller says which barrier follows.

use core::arch::asm;

macro_rules! system_registers {
    ($($(#[$doc:meta])* $name:ident = $encoding:literal;)+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub struct $name;

            impl $name {
                /// Reads the register.
                #[inline(always)]
                pub fn get(self) -> u64 {
                    let value: u64;
                    // SAFETY: MRS of a register that exists at EL2 on every CPU this
                    // image accepts changes nothing and touches no memory.
                    unsafe { asm!(concat!("mrs {}, ", $encoding), out(reg) value, options(nomem, nostack, preserves_flags)) };
                    value
                }

                /// Writes the register.
                #[inline(always)]
                pub fn set(self, value: u64) {
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
    /// HCR_EL2: traps and routing for the guest or Gear2.
    HcrEl2 = "HCR_EL2";
    /// VTTBR_EL2: stage-2 root and VMID.
    VttbrEl2 = "VTTBR_EL2";
    /// VTCR_EL2.
    VtcrEl2 = "VTCR_EL2";
    /// CPTR_EL2: FP and vector traps.
    CptrEl2 = "CPTR_EL2";
    /// MDCR_EL2: debug and PMU traps.
    MdcrEl2 = "MDCR_EL2";
    /// HSTR_EL2: AArch32 traps.
    HstrEl2 = "HSTR_EL2";
    /// VPIDR_EL2: the MIDR a guest sees.
    VpidrEl2 = "VPIDR_EL2";
    /// VMPIDR_EL2: the MPIDR a guest sees.
    VmpidrEl2 = "VMPIDR_EL2";
    /// CNTHCTL_EL2: which counters and timers EL1 reaches.
    CnthctlEl2 = "CNTHCTL_EL2";
    /// CNTVOFF_EL2.
    CntvoffEl2 = "CNTVOFF_EL2";
    /// CNTHP_CTL_EL2.
    CnthpCtlEl2 = "CNTHP_CTL_EL2";
    /// CNTHP_CVAL_EL2.
    CnthpCvalEl2 = "CNTHP_CVAL_EL2";
    /// CNTPCT_EL0: the physical counter.
    CntpctEl0 = "CNTPCT_EL0";
    /// CNTV_CTL_EL0.
    CntvCtlEl0 = "CNTV_CTL_EL0";
    /// CNTV_CVAL_EL0.
    CntvCvalEl0 = "CNTV_CVAL_EL0";
    /// CNTKCTL_EL1.
    CntkctlEl1 = "CNTKCTL_EL1";
    /// ESR_EL2.
    EsrEl2 = "ESR_EL2";
    /// FAR_EL2.
    FarEl2 = "FAR_EL2";
    /// HPFAR_EL2.
    HpfarEl2 = "HPFAR_EL2";
    /// ELR_EL2.
    ElrEl2 = "ELR_EL2";
    /// SPSR_EL2.
    SpsrEl2 = "SPSR_EL2";
    /// SP_EL0.
    SpEl0 = "SP_EL0";
    /// SP_EL1.
    SpEl1 = "SP_EL1";
    /// TPIDR_EL0.
    TpidrEl0 = "TPIDR_EL0";
    /// TPIDRRO_EL0.
    TpidrroEl0 = "TPIDRRO_EL0";
    /// TPIDR_EL1.
    TpidrEl1 = "TPIDR_EL1";
    /// SCTLR_EL1.
    SctlrEl1 = "SCTLR_EL1";
    /// CPACR_EL1.
    CpacrEl1 = "CPACR_EL1";
    /// TTBR0_EL1.
    Ttbr0El1 = "TTBR0_EL1";
    /// TTBR1_EL1.
    Ttbr1El1 = "TTBR1_EL1";
    /// TCR_EL1.
    TcrEl1 = "TCR_EL1";
    /// ESR_EL1.
    EsrEl1 = "ESR_EL1";
    /// FAR_EL1.
    FarEl1 = "FAR_EL1";
    /// AFSR0_EL1.
    Afsr0El1 = "AFSR0_EL1";
    /// AFSR1_EL1.
    Afsr1El1 = "AFSR1_EL1";
    /// MAIR_EL1.
    MairEl1 = "MAIR_EL1";
    /// AMAIR_EL1.
    AmairEl1 = "AMAIR_EL1";
    /// VBAR_EL1.
    VbarEl1 = "VBAR_EL1";
    /// CONTEXTIDR_EL1.
    ContextidrEl1 = "CONTEXTIDR_EL1";
    /// ELR_EL1.
    ElrEl1 = "ELR_EL1";
    /// SPSR_EL1.
    SpsrEl1 = "SPSR_EL1";
    /// PAR_EL1.
    ParEl1 = "PAR_EL1";
    /// CSSELR_EL1.
    CsselrEl1 = "CSSELR_EL1";
    /// MDSCR_EL1.
    MdscrEl1 = "MDSCR_EL1";
    /// PMUSERENR_EL0 is trapped instead; PMCR_EL0 tells the number of counters.
    PmcrEl0 = "PMCR_EL0";
    /// ICC_SRE_EL2.
    IccSreEl2 = "S3_4_C12_C9_5";
    /// ICC_SRE_EL1.
    IccSreEl1 = "S3_0_C12_C12_5";
    /// ICC_PMR_EL1.
    IccPmrEl1 = "S3_0_C4_C6_0";
    /// ICC_CTLR_EL1.
    IccCtlrEl1 = "S3_0_C12_C12_4";
    /// ICC_IGRPEN1_EL1.
    IccIgrpen1El1 = "S3_0_C12_C12_7";
    /// ICC_BPR1_EL1.
    IccBpr1El1 = "S3_0_C12_C12_3";
    /// ICC_SGI1R_EL1 (write-only).
    IccSgi1rEl1 = "S3_0_C12_C11_5";
    /// ICC_IAR1_EL1: reading acknowledges.
    IccIar1El1 = "S3_0_C12_C12_0";
    /// ICC_EOIR1_EL1 (write-only).
    IccEoir1El1 = "S3_0_C12_C12_1";
    /// ICC_DIR_EL1 (write-only).
    IccDirEl1 = "S3_0_C12_C11_1";
    /// ICH_HCR_EL2.
    IchHcrEl2 = "S3_4_C12_C11_0";
    /// ICH_VTR_EL2.
    IchVtrEl2 = "S3_4_C12_C11_1";
    /// ICH_ELRSR_EL2: empty list registers.
    IchElrsrEl2 = "S3_4_C12_C11_5";
    /// ICH_VMCR_EL2.
    IchVmcrEl2 = "S3_4_C12_C11_7";
    /// ICH_AP0R0_EL2.
    IchAp0r0El2 = "S3_4_C12_C8_0";
    /// ICH_AP0R1_EL2.
    IchAp0r1El2 = "S3_4_C12_C8_1";
    /// ICH_AP0R2_EL2.
    IchAp0r2El2 = "S3_4_C12_C8_2";
    /// ICH_AP0R3_EL2.
    IchAp0r3El2 = "S3_4_C12_C8_3";
    /// ICH_AP1R0_EL2.
    IchAp1r0El2 = "S3_4_C12_C9_0";
    /// ICH_AP1R1_EL2.
    IchAp1r1El2 = "S3_4_C12_C9_1";
    /// ICH_AP1R2_EL2.
    IchAp1r2El2 = "S3_4_C12_C9_2";
    /// ICH_AP1R3_EL2.
    IchAp1r3El2 = "S3_4_C12_C9_3";
    /// ICH_LR0_EL2.
    IchLr0El2 = "S3_4_C12_C12_0";
    /// ICH_LR1_EL2.
    IchLr1El2 = "S3_4_C12_C12_1";
    /// ICH_LR2_EL2.
    IchLr2El2 = "S3_4_C12_C12_2";
    /// ICH_LR3_EL2.
    IchLr3El2 = "S3_4_C12_C12_3";
    /// ICH_LR4_EL2.
    IchLr4El2 = "S3_4_C12_C12_4";
    /// ICH_LR5_EL2.
    IchLr5El2 = "S3_4_C12_C12_5";
    /// ICH_LR6_EL2.
    IchLr6El2 = "S3_4_C12_C12_6";
    /// ICH_LR7_EL2.
    IchLr7El2 = "S3_4_C12_C12_7";
    /// ICH_LR8_EL2.
    IchLr8El2 = "S3_4_C12_C13_0";
    /// ICH_LR9_EL2.
    IchLr9El2 = "S3_4_C12_C13_1";
    /// ICH_LR10_EL2.
    IchLr10El2 = "S3_4_C12_C13_2";
    /// ICH_LR11_EL2.
    IchLr11El2 = "S3_4_C12_C13_3";
    /// ICH_LR12_EL2.
    IchLr12El2 = "S3_4_C12_C13_4";
    /// ICH_LR13_EL2.
    IchLr13El2 = "S3_4_C12_C13_5";
    /// ICH_LR14_EL2.
    IchLr14El2 = "S3_4_C12_C13_6";
    /// ICH_LR15_EL2.
    IchLr15El2 = "S3_4_C12_C13_7";
    /// HCRX_EL2 (FEAT_HCX).
    HcrxEl2 = "S3_4_C1_C2_2";
    /// HFGRTR_EL2 (FEAT_FGT).
    HfgrtrEl2 = "S3_4_C1_C1_4";
    /// HFGWTR_EL2 (FEAT_FGT).
    HfgwtrEl2 = "S3_4_C1_C1_5";
    /// HFGITR_EL2 (FEAT_FGT).
    HfgitrEl2 = "S3_4_C1_C1_6";
    /// HDFGRTR_EL2 (FEAT_FGT).
    HdfgrtrEl2 = "S3_4_C3_C1_4";
    /// HDFGWTR_EL2 (FEAT_FGT).
    HdfgwtrEl2 = "S3_4_C3_C1_5";
    /// MIDR_EL1.
    MidrEl1 = "MIDR_EL1";
    /// MPIDR_EL1.
    MpidrEl1 = "MPIDR_EL1";
    /// ID_AA64PFR0_EL1.
    IdPfr0 = "S3_0_C0_C4_0";
    /// ID_AA64PFR1_EL1.
    IdPfr1 = "S3_0_C0_C4_1";
    /// ID_AA64DFR0_EL1.
    IdDfr0 = "S3_0_C0_C5_0";
    /// ID_AA64ISAR0_EL1.
    IdIsar0 = "S3_0_C0_C6_0";
    /// ID_AA64ISAR1_EL1.
    IdIsar1 = "S3_0_C0_C6_1";
    /// ID_AA64MMFR0_EL1.
    IdMmfr0 = "S3_0_C0_C7_0";
    /// ID_AA64MMFR1_EL1.
    IdMmfr1 = "S3_0_C0_C7_1";
    /// ID_AA64MMFR2_EL1.
    IdMmfr2 = "S3_0_C0_C7_2";
    /// CTR_EL0.
    CtrEl0 = "CTR_EL0";
    /// DCZID_EL0.
    DczidEl0 = "DCZID_EL0";
}
