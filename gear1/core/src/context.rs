//! The register state of a vCPU, and of Gear2's loop, while it does not run.
//!
//! Plain data. The assembly of `gear1-arch` reaches the general registers by
//! `offset_of!`; they come first so that SP_EL2 can point at them while the
//! context runs.

use gear1_abi::call::vcpu_reg;
use gear1_abi::id::CpuIndex;
use gear1_abi::regs::Regs;

use crate::fault::Nesting;
use crate::icache::IcacheTry;
use crate::monitors::{Bank, Monitors};
use crate::pointer_auth::Keys;
use crate::set_way::SetWay;
use crate::syndrome::{INSTRUCTION, stepped_over};
use crate::timer::PhysicalTimer;
use crate::vcpu::Start;

/// State that every context has: general registers and the return state.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(16))]
pub struct Frame {
    /// X0 to X30.
    pub x: [u64; 31],
    /// Program counter (ELR_EL2).
    pub pc: u64,
    /// PSTATE (SPSR_EL2).
    pub pstate: u64,
    /// SP_EL0.
    pub sp_el0: u64,
}

impl Frame {
    /// Returns a general register; number 31 reads as zero (XZR).
    #[inline]
    pub fn reg(&self, number: u8) -> u64 {
        self.x.get(usize::from(number)).copied().unwrap_or(0)
    }

    /// Sets a general register; number 31 (XZR) is ignored.
    #[inline]
    pub fn set_reg(&mut self, number: u8, value: u64) {
        if let Some(reg) = self.x.get_mut(usize::from(number)) {
            *reg = value;
        }
    }

    /// Steps over the instruction at which the context stands.
    #[inline(always)]
    pub fn step_over(&mut self) {
        self.pc = self.pc.wrapping_add(INSTRUCTION);
        self.pstate = stepped_over(self.pstate);
    }

    /// Sets X0 to X7.
    #[inline]
    pub fn set_result(&mut self, regs: Regs) {
        for (x, value) in self.x.iter_mut().zip(regs) {
            *x = value;
        }
    }
}

/// EL1 and EL0 system registers of a guest, saved when another guest is loaded.
#[derive(Clone, Copy, Debug, Default)]
#[expect(
    missing_docs,
    reason = "each field has the name of the register it holds"
)]
pub struct El1State {
    pub sctlr: u64,
    pub cpacr: u64,
    pub ttbr0: u64,
    pub ttbr1: u64,
    pub tcr: u64,
    pub esr: u64,
    pub far: u64,
    pub afsr0: u64,
    pub afsr1: u64,
    pub mair: u64,
    pub amair: u64,
    pub vbar: u64,
    pub contextidr: u64,
    pub tpidr_el1: u64,
    pub sp_el1: u64,
    pub elr: u64,
    pub spsr: u64,
    pub par: u64,
    pub csselr: u64,
    pub tpidr_el0: u64,
    pub tpidrro_el0: u64,
    pub cntkctl: u64,
    pub cntv_ctl: u64,
    pub cntv_cval: u64,
    pub disr: u64,
}

impl El1State {
    /// All zero: stage 1 off, nothing enabled.
    pub const ZERO: Self = Self {
        sctlr: 0,
        cpacr: 0,
        ttbr0: 0,
        ttbr1: 0,
        tcr: 0,
        esr: 0,
        far: 0,
        afsr0: 0,
        afsr1: 0,
        mair: 0,
        amair: 0,
        vbar: 0,
        contextidr: 0,
        tpidr_el1: 0,
        tpidr_el0: 0,
        tpidrro_el0: 0,
        sp_el1: 0,
        elr: 0,
        spsr: 0,
        par: 0,
        csselr: 0,
        cntkctl: 0,
        cntv_ctl: 0,
        cntv_cval: 0,
        disr: 0,
    };
}

/// Most active-priority registers of a virtual CPU interface, per group.
pub const MAX_APR: usize = 4;

