//! EL1 and EL0 system registers of the loaded guest.
//!
//! They stay loaded while Gear2 runs and move only between two guests. The few
//! that act on EL0, and so on Gear2, move at every entry of Gear2 instead
//! (`world`): SCTLR_EL1, CNTKCTL_EL1, TPIDR_EL0, TPIDRRO_EL0 and SP_EL0.

use gear1_core::context::El1State;

use crate::regs::{
    Afsr0El1, Afsr1El1, AmairEl1, CntvCtlEl0, CntvCvalEl0, ContextidrEl1, CpacrEl1, CsselrEl1,
    ElrEl1, EsrEl1, FarEl1, MairEl1, ParEl1, SpEl1, SpsrEl1, TcrEl1, TpidrEl1, Ttbr0El1, Ttbr1El1,
    VbarEl1,
};

macro_rules! el1_registers {
    ($($field:ident: $reg:ident),+ $(,)?) => {
        /// Stores the registers that stay loaded while Gear2 runs.
        pub fn save(state: &mut El1State) {
            $(state.$field = $reg.get();)+
        }

        /// Loads them. A context synchronization event (the ERET) must come
        /// before the guest's first instruction.
        pub fn restore(state: &El1State) {
            $($reg.set(state.$field);)+
        }
    };
}

el1_registers! {
    cpacr: CpacrEl1,
    ttbr0: Ttbr0El1,
    ttbr1: Ttbr1El1,
    tcr: TcrEl1,
    esr: EsrEl1,
    far: FarEl1,
    afsr0: Afsr0El1,
    afsr1: Afsr1El1,
    mair: MairEl1,
    amair: AmairEl1,
    vbar: VbarEl1,
    contextidr: ContextidrEl1,
    tpidr_el1: TpidrEl1,
    sp_el1: SpEl1,
    elr: ElrEl1,
    spsr: SpsrEl1,
    par: ParEl1,
    csselr: CsselrEl1,
    cntv_cval: CntvCvalEl0,
    cntv_ctl: CntvCtlEl0,
}
