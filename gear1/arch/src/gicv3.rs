//! The physical GICv3 and its virtual CPU interface (Arm IHI 0069). All
//! interrupts are Group 1.
//!
//! Requirements: G1-GIC-006, G1-GIC-008, G1-GIC-015, G1-GIC-016.

use gear1_abi::id::CpuIndex;
use gear1_abi::layout::el2;
use gear1_core::context::GicCpuState;
use gear1_core::vgic::passthrough::Fields;
use gear1_core::vgic::{IntId, ListRegisters, Lr, LrState, Maintenance, is_interrupt};
use tock_registers::register_bitfields;

use crate::barrier;
use crate::gic::{
    self, Acknowledged, GICD_ICACTIVER, GICD_ICENABLER, GICD_ICPENDR, GICD_ISPENDR, HYP_TIMER,
    HostGic, KICK, MAINTENANCE, PATIENCE, PRIORITY, VIRTUAL_TIMER,
};
use crate::mmio::Mmio;
use crate::regs::{
    ICC_AP1R0_EL1, ICC_AP1R1_EL1, ICC_AP1R2_EL1, ICC_AP1R3_EL1, ICC_BPR1_EL1, ICC_CTLR,
    ICC_CTLR_EL1, ICC_DIR_EL1, ICC_EOIR1_EL1, ICC_IAR1_EL1, ICC_IGRPEN1_EL1, ICC_PMR_EL1,
    ICC_SGI1R, ICC_SGI1R_EL1, ICC_SRE_EL1, ICC_SRE_EL2, ICH_AP0R0_EL2, ICH_AP0R1_EL2,
    ICH_AP0R2_EL2, ICH_AP0R3_EL2, ICH_AP1R0_EL2, ICH_AP1R1_EL2, ICH_AP1R2_EL2, ICH_AP1R3_EL2,
    ICH_ELRSR_EL2, ICH_HCR_EL2, ICH_LR0_EL2, ICH_LR1_EL2, ICH_LR2_EL2, ICH_LR3_EL2, ICH_LR4_EL2,
    ICH_LR5_EL2, ICH_LR6_EL2, ICH_LR7_EL2, ICH_LR8_EL2, ICH_LR9_EL2, ICH_LR10_EL2, ICH_LR11_EL2,
    ICH_LR12_EL2, ICH_LR13_EL2, ICH_LR14_EL2, ICH_LR15_EL2, ICH_VMCR, ICH_VMCR_EL2, ICH_VTR_EL2,
    MPIDR_EL1, ReadWriteable as _, Readable as _, Writeable as _,
};
use crate::this_cpu::LocalCpu;

/// Fields that every `ICH_LR<n>_EL2` has (Arm IHI 0069, 12.4.7).
use crate::regs::ICH_LR0_EL2 as lr;

const GICD_CTLR: usize = 0x0;
const GICD_TYPER: usize = 0x4;
const GICD_IGROUPR: usize = 0x80;
const GICD_ISENABLER: usize = 0x100;
const GICD_IPRIORITYR: usize = 0x400;
const GICD_IROUTER: usize = 0x6000;
const GICR_CTLR: usize = 0x0;
const GICR_WAKER: usize = 0x14;
const SGI_FRAME: usize = 0x1_0000;
const GICR_ISACTIVER0: usize = SGI_FRAME + 0x300;
const GICR_ICACTIVER0: usize = SGI_FRAME + 0x380;
const GICR_SIZE: u64 = 0x2_0000;
const GICD_SIZE: u64 = 0x1_0000;

register_bitfields! { u32,
    /// GICD_CTLR, as the non-secure side sees it.
    GICD_CTLR [
        /// A write has not taken effect yet.
        RWP OFFSET(31) NUMBITS(1) [],
        ARE OFFSET(4) NUMBITS(1) [],
        EnableGrp1 OFFSET(1) NUMBITS(1) [],
    ],
    GICD_TYPER [
        /// Words of 32 SPIs.
        ITLinesNumber OFFSET(0) NUMBITS(5) [],
    ],
    GICR_CTLR [
        /// A write has not taken effect on all CPUs.
        RWP OFFSET(3) NUMBITS(1) [],
        EnableLPIs OFFSET(0) NUMBITS(1) [],
    ],
    GICR_WAKER [
        ChildrenAsleep OFFSET(2) NUMBITS(1) [],
        ProcessorSleep OFFSET(1) NUMBITS(1) [],
    ],
}

