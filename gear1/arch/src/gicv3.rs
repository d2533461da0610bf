//! The physical GICv3 and its virtual CPU interface (Arm IHI 0069).
//!
//! EOImode is 1 on every CPU that Gear2 has: EOIR drops the priority, and the
//! interrupt stays active until the guest's own EOI (list register with HW = 1)
//! or [`deactivate`]. All interrupts are Group 1 with one priority; a guest's
//! priorities exist only in its virtual GIC.

use gear1_abi::id::CpuIndex;
use gear1_abi::layout::el2;
use gear1_core::context::GicCpuState;
use gear1_core::vgic::{IntId, ListRegisters, Lr, LrState, Maintenance};

use crate::barrier;
use crate::mmio::Mmio;
use crate::regs::{
    IccBpr1El1, IccCtlrEl1, IccDirEl1, IccEoir1El1, IccIar1El1, IccIgrpen1El1, IccPmrEl1,
    IccSgi1rEl1, IccSreEl1, IccSreEl2, IchAp0r0El2, IchAp0r1El2, IchAp0r2El2, IchAp0r3El2,
    IchAp1r0El2, IchAp1r1El2, IchAp1r2El2, IchAp1r3El2, IchElrsrEl2, IchHcrEl2, IchLr0El2,
    IchLr1El2, IchLr2El2, IchLr3El2, IchLr4El2, IchLr5El2, IchLr6El2, IchLr7El2, IchLr8El2,
    IchLr9El2, IchLr10El2, IchLr11El2, IchLr12El2, IchLr13El2, IchLr14El2, IchLr15El2, IchVmcrEl2,
    IchVtrEl2,
};

/// PPI of the list registers' maintenance.
pub const MAINTENANCE: u32 = 25;
/// PPI of the EL2 physical timer.
pub const HYP_TIMER: u32 = 26;
/// PPI of the virtual timer.
pub const VIRTUAL_TIMER: u32 = 27;
/// SGI by which Gear1's CPUs kick one another.
pub const KICK: u32 = 0;

/// INTIDs from here on are special: nothing pending.
const SPECIAL: u32 = 1020;
/// One priority for all: below PMR, above nothing.
const PRIORITY: u32 = 0x8080_8080;

const GICD_CTLR: usize = 0x0;
const GICD_IGROUPR: usize = 0x80;
const GICD_ISENABLER: usize = 0x100;
const GICD_ICENABLER: usize = 0x180;
const GICD_IPRIORITYR: usize = 0x400;
const GICD_ICFGR: usize = 0xc00;
const GICD_IROUTER: usize = 0x6000;
const GICR_WAKER: usize = 0x14;
const SGI_FRAME: usize = 0x1_0000;
const GICR_ISACTIVER0: usize = SGI_FRAME + 0x300;
const GICR_ICACTIVER0: usize = SGI_FRAME + 0x380;
const GICR_SIZE: u64 = 0x2_0000;
const GICD_SIZE: u64 = 0x1_0000;
const CTLR_RWP: u32 = 1 << 31;
const CTLR_ARE_GRP1: u32 = 0x12;
const WAKER_SLEEP: u32 = 1 << 1;
const WAKER_ASLEEP: u32 = 1 << 2;
/// Polls of a register that the GIC changes by itself before it is taken as done.
const PATIENCE: u32 = 100_000;

/// ICH_HCR_EL2.En.
const HCR_EN: u64 = 1;
/// ICH_HCR_EL2.UIE: underflow.
const HCR_UIE: u64 = 1 << 1;
/// ICH_HCR_EL2.NPIE: no pending.
const HCR_NPIE: u64 = 1 << 3;
/// ICH_HCR_EL2.TDIR: trap ICC_DIR_EL1.
const HCR_TDIR: u64 = 1 << 14;
const SRE_ALL: u64 = 0xf;

/// The distributor, shared by all CPUs.
fn distributor() -> Mmio {
    // SAFETY: init maps the distributor at this address for good, and this module
    // is its only user.
    unsafe { Mmio::new(el2::GICD, GICD_SIZE) }
}

