//! The world switch: registers that act on EL0 as well as on EL1, and so move
//! at every change between a guest and Gear2 (see `el1` for the rest).
//!
//! Order on Cortex-A57 and A72 (errata 1319367, 1319537): an empty stage 2
//! first, then HCR_EL2 and SCTLR_EL1, then the target's stage 2.

use gear1_core::context::{Frame, SCTLR_EL1_RESET, VcpuContext};

use crate::cpu::{hcr, set_fp_trap};
use crate::regs::{
    CntkctlEl1, ElrEl2, HcrEl2, SctlrEl1, SpEl0, SpsrEl2, TpidrEl0, TpidrroEl0, VttbrEl2,
};
use crate::{barrier, tlb};

/// What the switch needs to know of the machine and of Gear2.
#[derive(Clone, Copy, Debug, Default)]
pub struct World {
    /// VTTBR_EL2 of Gear2.
    pub gear2_vttbr: u64,
    /// VTTBR_EL2 of the empty stage 2.
    pub null_vttbr: u64,
    /// The CPU has one of the errata above.
    pub null_step: bool,
}

impl World {
    #[inline(always)]
    fn switch_stage2(&self, vttbr: u64, hcr: u64, sctlr: u64) {
        if self.null_step {
            VttbrEl2.set(self.null_vttbr);
            barrier::isb();
            HcrEl2.set(hcr);
            SctlrEl1.set(sctlr);
            barrier::isb();
            VttbrEl2.set(vttbr);
        } else {
            VttbrEl2.set(vttbr);
            HcrEl2.set(hcr);
            SctlrEl1.set(sctlr);
        }
    }

    /// Stores the guest's part and sets Gear2's constants. The ERET synchronizes.
    #[inline(always)]
    pub fn leave_guest(&self, guest: &mut VcpuContext, gear2: &Frame) {
        guest.frame.pc = ElrEl2.get();
        guest.frame.pstate = SpsrEl2.get();
        guest.frame.sp_el0 = SpEl0.get();
        guest.el1.sctlr = SctlrEl1.get();
        guest.el1.cntkctl = CntkctlEl1.get();
        guest.el1.tpidr_el0 = TpidrEl0.get();
        guest.el1.tpidrro_el0 = TpidrroEl0.get();
        self.switch_stage2(self.gear2_vttbr, hcr::GEAR2, SCTLR_EL1_RESET);
        // A guest's value would make its timer writable at EL0.
        CntkctlEl1.set(0);
        TpidrEl0.set(0);
        TpidrroEl0.set(0);
        set_fp_trap(true);
        load_return_state(gear2);
    }

    /// Stores Gear2's return state and sets the guest's part.
    #[inline(always)]
    pub fn enter_guest(
        &self,
        gear2: &mut Frame,
        guest: &VcpuContext,
        trap_wfe: bool,
        fp_trap: bool,
    ) {
        gear2.pc = ElrEl2.get();
        gear2.pstate = SpsrEl2.get();
        gear2.sp_el0 = SpEl0.get();
        let hcr = if trap_wfe {
            guest.hcr | hcr::TWE
        } else {
            guest.hcr
        };
        self.switch_stage2(guest.vttbr, hcr, guest.el1.sctlr);
        CntkctlEl1.set(guest.el1.cntkctl);
        TpidrEl0.set(guest.el1.tpidr_el0);
        TpidrroEl0.set(guest.el1.tpidrro_el0);
        set_fp_trap(fp_trap);
        load_return_state(&guest.frame);
    }

    /// Prepares the CPU to enter Gear2's loop for the first time.
    pub fn start_gear2(&self, gear2: &Frame) {
        self.switch_stage2(self.gear2_vttbr, hcr::GEAR2, SCTLR_EL1_RESET);
        tlb::invalidate_guests_local();
        CntkctlEl1.set(0);
        TpidrEl0.set(0);
        TpidrroEl0.set(0);
        load_return_state(gear2);
    }

    /// Runs `change` with `vttbr` installed, then puts Gear2's stage 2 back: for
    /// TLB maintenance of a VM that is not loaded. Called on behalf of Gear2.
    pub fn with_stage2(&self, vttbr: u64, change: impl FnOnce()) {
        VttbrEl2.set(vttbr);
        barrier::isb();
        change();
        VttbrEl2.set(self.gear2_vttbr);
        barrier::isb();
    }
}

#[inline(always)]
fn load_return_state(frame: &Frame) {
    ElrEl2.set(frame.pc);
    SpsrEl2.set(frame.pstate);
    SpEl0.set(frame.sp_el0);
}