/// Bits of ICH_HCR_EL2 that [`Maintenance`] says: underflow, an end of an interrupt that is in no
/// list register, no pending, and the trap of ICC_DIR_EL1.
const MAINTENANCE_BITS: u64 = ICH_HCR_EL2::UIE::SET.value
    | ICH_HCR_EL2::LRENPIE::SET.value
    | ICH_HCR_EL2::NPIE::SET.value
    | ICH_HCR_EL2::TDIR::SET.value;
/// ICC_SRE_EL2: SRE, DFB and DIB. Enable stays 0, so a guest's accesses to ICC_SRE_EL1 trap: where
/// SRE is writable, it would turn the interface of every later guest off.
// planted: a guest reaches ICC_SRE_EL1
const SRE_EL2: u64 =
    ICC_SRE_EL2::SRE::SET.value | ICC_SRE_EL2::DFB::SET.value | ICC_SRE_EL2::DIB::SET.value;

/// The distributor, shared by all CPUs.
fn distributor() -> Mmio {
    // SAFETY: init maps the distributor at this address for good, and this module
    // is its only user.
    unsafe { Mmio::new(el2::GICD, GICD_SIZE) }
}

/// The redistributor of a CPU. Its own CPU is its user.
///
/// # Safety
///
/// The CPU is one of the hand-over's: init maps no frames of others.
unsafe fn redistributor(cpu: CpuIndex) -> Mmio {
    // SAFETY: init maps each CPU's two frames at this address for good.
    unsafe {
        Mmio::new(
            el2::GICR.wrapping_add(cpu.reg().wrapping_mul(GICR_SIZE)),
            GICR_SIZE,
        )
    }
}

/// The redistributor of the calling CPU.
fn own_redistributor(cpu: LocalCpu<'_>) -> Mmio {
    // SAFETY: a CPU that runs this image is one of the hand-over's.
    unsafe { redistributor(cpu.index()) }
}

/// Returns the SGI frame of a CPU for its private interrupts, the distributor for shared ones.
///
/// # Safety
///
/// As for [`redistributor`].
unsafe fn frame_of(cpu: CpuIndex, fields: &Fields) -> Mmio {
    if fields.first < 32 {
        // SAFETY: the caller's condition.
        unsafe { sgi_frame(cpu) }
    } else {
        distributor()
    }
}

/// The SGI frame of a CPU: any CPU of the VM that owns it is its user.
///
/// # Safety
///
/// As for [`redistributor`].
unsafe fn sgi_frame(cpu: CpuIndex) -> Mmio {
    let frames = el2::GICR.wrapping_add(cpu.reg().wrapping_mul(GICR_SIZE));
    // SAFETY: as for `redistributor`; the frame is its upper half.
    unsafe { Mmio::new(frames.wrapping_add(SGI_FRAME as u64), SGI_FRAME as u64) }
}

fn poll(registers: Mmio, offset: usize, busy: u32) {
    // Bound: PATIENCE reads of GICR_WAKER or RWP.
    for _ in 0..PATIENCE {
        if registers.read32(offset) & busy == 0 {
            return;
        }
        barrier::yield_hint();
    }
}

/// GICv3.
#[derive(Clone, Copy, Debug)]
pub struct GicV3;

impl HostGic for GicV3 {
    type ListRegisters = PhysicalListRegisters;
    // Everything masked, groups off, EOImode 0; VFIQEn is RES1.
    const VMCR_RESET: u64 = ICH_VMCR::VFIQEn::SET.value;
    const VERSION: u32 = 3;

