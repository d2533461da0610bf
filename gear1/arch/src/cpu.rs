//! Identity, features and traps of the physical CPU.

use core::arch::asm;

use gear1_core::idregs::IdReg;

use crate::barrier;
use crate::regs::{
    CnthctlEl2, CntpctEl0, CptrEl2, HcrxEl2, HdfgrtrEl2, HdfgwtrEl2, HfgitrEl2, HfgrtrEl2,
    HfgwtrEl2, HstrEl2, IdDfr0, IdIsar0, IdIsar1, IdMmfr0, IdMmfr1, IdMmfr2, IdPfr0, IdPfr1,
    MdcrEl2, MidrEl1, MpidrEl1, PmcrEl0, VtcrEl2,
};

/// HCR_EL2 bits (Arm ARM D24.2.57).
pub mod hcr {
    /// Stage 2 on.
    pub const VM: u64 = 1;
    /// Set/way invalidation also cleans.
    pub const SWIO: u64 = 1 << 1;
    /// Physical FIQ, IRQ and SError to EL2.
    pub const ROUTE: u64 = 0b111 << 3;
    /// Virtual SError pending.
    pub const VSE: u64 = 1 << 8;
    /// Broadcast of TLB and cache maintenance to the inner shareable domain at least.
    pub const FB: u64 = 1 << 9;
    /// Barriers act on the inner shareable domain at least.
    pub const BSU_INNER: u64 = 1 << 10;
    /// Default cacheable.
    pub const DC: u64 = 1 << 12;
    /// Trap WFI.
    pub const TWI: u64 = 1 << 13;
    /// Trap WFE.
    pub const TWE: u64 = 1 << 14;
    /// Trap the ID registers' groups 0 and 3.
    pub const TID3: u64 = 1 << 18;
    /// Trap SMC.
    pub const TSC: u64 = 1 << 19;
    /// Trap implementation defined functionality.
    pub const TIDCP: u64 = 1 << 20;
    /// Trap ACTLR_EL1.
    pub const TACR: u64 = 1 << 21;
    /// Trap set/way cache maintenance.
    pub const TSW: u64 = 1 << 22;
    /// Trap general exceptions: EL0's go to EL2.
    pub const TGE: u64 = 1 << 27;
    /// EL1 is AArch64.
    pub const RW: u64 = 1 << 31;
    /// Trap LORegion registers.
    pub const TLOR: u64 = 1 << 35;

    /// For a guest.
    pub const GUEST: u64 =
        VM | SWIO | ROUTE | FB | BSU_INNER | TWI | TID3 | TSC | TIDCP | TACR | TSW | RW | TLOR;
    /// For Gear2: flat, at EL0, exceptions to EL2.
    pub const GEAR2: u64 = VM | SWIO | ROUTE | FB | BSU_INNER | DC | TWI | TWE | TIDCP | TGE | RW;
}

/// CPTR_EL2 (E2H = 0): RES1 bits; SVE, SME, AMU and trace trapped.
const CPTR_BASE: u64 = 0x32ff | 1 << 8 | 1 << 12 | 1 << 20 | 1 << 30;
const CPTR_TFP: u64 = 1 << 10;
/// MDCR_EL2: PMU, debug, OS lock, ROM, statistical profiling and trace registers trapped,
/// so MDSCR_EL1 stays 0 and no breakpoint fires in Gear2. TDE stays 0: BRK is the guest's.
const MDCR_TRAPS: u64 = 1 << 5 | 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 14 | 1 << 19;

const fn id_field(value: u64, shift: u32) -> u64 {
    (value >> shift) & 0xf
}

/// Returns the physical counter, without waiting for earlier instructions.
#[inline(always)]
pub fn now() -> u64 {
    CntpctEl0.get()
}

/// Returns the affinity fields of MPIDR_EL1.
pub fn affinity() -> u64 {
    MpidrEl1.get() & 0xff_00ff_ffff
}

/// Returns MIDR_EL1.
pub fn midr() -> u64 {
    MidrEl1.get()
}

/// Returns the hardware's value of an ID register that is filtered by field.
pub fn id_register(reg: IdReg) -> u64 {
    match reg {
        IdReg::Pfr0 => IdPfr0.get(),
        IdReg::Pfr1 => IdPfr1.get(),
        IdReg::Dfr0 => IdDfr0.get(),
        IdReg::Isar0 => IdIsar0.get(),
        IdReg::Isar1 => IdIsar1.get(),
        IdReg::Mmfr0 => IdMmfr0.get(),
        IdReg::Mmfr1 => IdMmfr1.get(),
        IdReg::Mmfr2 => IdMmfr2.get(),
        IdReg::AArch32 | IdReg::Zero => 0,
    }
}

/// Tells whether the CPU has FEAT_PAN.
pub fn has_pan() -> bool {
    id_field(IdMmfr1.get(), 20) != 0
}

/// Tells whether the core needs an empty stage 2 in between when VTTBR_EL2 and
/// HCR_EL2 change: errata 1319367 (Cortex-A57) and 1319537 (Cortex-A72), where a
/// speculative AT or walk may mix the two regimes.
pub fn needs_null_stage2() -> bool {
    const A57: u64 = 0xd07;
    const A72: u64 = 0xd08;
    const ARM: u64 = 0x41;
    let midr = MidrEl1.get();
    let part = (midr >> 4) & 0xfff;
    midr >> 24 == ARM && (part == A57 || part == A72)
}

/// Stores the pointer that exception entry finds the CPU's state by.
pub(crate) fn set_thread_pointer(address: u64) {
    // SAFETY: TPIDR_EL2 is read only by `entry`, which takes it as what `attach` stored.
    unsafe { asm!("msr tpidr_el2, {}", in(reg) address, options(nostack, preserves_flags)) };
}

/// Sets the registers that are the same for all guests and Gear2.
pub fn init_traps(vtcr: u64) {
    VtcrEl2.set(vtcr);
    HstrEl2.set(0);
    // HPMN: all counters; with 0 counters the field must be 0 too.
    MdcrEl2.set(MDCR_TRAPS | (PmcrEl0.get() >> 11) & 0x1f);
    set_fp_trap(true);
    // EL1 reads the physical counter; its physical timer traps.
    CnthctlEl2.set(1);
    // Registers that firmware may have left open.
    let mmfr0 = IdMmfr0.get();
    if id_field(mmfr0, 56) != 0 {
        HfgrtrEl2.set(0);
        HfgwtrEl2.set(0);
        HfgitrEl2.set(0);
        HdfgrtrEl2.set(0);
        HdfgwtrEl2.set(0);
    }
    if id_field(IdMmfr1.get(), 40) != 0 {
        HcrxEl2.set(0);
    }
    barrier::isb();
}

/// Traps FP and SIMD use below EL2, and in EL2, or opens it.
#[inline(always)]
pub fn set_fp_trap(trap: bool) {
    CptrEl2.set(if trap {
        CPTR_BASE | CPTR_TFP
    } else {
        CPTR_BASE
    });
}

/// Stops this CPU for good.
pub fn park() -> ! {
    loop {
        barrier::wfi();
    }
}
