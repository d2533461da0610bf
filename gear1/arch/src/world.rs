//! The world switch: registers that act on EL0 as well as on EL1, and so move
//! at every change between a guest and Gear2 (see `el1` for the rest).
//!
//! Order on Cortex-A57 and A72 (errata 1319537, 1319367): an empty stage 2
//! first, then HCR_EL2 and SCTLR_EL1, then the target's stage 2.
//!
//! Requirements: G1-RUN-003. G1-TIM-006.

use gear1_abi::call::Waits;
use gear1_abi::id::VmId;
use gear1_abi::layout::gear2;
use gear1_core::context::{El1State, Frame, SCTLR_EL1_RESET, VcpuContext};

use crate::cpu::{FpAccess, hcr, set_fp_access};
use crate::handover::Handover;
use crate::regs::{
    CNTKCTL_EL1, ELR_EL2, HCR_EL2, Readable as _, SCTLR_EL1, SP_EL0, SPSR_EL2, TPIDR_EL0,
    TPIDRRO_EL0, VTTBR_EL2, Writeable as _,
};
use crate::{barrier, cpu, el1, exception, monitors, serror, tlb};

/// Facts about the machine and about Gear2 that the world switch needs.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// VTTBR_EL2 of Gear2.
    gear2_vttbr: u64,
    /// FP, SIMD and SVE registers that Gear2 reaches: none. This constant and the two below are kept
    /// here because one LDP loads two fields, where each constant takes two instructions.
    gear2_fp: FpAccess,
    /// SCTLR_EL1 of Gear2 at EL0; unused at EL1.
    gear2_sctlr: u64,
    /// HCR_EL2 of Gear2 at EL0; unused at EL1.
    gear2_hcr: u64,
    /// VTTBR_EL2 of the empty stage 2.
    null_vttbr: u64,
    /// Bits of [`kind`]: one load serves all questions of an exit.
    kinds: u8,
}

/// Proof that the short ways between a guest and Gear2 are enough for an exit, from
/// [`World::short_way`].
#[derive(Debug)]
pub struct ShortWay {
    /// The empty stage 2 is to stand in between.
    null_step: bool,
}

/// Facts of which [`World`] has a bit each.
mod kind {
    /// The empty stage 2 is to stand in between: the CPU has one of the errata above, or Gear2 runs
    /// at EL1.
    pub(super) const NULL_STEP: u8 = 1 << 0;
    /// Gear2 runs at EL1: all of a guest's EL1 registers leave when it is entered.
    pub(super) const EL1: u8 = 1 << 1;
    /// The CPU has FEAT_RAS.
    pub(super) const RAS: u8 = 1 << 2;
    /// Gear2 never runs on this CPU.
    pub(super) const NO_GEAR2: u8 = 1 << 3;
    /// The short ways between a guest and Gear2 are not enough: Gear2 runs at EL1 or never here, or
    /// the loaded vCPU has monitors.
    pub(super) const LONG: u8 = 1 << 4;
}

/// Position of the VMID in VTTBR_EL2.
const VMID_SHIFT: u32 = 48;

fn vttbr(root: u64, vmid: u16) -> u64 {
    u64::from(vmid) << VMID_SHIFT | root
}

/// Returns VTTBR_EL2 of a VM.
#[must_use]
pub fn vttbr_of(boot: Handover, vm: VmId) -> u64 {
    let vm = vm.select(&boot.vms);
    vttbr(vm.root, vm.vmid)
}

fn null_vttbr(boot: Handover) -> u64 {
    vttbr(boot.null_root, boot.null_vmid)
}

/// EL1 registers for a Gear2 at EL1.
const GEAR2_EL1: El1State = El1State {
    vbar: gear2::VECTORS,
    ..El1State::ZERO
};

impl World {
    /// Of a CPU that is not up; all zero.
    pub const NONE: Self = Self {
        gear2_vttbr: 0,
        gear2_fp: FpAccess::UNSET,
        gear2_sctlr: 0,
        gear2_hcr: 0,
        null_vttbr: 0,
        kinds: 0,
    };

    /// Returns what holds on the calling CPU.
    #[must_use]
    pub fn of_this_cpu(boot: Handover) -> Self {
        let mut kinds = 0;
        if boot.gear2.el1 {
            kinds |= kind::EL1 | kind::LONG | kind::NULL_STEP;
        }
        if cpu::needs_null_stage2() {
            kinds |= kind::NULL_STEP;
        }
        if cpu::has_ras() {
            kinds |= kind::RAS;
        }
        Self {
            gear2_vttbr: vttbr(boot.gear2.root, boot.gear2.vmid),
            gear2_fp: FpAccess::NONE,
            gear2_sctlr: SCTLR_EL1_RESET,
            gear2_hcr: hcr::GEAR2,
            null_vttbr: null_vttbr(boot),
            kinds,
        }
    }