    fn init_distributor() {
        let gicd = distributor();
        gicd.write32(GICD_CTLR, 0);
        poll(gicd, GICD_CTLR, GICD_CTLR::RWP::SET.value);
        let lines = GICD_TYPER::ITLinesNumber.read(gicd.read32(GICD_TYPER)) as usize;
        // Bound: 31 words of SPIs.
        for word in 1..=lines {
            let at = word.wrapping_mul(4);
            gicd.write32(GICD_ICENABLER.wrapping_add(at), u32::MAX);
            // An interrupt that firmware left active would never fire again.
            gicd.write32(GICD_ICACTIVER.wrapping_add(at), u32::MAX);
            gicd.write32(GICD_IGROUPR.wrapping_add(at), u32::MAX);
            // Bound: 8 words of priorities.
            for byte in 0..8_usize {
                let priority = word.wrapping_mul(32).wrapping_add(byte.wrapping_mul(4));
                gicd.write32(GICD_IPRIORITYR.wrapping_add(priority), PRIORITY);
            }
        }
        poll(gicd, GICD_CTLR, GICD_CTLR::RWP::SET.value);
        let on = GICD_CTLR::ARE::SET + GICD_CTLR::EnableGrp1::SET;
        gicd.write32(GICD_CTLR, on.value);
        poll(gicd, GICD_CTLR, GICD_CTLR::RWP::SET.value);
    }

    fn init_cpu(cpu: LocalCpu<'_>) {
        ICC_SRE_EL2.set(SRE_EL2);
        barrier::isb();
        let gicr = own_redistributor(cpu);
        let awake = GICR_WAKER::ProcessorSleep::CLEAR;
        gicr.write32(GICR_WAKER, awake.modify(gicr.read32(GICR_WAKER)));
        poll(gicr, GICR_WAKER, GICR_WAKER::ChildrenAsleep::SET.value);
        // Firmware's LPIs. Some redistributors keep them on for good: `irq::external` ends those.
        let off = GICR_CTLR::EnableLPIs::CLEAR;
        gicr.write32(GICR_CTLR, off.modify(gicr.read32(GICR_CTLR)));
        poll(gicr, GICR_CTLR, GICR_CTLR::RWP::SET.value);
        gicr.write32(SGI_FRAME + GICD_ICENABLER, u32::MAX);
        gicr.write32(GICR_ICACTIVER0, u32::MAX);
        gicr.write32(SGI_FRAME + GICD_IGROUPR, u32::MAX);
        // Bound: 8 words of priorities.
        for byte in 0..8_usize {
            gicr.write32(
                (SGI_FRAME + GICD_IPRIORITYR).wrapping_add(byte.wrapping_mul(4)),
                PRIORITY,
            );
        }
        let used = 1 << KICK | 1 << MAINTENANCE | 1 << HYP_TIMER | 1 << VIRTUAL_TIMER;
        gicr.write32(SGI_FRAME + GICD_ISENABLER, used);
        poll(gicr, GICR_CTLR, GICR_CTLR::RWP::SET.value);
        ICC_PMR_EL1.set(0xff);
        ICC_BPR1_EL1.set(0);
        ICC_CTLR_EL1.set(ICC_CTLR::EOImode::SET.value);
        ICC_IGRPEN1_EL1.set(1);
        ICC_SRE_EL1.set(7);
        ICH_HCR_EL2.write(ICH_HCR_EL2::En::SET);
        barrier::isb();
    }

    fn configure_spi(intid: u32, edge: bool) {
        gic::configure_spi(distributor(), intid, edge);
    }

    fn enable_spi(_cpu: LocalCpu<'_>, intid: u32) {
        let gicd = distributor();
        let index = intid as usize;
        gicd.write64(
            GICD_IROUTER.wrapping_add(index.wrapping_mul(8)),
            crate::cpu::affinity(),
        );
        gicd.write32(
            GICD_ISENABLER.wrapping_add((index / 32).wrapping_mul(4)),
            1_u32.wrapping_shl(intid),
        );
    }

    #[inline(always)]
    fn acknowledge() -> Option<Acknowledged> {
        let intid = ICC_IAR1_EL1.get() as u32 & 0xff_ffff;
        // A sender skips an SGI that is pending still. Data of the sender is therefore read only
        // after the acknowledge (pair of the barrier in `send_sgi`). No load waits for a read of a
        // System register by itself (Arm IHI 0069, 12.1.7).
        // planted: what a kick is for is loaded before its acknowledge
        barrier::dsb_sy();
        is_interrupt(intid).then_some(Acknowledged(intid))
    }

    #[inline(always)]
    fn intid(irq: Acknowledged) -> u32 {
        irq.0
    }