/// The redistributor of a CPU. Its own CPU is its user.
fn redistributor(cpu: CpuIndex) -> Mmio {
    // SAFETY: init maps each CPU's two frames at this address for good.
    unsafe {
        Mmio::new(
            el2::GICR.wrapping_add(cpu.reg().wrapping_mul(GICR_SIZE)),
            GICR_SIZE,
        )
    }
}

fn poll(registers: Mmio, offset: usize, busy: u32) {
    for _ in 0..PATIENCE {
        if registers.read32(offset) & busy == 0 {
            return;
        }
        barrier::yield_hint();
    }
}

/// Sets the distributor up: everything off but affinity routing and Group 1.
/// Called once, by the boot CPU.
pub fn init_distributor() {
    let gicd = distributor();
    gicd.write32(GICD_CTLR, 0);
    poll(gicd, GICD_CTLR, CTLR_RWP);
    let lines = (gicd.read32(4) & 0x1f) as usize;
    for word in 1..=lines {
        let at = word.wrapping_mul(4);
        gicd.write32(GICD_ICENABLER.wrapping_add(at), u32::MAX);
        gicd.write32(GICD_IGROUPR.wrapping_add(at), u32::MAX);
        for byte in 0..8_usize {
            let priority = word.wrapping_mul(32).wrapping_add(byte.wrapping_mul(4));
            gicd.write32(GICD_IPRIORITYR.wrapping_add(priority), PRIORITY);
        }
    }
    poll(gicd, GICD_CTLR, CTLR_RWP);
    gicd.write32(GICD_CTLR, CTLR_ARE_GRP1);
    poll(gicd, GICD_CTLR, CTLR_RWP);
}

/// Sets up this CPU's redistributor, CPU interface and virtual CPU interface.
pub fn init_cpu(cpu: CpuIndex) {
    IccSreEl2.set(SRE_ALL);
    barrier::isb();
    let gicr = redistributor(cpu);
    gicr.write32(GICR_WAKER, gicr.read32(GICR_WAKER) & !WAKER_SLEEP);
    poll(gicr, GICR_WAKER, WAKER_ASLEEP);
    gicr.write32(SGI_FRAME + GICD_ICENABLER, u32::MAX);
    gicr.write32(GICR_ICACTIVER0, u32::MAX);
    gicr.write32(SGI_FRAME + GICD_IGROUPR, u32::MAX);
    for byte in 0..8_usize {
        gicr.write32(
            (SGI_FRAME + GICD_IPRIORITYR).wrapping_add(byte.wrapping_mul(4)),
            PRIORITY,
        );
    }
    let used = 1 << KICK | 1 << MAINTENANCE | 1 << HYP_TIMER | 1 << VIRTUAL_TIMER;
    gicr.write32(SGI_FRAME + GICD_ISENABLER, used);
    poll(gicr, 0, 1 << 3);
    IccPmrEl1.set(0xff);
    IccBpr1El1.set(0);
    // EOImode = 1.
    IccCtlrEl1.set(1 << 1);
    IccIgrpen1El1.set(1);
    IccSreEl1.set(7);
    IchHcrEl2.set(HCR_EN);
    barrier::isb();
}

/// Enables a shared interrupt and routes it to the CPU with `affinity`.
/// Called by the boot CPU before any guest runs.
pub fn enable_spi(intid: u32, edge: bool, affinity: u64) {
    let gicd = distributor();
    let index = intid as usize;
    let config = GICD_ICFGR.wrapping_add((index / 16).wrapping_mul(4));
    let bit = 2_u32.wrapping_shl(intid % 16 * 2);
    let old = gicd.read32(config);
    gicd.write32(config, if edge { old | bit } else { old & !bit });
    gicd.write64(GICD_IROUTER.wrapping_add(index.wrapping_mul(8)), affinity);
    gicd.write32(
        GICD_ISENABLER.wrapping_add((index / 32).wrapping_mul(4)),
        1_u32.wrapping_shl(intid),
    );
}

/// Acknowledges the highest pending interrupt.
#[inline(always)]
pub fn acknowledge() -> Option<u32> {
    let intid = IccIar1El1.get() as u32 & 0xff_ffff;
    (intid < SPECIAL).then_some(intid)
}