    /// Returns the same for a CPU that never runs Gear2: the empty stage 2 stands in its place.
    #[must_use]
    pub const fn without_gear2(self) -> Self {
        Self {
            gear2_vttbr: self.null_vttbr,
            kinds: self.kinds | kind::NO_GEAR2 | kind::LONG,
            ..self
        }
    }

    /// Notes whether the vCPU that is loaded from now on has monitors, which move on the long ways
    /// alone.
    pub const fn note_monitors(&mut self, has: bool) {
        // planted: a vCPU with monitors takes the short ways
        if has || self.is(kind::EL1) || self.is(kind::NO_GEAR2) {
            self.kinds |= kind::LONG;
        } else {
            self.kinds &= !kind::LONG;
        }
    }

    #[inline(always)]
    const fn is(&self, kind: u8) -> bool {
        self.kinds & kind != 0
    }

    /// Tells whether Gear2 runs at EL1.
    #[must_use]
    #[inline(always)]
    pub const fn is_gear2_at_el1(&self) -> bool {
        self.is(kind::EL1)
    }

    /// Changes to Gear2's stage 2 and what goes with it.
    #[inline(always)]
    fn switch_to_gear2(&self, guest: Option<&mut VcpuContext>) {
        if self.is(kind::EL1) {
            self.switch_to_gear2_at_el1(guest);
        } else {
            self.switch_to_gear2_at_el0(self.is(kind::NULL_STEP));
        }
    }

    #[inline(never)]
    fn switch_to_gear2_at_el1(&self, guest: Option<&mut VcpuContext>) {
        if let Some(guest) = guest {
            el1::save(&mut guest.el1);
        }
        self.begin_null_step(true);
        SCTLR_EL1.set(SCTLR_EL1_RESET);
        HCR_EL2.set(hcr::GEAR2_EL1);
        el1::restore(&GEAR2_EL1);
        end_null_step(true);
        VTTBR_EL2.set(self.gear2_vttbr);
        set_fp_access(self.gear2_fp);
    }

    #[inline(always)]
    fn switch_to_gear2_at_el0(&self, null_step: bool) {
        let (sctlr, hcr) = (self.gear2_sctlr, self.gear2_hcr);
        self.begin_null_step(null_step);
        SCTLR_EL1.set(sctlr);
        HCR_EL2.set(hcr);
        end_null_step(null_step);
        let (vttbr, fp) = (self.gear2_vttbr, self.gear2_fp);
        // planted: Gear2 runs in the guest's stage 2
        VTTBR_EL2.set(vttbr);
        set_fp_access(fp);
    }

    /// Installs the empty stage 2, where it is to stand between two others. Elsewhere nothing is
    /// synchronized between the writes of VTTBR_EL2, HCR_EL2 and SCTLR_EL1: EL2 uses none of them
    /// for its own translations, and ERET, a context synchronization event, comes before whoever
    /// does.
    #[inline(always)]
    fn begin_null_step(&self, null_step: bool) {
        if null_step {
            VTTBR_EL2.set(self.null_vttbr);
            barrier::isb();
        }
    }

    /// Changes to a guest's stage 2 and what goes with it.
    #[inline(always)]
    fn switch_to_guest(&self, guest: &VcpuContext) {
        if self.is(kind::EL1) {
            self.switch_from_el1_to_guest(guest);
        } else {
            self.switch_from_el0_to_guest(guest, self.is(kind::NULL_STEP));
        }
    }

    #[inline(never)]
    fn switch_from_el1_to_guest(&self, guest: &VcpuContext) {
        self.begin_null_step(true);
        HCR_EL2.set(guest.hcr);
        SCTLR_EL1.set(guest.el1.sctlr);
        el1::restore(&guest.el1);
        end_null_step(true);
        VTTBR_EL2.set(guest.vttbr);
    }

    #[inline(always)]
    fn switch_from_el0_to_guest(&self, guest: &VcpuContext, null_step: bool) {
        // planted: a vCPU runs in the stage 2 of the one before
        let (hcr, vttbr) = (guest.hcr, guest.vttbr);
        self.begin_null_step(null_step);
        HCR_EL2.set(hcr);
        SCTLR_EL1.set(guest.el1.sctlr);
        end_null_step(null_step);
        VTTBR_EL2.set(vttbr);
    }

    fn switch_vttbr(&self, vttbr: u64) {
        if self.is(kind::NULL_STEP) {
            VTTBR_EL2.set(self.null_vttbr);
            barrier::isb();
        }
        VTTBR_EL2.set(vttbr);
        barrier::isb();
    }