    #[inline(always)]
    fn drop_priority(irq: Acknowledged) {
        ICC_EOIR1_EL1.set(u64::from(irq.0));
    }

    #[inline(always)]
    fn end(irq: Acknowledged) {
        Self::deactivate(irq.0);
    }

    #[inline(always)]
    fn deactivate(intid: u32) {
        ICC_DIR_EL1.set(u64::from(intid));
    }

    fn sgi(_target: CpuIndex, affinity: u64, sgi: u32) -> u64 {
        let aff0 = MPIDR_EL1::Aff0.read(affinity);
        let upper = ICC_SGI1R::Aff3.val(MPIDR_EL1::Aff3.read(affinity))
            + ICC_SGI1R::Aff2.val(MPIDR_EL1::Aff2.read(affinity))
            + ICC_SGI1R::Aff1.val(MPIDR_EL1::Aff1.read(affinity));
        let target = ICC_SGI1R::RS.val(aff0 >> 4)
            + ICC_SGI1R::TargetList.val(1_u64.wrapping_shl(aff0 as u32 & 0xf));
        (upper + target + ICC_SGI1R::INTID.val(sgi.into())).value
    }

    #[inline(always)]
    fn send_sgi(sgi: u64) {
        // Stores that the target reads must be visible before the interrupt is (Arm ARM B2.3).
        barrier::dsb_ishst();
        ICC_SGI1R_EL1.set(sgi);
        barrier::isb();
    }

    unsafe fn disturb(target: CpuIndex, _affinity: u64) {
        // SAFETY: the caller's condition.
        let gicr = unsafe { redistributor(target) };
        barrier::dsb_ishst();
        gicr.write32(SGI_FRAME + GICD_ISENABLER, 1 << KICK);
        gicr.write32(SGI_FRAME + GICD_ISPENDR, 1 << KICK);
        // A load from Device memory waits for the stores to it (Arm ARM B2.3.10).
        gicr.read32(SGI_FRAME + GICD_ISPENDR);
    }

    fn give_interface(cpu: LocalCpu<'_>) {
        let gicr = own_redistributor(cpu);
        gicr.write32(SGI_FRAME + GICD_ICENABLER, u32::MAX);
        // planted: no longer: nothing pends when it gets the interface
        gicr.write32(SGI_FRAME + GICD_ICPENDR, u32::MAX);
        gicr.write32(GICR_ICACTIVER0, u32::MAX);
        poll(gicr, GICR_CTLR, GICR_CTLR::RWP::SET.value);
        ICH_HCR_EL2.set(0);
        // EOImode = 0: the guest writes the virtual register, which changes nothing.
        ICC_CTLR_EL1.set(0);
        ICC_IGRPEN1_EL1.set(0);
        barrier::isb();
    }

    fn take_interface_back(cpu: LocalCpu<'_>) {
        // Active priorities of the guest would mask the interrupts of the next user (IHI 0069,
        // 4.8.6: zero is always allowed).
        let bits = ICC_CTLR::PRIbits.read(ICC_CTLR_EL1.get()).wrapping_add(1);
        ICC_AP1R0_EL1.set(0);
        if bits > 5 {
            ICC_AP1R1_EL1.set(0);
        }
        if bits > 6 {
            ICC_AP1R2_EL1.set(0);
            ICC_AP1R3_EL1.set(0);
        }
        own_redistributor(cpu).write32(SGI_FRAME + GICD_ICPENDR, u32::MAX);
        Self::init_cpu(cpu);
    }

    unsafe fn read_own(cpu: CpuIndex, fields: &Fields) -> u32 {
        // SAFETY: the caller's condition.
        gic::read_fields(unsafe { frame_of(cpu, fields) }, fields)
    }

    unsafe fn write_own(cpu: CpuIndex, fields: &Fields, value: u32, mask: u32) {
        // SAFETY: the caller's condition.
        gic::write_fields(unsafe { frame_of(cpu, fields) }, fields, value, mask);
    }

    fn route_spi(_target: CpuIndex, affinity: u64, intid: u32) {
        let offset = GICD_IROUTER.wrapping_add((intid as usize).wrapping_mul(8));
        distributor().write64(offset, affinity);
    }