/// Drops the running priority; the interrupt stays active.
#[inline(always)]
pub fn drop_priority(intid: u32) {
    IccEoir1El1.set(u64::from(intid));
}

/// Ends an interrupt whose priority was dropped.
#[inline(always)]
pub fn deactivate(intid: u32) {
    IccDirEl1.set(u64::from(intid));
}

/// Interrupts the CPU with `affinity` with [`KICK`].
pub fn kick(affinity: u64) {
    let aff0 = affinity & 0xff;
    let list = 1_u64.wrapping_shl((aff0 & 0xf) as u32);
    let range = (aff0 >> 4) << 44;
    let aff1 = ((affinity >> 8) & 0xff) << 16;
    let aff2 = ((affinity >> 16) & 0xff) << 32;
    let aff3 = ((affinity >> 32) & 0xff) << 48;
    // What the target is to see must be visible before the interrupt is (Arm ARM B2.3).
    barrier::dsb_ishst();
    IccSgi1rEl1.set(aff3 | range | aff2 | u64::from(KICK) << 24 | aff1 | list);
    barrier::isb();
}

/// Makes the physical virtual-timer interrupt active or inactive on this CPU:
/// the active state belongs to the vCPU whose list register is linked to it.
pub fn set_timer_active(cpu: CpuIndex, active: bool) {
    let offset = if active {
        GICR_ISACTIVER0
    } else {
        GICR_ICACTIVER0
    };
    redistributor(cpu).write32(offset, 1 << VIRTUAL_TIMER);
}

/// Turns the virtual CPU interface off, so that pending list registers do not
/// keep this CPU out of WFI, or on again.
pub fn set_virtual_interface(on: bool) {
    let hcr = IchHcrEl2.get();
    IchHcrEl2.set(if on { hcr | HCR_EN } else { hcr & !HCR_EN });
    barrier::isb();
}

/// Returns how many list registers there are, at most 16.
pub fn list_register_count() -> usize {
    (IchVtrEl2.get() & 0x1f).wrapping_add(1).min(16) as usize
}

macro_rules! list_registers {
    ($($index:literal: $reg:ident),+ $(,)?) => {
        /// Reads a list register; one that does not exist reads as empty.
        #[inline]
        fn list_register(index: usize) -> u64 {
            match index { $($index => $reg.get(),)+ _ => 0 }
        }

        /// Writes a list register.
        #[inline]
        fn set_list_register(index: usize, value: u64) {
            match index { $($index => $reg.set(value),)+ _ => {} }
        }
    };
}

list_registers! {
    0: IchLr0El2, 1: IchLr1El2, 2: IchLr2El2, 3: IchLr3El2, 4: IchLr4El2, 5: IchLr5El2, 6: IchLr6El2, 7: IchLr7El2,
    8: IchLr8El2, 9: IchLr9El2, 10: IchLr10El2, 11: IchLr11El2, 12: IchLr12El2, 13: IchLr13El2, 14: IchLr14El2,
    15: IchLr15El2,
}

/// Empties all list registers and asks for no maintenance.
pub fn clear_list_registers(count: usize) {
    for index in 0..count {
        set_list_register(index, 0);
    }
    IchHcrEl2.set(HCR_EN);
}

/// Returns the guest's priority mask.
pub fn guest_priority_mask() -> u8 {
    (IchVmcrEl2.get() >> 24) as u8
}

/// Priority bits of the virtual interface, which say how many active-priority registers exist.
fn preemption_bits() -> u64 {
    ((IchVtrEl2.get() >> 26) & 7).wrapping_add(1)
}

/// Stores the virtual CPU interface beside its list registers.
pub fn save_cpu_interface(state: &mut GicCpuState) {
    state.vmcr = IchVmcrEl2.get();
    let bits = preemption_bits();
    state.ap0r = [IchAp0r0El2.get() as u32, 0, 0, 0];
    state.ap1r = [IchAp1r0El2.get() as u32, 0, 0, 0];
    let ([_, a1, a2, a3], [_, b1, b2, b3]) = (&mut state.ap0r, &mut state.ap1r);
    if bits > 5 {
        (*a1, *b1) = (IchAp0r1El2.get() as u32, IchAp1r1El2.get() as u32);
    }
    if bits > 6 {
        (*a2, *b2) = (IchAp0r2El2.get() as u32, IchAp1r2El2.get() as u32);
        (*a3, *b3) = (IchAp0r3El2.get() as u32, IchAp1r3El2.get() as u32);
    }
}