    /// Stores the guest's part and sets Gear2's constants. The ERET synchronizes.
    ///
    /// # Safety
    ///
    /// The guest, whose registers `guest` holds, has trapped on this CPU, and `gear2` is the frame
    /// that its `ThisCpu` restores next. `self` is of this CPU. `gear2.pstate` is EL0's, or with
    /// Gear2 at EL1 EL1's.
    #[inline(always)]
    pub unsafe fn leave_guest(&self, guest: &mut VcpuContext, gear2: &Frame) {
        note_virtual_serror(guest);
        // planted: a guest's SError is left to Gear2
        if serror::collect(self.is(kind::RAS)) {
            guest.hcr |= hcr::VSE;
        }
        if guest.monitors.has != 0 {
            monitors::leave(&mut guest.monitors);
        }
        store_guest(guest);
        self.switch_to_gear2(Some(guest));
        self.set_gear2(gear2);
    }

    /// Tells whether the short ways between the loaded guest and Gear2 are enough: Gear2 runs on this
    /// CPU, at EL0, the guest has no monitors, and the context that ran has left no SError.
    #[inline(always)]
    #[must_use]
    pub fn short_way(&self) -> Option<ShortWay> {
        let kinds = self.kinds;
        // planted: the short ways leave a guest's SError to Gear2
        if kinds & kind::LONG != 0 || serror::is_noted(kinds & kind::RAS != 0) {
            return None;
        }
        Some(ShortWay {
            null_step: kinds & kind::NULL_STEP != 0,
        })
    }

    /// Does as [`World::leave_guest`] does, without a function that needs the stack.
    ///
    /// # Safety
    ///
    /// As for [`World::leave_guest`]. `way` is of this exit, and [`World::note_monitors`] was told of
    /// the guest's monitors when it was loaded.
    #[inline(always)]
    pub unsafe fn leave_guest_shortly(
        &self,
        way: ShortWay,
        guest: &mut VcpuContext,
        gear2: &Frame,
    ) {
        note_virtual_serror(guest);
        store_guest(guest);
        self.switch_to_gear2_at_el0(way.null_step);
        self.set_gear2(gear2);
    }

    /// Stores Gear2's return state and sets the guest's part.
    ///
    /// # Safety
    ///
    /// Gear2, whose frame `gear2` is, has trapped on this CPU, or never runs here. The CPU's
    /// `ThisCpu` restores `guest.frame` next. `self` is of this CPU. In `guest`, `vttbr` is
    /// [`vttbr_of`] the guest's VM, `hcr` is `hcr::GUEST` with at most the traps less that the VM's
    /// mode allows, as [`hcr_with`] changed it last, and `frame.pstate` is EL0's or EL1's. The
    /// registers that `access` opens hold the guest's values.
    #[inline(always)]
    pub unsafe fn enter_guest(&self, gear2: &mut Frame, guest: &VcpuContext, access: FpAccess) {
        store_return_state(gear2);
        self.switch_to_guest(guest);
        set_guest(guest, access);
        if guest.monitors.has != 0 {
            monitors::enter(&guest.monitors);
        }
        load_return_state(&guest.frame);
    }

    /// Does as [`World::enter_guest`] does, without a function that needs the stack.
    ///
    /// # Safety
    ///
    /// As for [`World::enter_guest`]. `way` is of this exit, and [`World::note_monitors`] was told of
    /// the guest's monitors when it was loaded.
    #[inline(always)]
    pub unsafe fn enter_guest_shortly(
        &self,
        way: ShortWay,
        gear2: &mut Frame,
        guest: &VcpuContext,
        access: FpAccess,
    ) {
        store_return_state(gear2);
        self.switch_from_el0_to_guest(guest, way.null_step);
        set_guest(guest, access);
        load_return_state(&guest.frame);
    }

    /// Sets the constants that Gear2 runs with, and its return state.
    #[inline(always)]
    fn set_gear2(&self, gear2: &Frame) {
        // A guest's value would make its timer writable at EL0.
        CNTKCTL_EL1.set(0);
        // planted: Gear2 sees a guest's thread pointer
        TPIDR_EL0.set(0);
        TPIDRRO_EL0.set(0);
        load_return_state(gear2);
    }

    /// Prepares the CPU to enter Gear2's loop for the first time.
    ///
    /// # Safety
    ///
    /// As for [`World::leave_guest`], but that no guest's registers are kept.
    pub unsafe fn start_gear2(&self, gear2: &Frame) {
        self.switch_to_gear2(None);
        // Of the image that was there before, translations and instructions.
        tlb::invalidate_guests_local();
        self.set_gear2(gear2);
    }

    /// Runs `change` with the VM's stage 2 installed, then puts Gear2's back: for TLB maintenance
    /// of a VM that is not loaded.
    ///
    /// # Safety
    ///
    /// Gear2's stage 2 is installed, or another is before the CPU leaves EL2. `self` is of this
    /// CPU.
    pub unsafe fn with_stage2(&self, boot: Handover, vm: VmId, change: impl FnOnce()) {
        self.switch_vttbr(vttbr_of(boot, vm));
        change();
        self.switch_vttbr(self.gear2_vttbr);
    }
}