    fn pend_spi(intid: u32) {
        gic::pend_spi(distributor(), intid);
    }

    fn silence_spi(intid: u32) {
        gic::silence_spi(distributor(), intid);
    }

    fn set_ppi_active(cpu: LocalCpu<'_>, intid: u32, active: bool) {
        let offset = if active {
            GICR_ISACTIVER0
        } else {
            GICR_ICACTIVER0
        };
        own_redistributor(cpu).write32(offset, 1_u32.wrapping_shl(intid));
    }

    fn enable_ppi(cpu: LocalCpu<'_>, intid: u32) {
        own_redistributor(cpu).write32(SGI_FRAME + GICD_ISENABLER, 1_u32.wrapping_shl(intid));
    }

    fn set_virtual_interface(on: bool) {
        ICH_HCR_EL2.modify(ICH_HCR_EL2::En.val(on.into()));
        barrier::isb();
    }

    fn list_register_count() -> usize {
        let last = ICH_VTR_EL2.read(ICH_VTR_EL2::ListRegs);
        last.wrapping_add(1).min(16) as usize
    }

    fn clear_list_registers(all: u32) {
        // Bound: 16 list registers.
        for index in 0..all.trailing_ones() as usize {
            set_list_register(index, 0);
        }
        ICH_HCR_EL2.write(ICH_HCR_EL2::En::SET);
    }

    #[inline(always)]
    fn list_registers(all: u32) -> PhysicalListRegisters {
        PhysicalListRegisters { all }
    }

    fn guest_priority_mask() -> u8 {
        ICH_VMCR::VPMR.read(ICH_VMCR_EL2.get()) as u8
    }

    #[inline(always)]
    fn save_cpu_interface(state: &mut GicCpuState) {
        state.vmcr = ICH_VMCR_EL2.get();
        let bits = preemption_bits();
        state.ap0r = [ICH_AP0R0_EL2.get() as u32, 0, 0, 0];
        state.ap1r = [ICH_AP1R0_EL2.get() as u32, 0, 0, 0];
        let ([_, a1, a2, a3], [_, b1, b2, b3]) = (&mut state.ap0r, &mut state.ap1r);
        if bits > 5 {
            (*a1, *b1) = (ICH_AP0R1_EL2.get() as u32, ICH_AP1R1_EL2.get() as u32);
        }
        if bits > 6 {
            (*a2, *b2) = (ICH_AP0R2_EL2.get() as u32, ICH_AP1R2_EL2.get() as u32);
            (*a3, *b3) = (ICH_AP0R3_EL2.get() as u32, ICH_AP1R3_EL2.get() as u32);
        }
    }

    #[inline(always)]
    fn restore_cpu_interface(state: &GicCpuState) {
        ICH_VMCR_EL2.set(state.vmcr);
        let bits = preemption_bits();
        let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (state.ap0r, state.ap1r);
        ICH_AP0R0_EL2.set(a0.into());
        ICH_AP1R0_EL2.set(b0.into());
        if bits > 5 {
            ICH_AP0R1_EL2.set(a1.into());
            ICH_AP1R1_EL2.set(b1.into());
        }
        if bits > 6 {
            ICH_AP0R2_EL2.set(a2.into());
            ICH_AP0R3_EL2.set(a3.into());
            ICH_AP1R2_EL2.set(b2.into());
            ICH_AP1R3_EL2.set(b3.into());
        }
    }
}

macro_rules! list_registers {
    ($($index:literal: $reg:ident),+ $(,)?) => {
        /// Reads a list register; one that does not exist reads as empty.
        #[inline]
        fn list_register(index: usize) -> u64 {
            match index { $($index => $reg.get(),)+ _ => 0 }
        }

        /// Writes a list register.
        #[inline(never)]
        fn set_list_register(index: usize, value: u64) {
            match index { $($index => $reg.set(value),)+ _ => {} }
        }
    };
}

list_registers! {
    0: ICH_LR0_EL2, 1: ICH_LR1_EL2, 2: ICH_LR2_EL2, 3: ICH_LR3_EL2, 4: ICH_LR4_EL2, 5: ICH_LR5_EL2, 6: ICH_LR6_EL2, 7: ICH_LR7_EL2,
    8: ICH_LR8_EL2, 9: ICH_LR9_EL2, 10: ICH_LR10_EL2, 11: ICH_LR11_EL2, 12: ICH_LR12_EL2, 13: ICH_LR13_EL2, 14: ICH_LR14_EL2,
    15: ICH_LR15_EL2,
}

