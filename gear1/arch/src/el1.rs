//! EL1 and EL0 system registers of the loaded guest.
//!
//! The registers stay loaded while Gear2 runs at EL0 and move only between two guests. For a Gear2
//! at EL1 all but the timer's move at every entry of Gear2 (`world`). The few that act on EL0, and
//! so on Gear2, move at every entry of Gear2 instead (`world`): SCTLR_EL1, CNTKCTL_EL1, TPIDR_EL0,
//! TPIDRRO_EL0 and SP_EL0.
//!
//! Requirements: G1-RUN-003.

use gear1_core::context::El1State;

use crate::regs::{
    AFSR0_EL1, AFSR1_EL1, AMAIR_EL1, CNTV_CTL_EL0, CNTV_CVAL_EL0, CONTEXTIDR_EL1, CPACR_EL1,
    CSSELR_EL1, ELR_EL1, ESR_EL1, FAR_EL1, MAIR_EL1, PAR_EL1, Readable as _, SP_EL1, SPSR_EL1,
    TCR_EL1, TPIDR_EL1, TTBR0_EL1, TTBR1_EL1, VBAR_EL1, Writeable as _,
};

macro_rules! el1_registers {
    ($save:ident, $restore:ident: $($first:ident: $low:ident, $second:ident: $high:ident;)+) => {
        /// Saves the registers: two are read before two are stored, which is then one instruction.
        #[inline(always)]
        pub fn $save(state: &mut El1State) {
            $(let values = ($low.get(), $high.get());
            (state.$first, state.$second) = values;)+
        }

        /// Restores the registers. A context synchronization event (the ERET) must come before the
        /// guest's first instruction.
        #[inline(always)]
        pub fn $restore(state: &El1State) {
            $($low.set(state.$first);
            $high.set(state.$second);)+
        }
    };
}

el1_registers! {
    save, restore:
    cpacr: CPACR_EL1, ttbr0: TTBR0_EL1;
    ttbr1: TTBR1_EL1, tcr: TCR_EL1;
    esr: ESR_EL1, far: FAR_EL1;
    afsr0: AFSR0_EL1, afsr1: AFSR1_EL1;
    mair: MAIR_EL1, amair: AMAIR_EL1;
    vbar: VBAR_EL1, contextidr: CONTEXTIDR_EL1;
    tpidr_el1: TPIDR_EL1, sp_el1: SP_EL1;
    elr: ELR_EL1, spsr: SPSR_EL1;
    par: PAR_EL1, csselr: CSSELR_EL1;
}

el1_registers! {
    save_timer, restore_timer:
    cntv_cval: CNTV_CVAL_EL0, cntv_ctl: CNTV_CTL_EL0;
}