/// The virtual CPU interface beside its list registers.
#[derive(Clone, Copy, Debug, Default)]
pub struct GicCpuState {
    /// ICH_VMCR_EL2: the guest's PMR, enables, binary points.
    pub vmcr: u64,
    /// `ICH_AP0R<n>_EL2`.
    pub ap0r: [u32; MAX_APR],
    /// `ICH_AP1R<n>_EL2`.
    pub ap1r: [u32; MAX_APR],
}

/// FP and SIMD registers.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct FpState {
    /// V0 to V31, low half first.
    pub v: [[u64; 2]; 32],
    /// FPSR.
    pub fpsr: u64,
    /// FPCR.
    pub fpcr: u64,
}

impl FpState {
    /// Registers as at a vCPU's reset.
    pub const ZERO: Self = Self {
        v: [[0; 2]; 32],
        fpsr: 0,
        fpcr: 0,
    };

    /// Returns the registers from [`vcpu_reg::FP`] on.
    pub fn registers(&self) -> [u64; vcpu_reg::FP_COUNT] {
        let vectors = self.v.as_flattened().iter().copied();
        let mut all = [0; vcpu_reg::FP_COUNT];
        // Bound: 66 registers.
        for (register, value) in all.iter_mut().zip(vectors.chain([self.fpsr, self.fpcr])) {
            *register = value;
        }
        all
    }
}

/// All of a vCPU.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct VcpuContext {
    /// General registers; must be first.
    pub frame: Frame,
    /// HCR_EL2 while the vCPU runs.
    pub hcr: u64,
    /// VTTBR_EL2 while the vCPU runs.
    pub vttbr: u64,
    /// VMPIDR_EL2: the MPIDR that the guest reads.
    pub vmpidr: u64,
    /// CPU that the vCPU was loaded on last, whose TLBs may hold the vCPU's translations.
    pub cpu: Option<CpuIndex>,
    /// System registers.
    pub el1: El1State,
    /// CNTVOFF_EL2: start of the VM, in ticks of the physical counter.
    pub cntvoff: u64,
    /// The EL1 physical timer.
    pub physical_timer: PhysicalTimer,
    /// Features that the manifest gives the VM: [`DEBUG`](crate::monitors::DEBUG),
    /// [`PMU`](crate::monitors::PMU), [`POINTER_AUTH`](crate::pointer_auth::POINTER_AUTH),
    /// [`SVE`](crate::sve::SVE).
    pub features: u64,
    /// Keys of pointer authentication.
    pub keys: Keys,
    /// Debug and performance monitor state that must be switched with every exit.
    pub monitors: Monitors,
    /// Remaining debug and performance monitor state.
    pub bank: Bank,
    /// Virtual CPU interface.
    pub gic: GicCpuState,
    /// ESR_EL2 of the access that waits for Gear2's reply.
    pub awaited_esr: u64,
    /// FAR_EL2 of that access.
    pub awaited_far: u64,
    /// Detector of a vCPU that takes one exception again and again.
    pub nesting: Nesting,
    /// State of cache maintenance by set/way.
    pub set_way: SetWay,
    /// State of an IC IALLUIS that is under way.
    pub icache: IcacheTry,
    /// Life of the VM, by the number of starts, in which the vCPU began last: the registers are of
    /// that one, however often the VM was started since.
    pub life: u32,
    /// FP and SIMD registers, unless a CPU still holds them. Those of SVE are in memory of their own
    /// ([`layout::el2::SVE`](gear1_abi::layout::el2::SVE)).
    pub fp: FpState,
}

/// PSTATE of a vCPU's first instruction: EL1h, everything masked.
pub const PSTATE_EL1H_MASKED: u64 = 0x3c5;
/// PSTATE of Gear2: EL0, everything masked.
pub const PSTATE_EL0_MASKED: u64 = 0x3c0;
/// PSTATE of Gear2 at EL1: EL1t, so that its stack pointer is SP_EL0 as at EL0, everything masked.
pub const PSTATE_EL1T_MASKED: u64 = 0x3c4;
/// SCTLR_EL1 at a vCPU's reset and for Gear2: RES1 bits of Armv8.0, MMU and
/// caches off, little-endian (Arm ARM D19.2.118).
pub const SCTLR_EL1_RESET: u64 = 0x30d0_0800;