/// Priority bits of the virtual interface, which say how many active-priority registers exist.
fn preemption_bits() -> u64 {
    ICH_VTR_EL2.read(ICH_VTR_EL2::PREbits).wrapping_add(1)
}

/// The list registers of this CPU, as the virtual GIC's core sees them.
#[derive(Clone, Copy, Debug)]
pub struct PhysicalListRegisters {
    all: u32,
}

impl ListRegisters for PhysicalListRegisters {
    #[inline(always)]
    fn all(&self) -> u32 {
        self.all
    }

    #[inline]
    fn read(&self, index: usize) -> Lr {
        let raw = list_register(index);
        let state = match lr::State.read_as_enum(raw) {
            Some(lr::State::Value::Invalid) | None => LrState::Invalid,
            Some(lr::State::Value::Pending) => LrState::Pending,
            Some(lr::State::Value::Active) => LrState::Active,
            Some(lr::State::Value::PendingAndActive) => LrState::PendingActive,
        };
        let hw = lr::HW.is_set(raw);
        Lr {
            // Only INTIDs that `write` took stand here, so the fallback is never used.
            intid: IntId::new(raw as u32 & 0x3ff).unwrap_or(IntId::VIRTUAL_TIMER),
            priority: lr::Priority.read(raw) as u8,
            state,
            hw,
            eoi: !hw && lr::EOI.is_set(raw),
            group1: lr::Group.is_set(raw),
            source: 0,
        }
    }

    #[inline(never)]
    fn encode(value: Lr) -> u64 {
        let state = match value.state {
            LrState::Invalid => lr::State::Invalid,
            LrState::Pending => lr::State::Pending,
            LrState::Active => lr::State::Active,
            LrState::PendingActive => lr::State::PendingAndActive,
        };
        let intid = u64::from(value.intid.number());
        let link = if value.hw {
            lr::HW::SET + lr::pINTID.val(intid)
        } else {
            lr::EOI.val(value.eoi.into())
        };
        let group = lr::Group.val(value.group1.into());
        let priority = lr::Priority.val(value.priority.into());
        (state + link + group + priority + lr::vINTID.val(intid)).value
    }

    #[inline(always)]
    fn write_raw(&mut self, index: usize, raw: u64) {
        // The first list register is the one used most.
        match index {
            0 => ICH_LR0_EL2.set(raw),
            _ => set_list_register(index, raw),
        }
    }

    #[inline(always)]
    fn synchronize(&mut self) {
        // Writes of ICH_LR<n>_EL2 reach ICH_ELRSR_EL2 with a context synchronization event.
        barrier::isb();
    }

    #[inline(always)]
    fn empty_mask(&self) -> u32 {
        ICH_ELRSR_EL2.get() as u32
    }

    #[inline]
    fn wants_maintenance(&self) -> bool {
        ICH_HCR_EL2.get() & MAINTENANCE_BITS != 0
    }

    fn take_lost_ends(&mut self) -> u32 {
        let hcr = ICH_HCR_EL2.extract();
        ICH_HCR_EL2.set(ICH_HCR_EL2::EOIcount::CLEAR.modify(hcr.get()));
        // In two steps ICC_EOIR1_EL1 ends nothing, whatever was counted, and ICC_DIR_EL1 is
        // trapped.
        if ICH_VMCR::VEOIM.is_set(ICH_VMCR_EL2.get()) {
            return 0;
        }
        hcr.read(ICH_HCR_EL2::EOIcount) as u32
    }

    fn set_maintenance(&mut self, wanted: Maintenance) {
        ICH_HCR_EL2.modify(
            ICH_HCR_EL2::UIE.val(wanted.underflow.into())
                + ICH_HCR_EL2::NPIE.val(wanted.no_pending.into())
                + ICH_HCR_EL2::TDIR.val(wanted.deactivate.into())
                + ICH_HCR_EL2::LRENPIE.val(wanted.deactivate.into()),
        );
    }
}