/// Invalidates the TLB entries of a VM on every CPU, while the stage 2 of another context is
/// installed: a guest's, which resumes afterwards, or Gear2's.
///
/// HCR_EL2.DC and TGE prevent walks meanwhile, and each step has the empty stage 2 on either side:
/// else stage 1 of one context would be walked under the VMID of the other (errata 1319367,
/// 1319537).
#[inline(never)]
pub fn invalidate_other_vmid(boot: Handover, vm: VmId) {
    let (vttbr, null_vttbr) = (vttbr_of(boot, vm), null_vttbr(boot));
    let (own_vttbr, own_hcr) = (VTTBR_EL2.get(), HCR_EL2.get());
    VTTBR_EL2.set(null_vttbr);
    barrier::isb();
    HCR_EL2.set(hcr::GEAR2);
    barrier::isb();
    VTTBR_EL2.set(vttbr);
    barrier::isb();
    tlb::invalidate_current_vmid();
    VTTBR_EL2.set(null_vttbr);
    barrier::isb();
    HCR_EL2.set(own_hcr);
    barrier::isb();
    VTTBR_EL2.set(own_vttbr);
    barrier::isb();
}

/// Keeps a virtual SError that the guest has not taken yet: it stays the guest's own. Where
/// HCR_EL2.VSE is set, the guest's word has it as well, from its entry on or by [`pend_serror`].
/// Other bits are not taken over: one of a feature that this CPU lacks reads as zero here, and is the
/// guest's all the same on a CPU that has the feature.
#[inline(always)]
fn note_virtual_serror(guest: &mut VcpuContext) {
    if guest.hcr & hcr::VSE != 0 && HCR_EL2.get() & hcr::VSE == 0 {
        guest.hcr &= !hcr::VSE;
    }
}

/// Makes a virtual SError pending for the guest, which has trapped and goes on.
pub fn pend_serror(guest: &mut VcpuContext) {
    guest.hcr |= hcr::VSE;
    exception::pend_serror();
}

/// Stores the guest's registers that act at EL0, and where it goes on. All of a group are read
/// before they are stored, in pairs.
#[inline(always)]
fn store_guest(guest: &mut VcpuContext) {
    store_return_state(&mut guest.frame);
    let (tpidr_el0, tpidrro_el0) = (TPIDR_EL0.get(), TPIDRRO_EL0.get());
    (guest.el1.tpidr_el0, guest.el1.tpidrro_el0) = (tpidr_el0, tpidrro_el0);
    guest.el1.cntkctl = CNTKCTL_EL1.get();
    guest.el1.sctlr = SCTLR_EL1.get();
}

/// Lets the stage 2 that comes next take effect behind all that changed since
/// [`World::begin_null_step`].
#[inline(always)]
fn end_null_step(null_step: bool) {
    if null_step {
        barrier::isb();
    }
}

/// Stores where the context that has trapped goes on.
#[inline(always)]
fn store_return_state(frame: &mut Frame) {
    let (pc, pstate) = (ELR_EL2.get(), SPSR_EL2.get());
    (frame.pc, frame.pstate) = (pc, pstate);
    frame.sp_el0 = SP_EL0.get();
}

/// Returns HCR_EL2 of a guest with the traps that its waits need.
#[must_use]
pub const fn hcr_with(hcr: u64, waits: Waits) -> u64 {
    let others = hcr & !(hcr::TWI | hcr::TWE);
    // Without branches, as each switch to another vCPU comes by here.
    let waits = waits as u64;
    let twi = (!waits & Waits::Alone as u64) << (hcr::TWI.ilog2() - (Waits::Alone as u64).ilog2());
    let twe =
        (waits & Waits::GivesWay as u64) << (hcr::TWE.ilog2() - (Waits::GivesWay as u64).ilog2());
    others | twi | twe
}

/// Sets the guest's registers that act at EL0.
#[inline(always)]
fn set_guest(guest: &VcpuContext, access: FpAccess) {
    let (tpidr_el0, tpidrro_el0) = (guest.el1.tpidr_el0, guest.el1.tpidrro_el0);
    // planted: EL0 reaches the timers whatever the guest says
    CNTKCTL_EL1.set(guest.el1.cntkctl);
    // planted: a vCPU finds another's thread pointer
    TPIDR_EL0.set(tpidr_el0);
    TPIDRRO_EL0.set(tpidrro_el0);
    set_fp_access(access);
}

#[inline(always)]
fn load_return_state(frame: &Frame) {
    let (pc, pstate) = (frame.pc, frame.pstate);
    ELR_EL2.set(pc);
    SPSR_EL2.set(pstate);
    SP_EL0.set(frame.sp_el0);
}