/// HCR_EL2.VSE, VI and VF: a virtual SError, IRQ and FIQ that are pending (Arm ARM D24.2.57).
pub const HCR_VIRTUAL_PENDING: u64 = 0b111 << 6;

impl VcpuContext {
    /// A context that has never run.
    pub const EMPTY: Self = Self {
        frame: Frame {
            x: [0; 31],
            pc: 0,
            pstate: 0,
            sp_el0: 0,
        },
        hcr: 0,
        vttbr: 0,
        vmpidr: 0,
        cpu: None,
        el1: El1State::ZERO,
        cntvoff: 0,
        physical_timer: PhysicalTimer::OFF,
        features: 0,
        keys: [0; 10],
        monitors: Monitors::NONE,
        bank: Bank::ZERO,
        gic: GicCpuState {
            vmcr: 0,
            ap0r: [0; MAX_APR],
            ap1r: [0; MAX_APR],
        },
        awaited_esr: 0,
        awaited_far: 0,
        nesting: Nesting::NONE,
        set_way: SetWay::NONE,
        icache: IcacheTry::NONE,
        life: 0,
        fp: FpState::ZERO,
    };

    /// Returns the registers that tell people where the vCPU was, by their numbers in
    /// [`vcpu_reg`].
    pub fn registers(&self) -> [u64; vcpu_reg::COUNT] {
        let Self { frame, el1, .. } = self;
        let others = [
            (vcpu_reg::SP_EL0, frame.sp_el0),
            (vcpu_reg::PC, frame.pc),
            (vcpu_reg::PSTATE, frame.pstate),
            (vcpu_reg::SP_EL1, el1.sp_el1),
            (vcpu_reg::ELR, el1.elr),
            (vcpu_reg::SPSR, el1.spsr),
            (vcpu_reg::ESR, el1.esr),
            (vcpu_reg::FAR, el1.far),
            (vcpu_reg::VBAR, el1.vbar),
            (vcpu_reg::TTBR0, el1.ttbr0),
            (vcpu_reg::TTBR1, el1.ttbr1),
            (vcpu_reg::SCTLR, el1.sctlr),
            (vcpu_reg::TCR, el1.tcr),
        ];
        let mut all = [0; vcpu_reg::COUNT];
        // Bound: 31 registers.
        for (register, value) in all.iter_mut().zip(frame.x) {
            *register = value;
        }
        // Bound: 13 registers.
        for (number, value) in others {
            if let Some(register) = all.get_mut(number) {
                *register = value;
            }
        }
        all
    }

    /// Puts the vCPU into its reset state, to start as `start` says (PSCI, Arm DEN 0022, 6.4: MMU
    /// and caches off, EL1, interrupts masked). Timers run on when it wakes from power-down
    /// (G1-TIM-009), and are off otherwise; `cntvoff` is for the latter.
    pub fn reset(&mut self, start: Start, cntvoff: u64) {
        let old = *self;
        *self = Self::EMPTY;
        self.vttbr = old.vttbr;
        self.vmpidr = old.vmpidr;
        self.cpu = old.cpu;
        // Pending virtual exceptions belong to the VM's previous life.
        // planted: a virtual SError outlives a reset
        self.hcr = old.hcr & !HCR_VIRTUAL_PENDING;
        self.features = old.features;
        self.monitors.has = old.monitors.has;
        self.cntvoff = cntvoff;
        // planted: a warm start turns the timers off
        if start.warm {
            self.keep_timers(&old);
        }
        self.frame.pc = start.pc;
        self.frame.pstate = PSTATE_EL1H_MASKED;
        self.frame.set_reg(0, start.argument);
        self.el1.sctlr = SCTLR_EL1_RESET;
    }

    const fn keep_timers(&mut self, old: &Self) {
        self.el1.cntv_ctl = old.el1.cntv_ctl;
        self.el1.cntv_cval = old.el1.cntv_cval;
        self.cntvoff = old.cntvoff;
        self.physical_timer = old.physical_timer;
    }
}

#[cfg(test)]
mod tests;