/// Loads it.
pub fn restore_cpu_interface(state: &GicCpuState) {
    IchVmcrEl2.set(state.vmcr);
    let bits = preemption_bits();
    let ([a0, a1, a2, a3], [b0, b1, b2, b3]) =
        (state.ap0r.map(u64::from), state.ap1r.map(u64::from));
    IchAp0r0El2.set(a0);
    IchAp1r0El2.set(b0);
    if bits > 5 {
        IchAp0r1El2.set(a1);
        IchAp1r1El2.set(b1);
    }
    if bits > 6 {
        IchAp0r2El2.set(a2);
        IchAp0r3El2.set(a3);
        IchAp1r2El2.set(b2);
        IchAp1r3El2.set(b3);
    }
}

/// The list registers of this CPU, as the virtual GIC's core sees them.
#[derive(Clone, Copy, Debug)]
pub struct PhysicalListRegisters {
    count: usize,
}

impl PhysicalListRegisters {
    /// Names this CPU's list registers; `count` is [`list_register_count`].
    #[inline(always)]
    pub const fn new(count: usize) -> Self {
        Self { count }
    }
}

/// Fields of ICH_LR<n>_EL2 (Arm IHI 0069, 12.4.7).
mod lr {
    pub(super) const STATE: u32 = 62;
    pub(super) const HW: u64 = 1 << 61;
    pub(super) const GROUP1: u64 = 1 << 60;
    pub(super) const PRIORITY: u32 = 48;
    pub(super) const EOI: u64 = 1 << 41;
    pub(super) const PHYSICAL: u32 = 32;
}

impl ListRegisters for PhysicalListRegisters {
    #[inline(always)]
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn read(&self, index: usize) -> Lr {
        let raw = list_register(index);
        let state = match raw >> lr::STATE {
            0 => LrState::Invalid,
            1 => LrState::Pending,
            2 => LrState::Active,
            _ => LrState::PendingActive,
        };
        let hw = raw & lr::HW != 0;
        Lr {
            // Only INTIDs that `write` took stand here, so the fallback is never used.
            intid: IntId::new(raw as u32 & 0x3ff).unwrap_or(IntId::VIRTUAL_TIMER),
            priority: (raw >> lr::PRIORITY) as u8,
            state,
            hw,
            eoi: !hw && raw & lr::EOI != 0,
            group1: raw & lr::GROUP1 != 0,
            source: 0,
        }
    }

    #[inline]
    fn write(&mut self, index: usize, value: Lr) {
        let state = match value.state {
            LrState::Invalid => 0,
            LrState::Pending => 1,
            LrState::Active => 2,
            LrState::PendingActive => 3_u64,
        };
        let intid = u64::from(value.intid.number());
        let link = if value.hw {
            lr::HW | intid << lr::PHYSICAL
        } else if value.eoi {
            lr::EOI
        } else {
            0
        };
        let group = if value.group1 { lr::GROUP1 } else { 0 };
        let priority = u64::from(value.priority) << lr::PRIORITY;
        set_list_register(index, state << lr::STATE | link | group | priority | intid);
    }

    #[inline(always)]
    fn empty_mask(&self) -> u32 {
        IchElrsrEl2.get() as u32
    }

    fn set_maintenance(&mut self, wanted: Maintenance) {
        let mut hcr = IchHcrEl2.get() & !(HCR_UIE | HCR_NPIE | HCR_TDIR);
        if wanted.underflow {
            hcr |= HCR_UIE;
        }
        if wanted.no_pending {
            hcr |= HCR_NPIE;
        }
        if wanted.deactivate {
            hcr |= HCR_TDIR;
        }
        IchHcrEl2.set(hcr);
    }
}
