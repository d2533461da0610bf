//! The physical GICv2 (GIC-400) and its hypervisor interface (Arm IHI 0048).
//!
//! Physical groups are left alone: on boards with security extensions bit 0 of the
//! control registers means Group 1 here and IGROUPR is RAZ/WI, on QEMU there are
//! none. A guest has both groups.
//!
//! Requirements: G1-GIC-006, G1-GIC-008.

use core::sync::atomic::{AtomicU8, Ordering};

use gear1_abi::id::{CpuIndex, MAX_CPUS};
use gear1_abi::layout::el2;
use gear1_core::context::GicCpuState;
use gear1_core::vgic::passthrough::Fields;
use gear1_core::vgic::{IntId, ListRegisters, Lr, LrState, Maintenance, is_interrupt};
use tock_registers::register_bitfields;

use crate::barrier;
use crate::gic::{
    self, Acknowledged, GICD_ICACTIVER, GICD_ICENABLER, GICD_ICPENDR, HYP_TIMER, HostGic, KICK,
    MAINTENANCE, PRIORITY, VIRTUAL_TIMER,
};
use crate::mmio::Mmio;
use crate::this_cpu::LocalCpu;

const GICD_CTLR: usize = 0x0;
const GICD_TYPER: usize = 0x4;
const GICD_ISENABLER: usize = 0x100;
const GICD_ISACTIVER: usize = 0x300;
const GICD_IPRIORITYR: usize = 0x400;
const GICD_ITARGETSR: usize = 0x800;
const GICD_SGIR: usize = 0xf00;
const GICD_CPENDSGIR: usize = 0xf10;

const GICC_CTLR: usize = 0x0;
const GICC_PMR: usize = 0x4;
const GICC_IAR: usize = 0xc;
const GICC_EOIR: usize = 0x10;
const GICC_APR: usize = 0xd0;
const GICC_DIR: usize = 0x1000;

const GICH_HCR: usize = 0x0;
const GICH_VTR: usize = 0x4;
const GICH_VMCR: usize = 0x8;
const GICH_ELRSR0: usize = 0x30;
const GICH_APR: usize = 0xf0;
const GICH_LR: usize = 0x100;

register_bitfields! { u32,
    GICD_TYPER [
        /// Words of 32 SPIs.
        ITLinesNumber OFFSET(0) NUMBITS(5) [],
    ],
    GICD_SGIR [
        CPUTargetList OFFSET(16) NUMBITS(8) [],
        SGIINTID OFFSET(0) NUMBITS(4) [],
    ],
    /// GICC_CTLR, the non-secure one where there are two.
    GICC_CTLR [
        /// The end of an interrupt takes two steps.
        EOImode OFFSET(9) NUMBITS(1) [],
        Enable OFFSET(0) NUMBITS(1) [],
    ],
    GICH_HCR [
        /// Ends of interrupts that were in no list register.
        EOICount OFFSET(27) NUMBITS(5) [],
        /// Maintenance: no pending.
        NPIE OFFSET(3) NUMBITS(1) [],
        /// Maintenance: such an end.
        LRENPIE OFFSET(2) NUMBITS(1) [],
        /// Maintenance: underflow.
        UIE OFFSET(1) NUMBITS(1) [],
        En OFFSET(0) NUMBITS(1) [],
    ],
    GICH_VTR [
        /// List registers, less one.
        ListRegs OFFSET(0) NUMBITS(6) [],
    ],
    GICH_VMCR [
        /// Bits 7:3 of the guest's priority mask.
        VMPriMask OFFSET(27) NUMBITS(5) [],
        /// The guest's EOImode.
        VEM OFFSET(9) NUMBITS(1) [],
    ],
    /// `GICH_LR<n>` (IHI 0048, 5.3.11).
    GICH_LR [
        HW OFFSET(31) NUMBITS(1) [],
        Grp1 OFFSET(30) NUMBITS(1) [],
        State OFFSET(28) NUMBITS(2) [Invalid = 0, Pending = 1, Active = 2, PendingAndActive = 3],
        /// Bits 7:3 of the priority.
        Priority OFFSET(23) NUMBITS(5) [],
        /// Without HW: the end of the interrupt asks for maintenance.
        EOI OFFSET(19) NUMBITS(1) [],
        /// With HW.
        PhysicalID OFFSET(10) NUMBITS(10) [],
        /// Without HW: the vCPU that sent the SGI.
        CPUID OFFSET(10) NUMBITS(3) [],
        VirtualID OFFSET(0) NUMBITS(10) [],
    ],
}
/// Maintenance interrupts that [`Maintenance`] enables.
const MAINTENANCE_BITS: u32 =
    GICH_HCR::UIE::SET.value | GICH_HCR::LRENPIE::SET.value | GICH_HCR::NPIE::SET.value;

/// Each CPU's bit in GICD_ITARGETSR and GICD_SGIR, which only it can read.
static INTERFACES: [AtomicU8; MAX_CPUS] = [const { AtomicU8::new(0) }; MAX_CPUS];

fn distributor() -> Mmio {
    // SAFETY: init maps the distributor at this address for good, and this module
    // is its only user.
    unsafe { Mmio::new(el2::GICD, 0x1000) }
}

/// Returns the CPU interface (GICC) of the calling CPU. The registers are banked: every CPU uses
/// one address.
fn cpu_interface() -> Mmio {
    // SAFETY: init maps GICC (8 KiB) at this address for good.
    unsafe { Mmio::new(el2::GICR, 0x2000) }
}

/// Returns the virtual interface control registers (GICH) of the calling CPU, banked like GICC.
fn hypervisor_interface() -> Mmio {
    // SAFETY: init maps GICH (4 KiB) at this address for good.
    unsafe { Mmio::new(el2::GICR.wrapping_add(0x2_0000), 0x1000) }
}

fn interface(cpu: CpuIndex) -> u8 {
    cpu.select(&INTERFACES).load(Ordering::Relaxed)
}

/// Makes nothing private to this CPU pending: SGIs have registers of their own (IHI 0048, 4.3.8).
fn clear_pending(gicd: Mmio) {
    gicd.write32(GICD_ICPENDR, u32::MAX);
    // Bound: 4 words of SGIs.
    for word in 0..4_usize {
        gicd.write32(GICD_CPENDSGIR.wrapping_add(word.wrapping_mul(4)), u32::MAX);
    }
}

/// GICv2.
#[derive(Clone, Copy, Debug)]
pub struct GicV2;

impl HostGic for GicV2 {
    type ListRegisters = PhysicalListRegisters;
    const VMCR_RESET: u64 = 0;
    const VERSION: u32 = 2;

    fn init_distributor() {
        let gicd = distributor();
        gicd.write32(GICD_CTLR, 0);
        let lines = GICD_TYPER::ITLinesNumber.read(gicd.read32(GICD_TYPER)) as usize;
        // Bound: 31 words of SPIs.
        for word in 1..=lines {
            gicd.write32(GICD_ICENABLER.wrapping_add(word.wrapping_mul(4)), u32::MAX);
            gicd.write32(GICD_ICACTIVER.wrapping_add(word.wrapping_mul(4)), u32::MAX);
            // Bound: 8 words of priorities.
            for byte in 0..8_usize {
                let priority = word.wrapping_mul(32).wrapping_add(byte.wrapping_mul(4));
                gicd.write32(GICD_IPRIORITYR.wrapping_add(priority), PRIORITY);
            }
        }
        gicd.write32(GICD_CTLR, 1);
    }

    fn init_cpu(cpu: LocalCpu<'_>) {
        let gicd = distributor();
        let mask = gicd.read32(GICD_ITARGETSR) as u8;
        cpu.index()
            .select(&INTERFACES)
            .store(mask, Ordering::Relaxed);
        gicd.write32(GICD_ICENABLER, 0xffff_0000);
        gicd.write32(GICD_ICACTIVER, u32::MAX);
        // Bound: 8 words of priorities.
        for byte in 0..8_usize {
            gicd.write32(GICD_IPRIORITYR.wrapping_add(byte.wrapping_mul(4)), PRIORITY);
        }
        gicd.write32(
            GICD_ISENABLER,
            1 << KICK | 1 << MAINTENANCE | 1 << HYP_TIMER | 1 << VIRTUAL_TIMER,
        );
        let gicc = cpu_interface();
        gicc.write32(GICC_PMR, 0xff);
        let on = GICC_CTLR::Enable::SET + GICC_CTLR::EOImode::SET;
        gicc.write32(GICC_CTLR, on.value);
        hypervisor_interface().write32(GICH_HCR, GICH_HCR::En::SET.value);
        barrier::dsb_sy();
    }

    fn configure_spi(intid: u32, edge: bool) {
        gic::configure_spi(distributor(), intid, edge);
    }

    fn enable_spi(cpu: LocalCpu<'_>, intid: u32) {
        let gicd = distributor();
        let index = intid as usize;
        gicd.write8(GICD_ITARGETSR.wrapping_add(index), interface(cpu.index()));
        gicd.write32(
            GICD_ISENABLER.wrapping_add((index / 32).wrapping_mul(4)),
            1_u32.wrapping_shl(intid),
        );
    }

    #[inline(always)]
    fn acknowledge() -> Option<Acknowledged> {
        let raw = cpu_interface().read32(GICC_IAR);
        // A sender skips an SGI that is pending still. Data of the sender is therefore read only
        // after the acknowledge (pair of the barrier in `send_sgi`). Loads from Device and from
        // Normal memory have no order by themselves (Arm ARM B2.3).
        barrier::dmb_ld();
        is_interrupt(raw & 0x3ff).then_some(Acknowledged(raw))
    }

    #[inline(always)]
    fn intid(irq: Acknowledged) -> u32 {
        irq.0 & 0x3ff
    }

    #[inline(always)]
    fn drop_priority(irq: Acknowledged) {
        cpu_interface().write32(GICC_EOIR, irq.0);
    }

    #[inline(always)]
    fn end(irq: Acknowledged) {
        // With an SGI's sender: DIR must match IAR (IHI 0048, 4.4.15).
        cpu_interface().write32(GICC_DIR, irq.0);
    }

    #[inline(always)]
    fn deactivate(intid: u32) {
        cpu_interface().write32(GICC_DIR, intid);
    }

    fn sgi(target: CpuIndex, _affinity: u64, sgi: u32) -> u64 {
        // The target's interface number is known once that CPU is up.
        target.reg().wrapping_add(1) << 16 | u64::from(sgi & 15)
    }

    #[inline(always)]
    fn send_sgi(sgi: u64) {
        // Stores that the target reads must be visible before the interrupt is (Arm ARM B2.3).
        barrier::dsb_ishst();
        let target = CpuIndex::from_reg((sgi >> 16).wrapping_sub(1));
        let mask = u32::from(target.map_or(0, interface));
        let sgi = GICD_SGIR::CPUTargetList.val(mask) + GICD_SGIR::SGIINTID.val(sgi as u32);
        distributor().write32(GICD_SGIR, sgi.value);
    }

    unsafe fn disturb(target: CpuIndex, affinity: u64) {
        Self::send_sgi(Self::sgi(target, affinity, KICK));
        // A load from the distributor waits for the store: the distributor holds the pending state
        // of all CPUs.
        distributor().read32(GICD_CTLR);
        barrier::dsb_sy();
    }

    fn give_interface(_cpu: LocalCpu<'_>) {
        let gicd = distributor();
        gicd.write32(GICD_ICENABLER, u32::MAX);
        clear_pending(gicd);
        gicd.write32(GICD_ICACTIVER, u32::MAX);
        let gicc = cpu_interface();
        gicc.write32(GICC_CTLR, 0);
        gicc.write32(GICC_PMR, 0);
        hypervisor_interface().write32(GICH_HCR, 0);
        barrier::dsb_sy();
    }

    fn take_interface_back(cpu: LocalCpu<'_>) {
        // Active priorities of the guest would mask the interrupts of the next user.
        // Bound: 4 words of GICC_APR.
        for word in 0..4_usize {
            cpu_interface().write32(GICC_APR.wrapping_add(word.wrapping_mul(4)), 0);
        }
        clear_pending(distributor());
        Self::init_cpu(cpu);
    }

    unsafe fn read_own(_cpu: CpuIndex, fields: &Fields) -> u32 {
        gic::read_fields(distributor(), fields)
    }

    unsafe fn write_own(_cpu: CpuIndex, fields: &Fields, value: u32, mask: u32) {
        gic::write_fields(distributor(), fields, value, mask);
    }

    fn route_spi(target: CpuIndex, _affinity: u64, intid: u32) {
        distributor().write8(
            GICD_ITARGETSR.wrapping_add(intid as usize),
            interface(target),
        );
    }

    fn pend_spi(intid: u32) {
        gic::pend_spi(distributor(), intid);
    }

    fn silence_spi(intid: u32) {
        gic::silence_spi(distributor(), intid);
    }

    fn set_ppi_active(_cpu: LocalCpu<'_>, intid: u32, active: bool) {
        let offset = if active {
            GICD_ISACTIVER
        } else {
            GICD_ICACTIVER
        };
        distributor().write32(offset, 1_u32.wrapping_shl(intid));
    }

    fn enable_ppi(_cpu: LocalCpu<'_>, intid: u32) {
        distributor().write32(GICD_ISENABLER, 1_u32.wrapping_shl(intid));
    }

    fn set_virtual_interface(on: bool) {
        let gich = hypervisor_interface();
        let enable = GICH_HCR::En.val(on.into());
        gich.write32(GICH_HCR, enable.modify(gich.read32(GICH_HCR)));
    }

    fn list_register_count() -> usize {
        let last = GICH_VTR::ListRegs.read(hypervisor_interface().read32(GICH_VTR));
        last.wrapping_add(1).min(16) as usize
    }

    #[inline(always)]
    fn list_registers(all: u32) -> PhysicalListRegisters {
        PhysicalListRegisters { all }
    }

    fn clear_list_registers(all: u32) {
        let gich = hypervisor_interface();
        // Bound: 64 list registers (GICH_VTR.ListRegs).
        for index in 0..all.trailing_ones() as usize {
            gich.write32(GICH_LR.wrapping_add(index.wrapping_mul(4)), 0);
        }
        gich.write32(GICH_HCR, GICH_HCR::En::SET.value);
    }

    fn guest_priority_mask() -> u8 {
        let mask = GICH_VMCR::VMPriMask.read(hypervisor_interface().read32(GICH_VMCR));
        (mask << 3) as u8
    }

    fn save_cpu_interface(state: &mut GicCpuState) {
        let gich = hypervisor_interface();
        state.vmcr = u64::from(gich.read32(GICH_VMCR));
        let [first, ..] = &mut state.ap0r;
        *first = gich.read32(GICH_APR);
    }

    fn restore_cpu_interface(state: &GicCpuState) {
        let gich = hypervisor_interface();
        gich.write32(GICH_VMCR, state.vmcr as u32);
        let [first, ..] = state.ap0r;
        gich.write32(GICH_APR, first);
    }
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

    fn read(&self, index: usize) -> Lr {
        let raw = hypervisor_interface().read32(GICH_LR.wrapping_add(index.wrapping_mul(4)));
        let state = match GICH_LR::State.read_as_enum(raw) {
            Some(GICH_LR::State::Value::Invalid) | None => LrState::Invalid,
            Some(GICH_LR::State::Value::Pending) => LrState::Pending,
            Some(GICH_LR::State::Value::Active) => LrState::Active,
            Some(GICH_LR::State::Value::PendingAndActive) => LrState::PendingActive,
        };
        let hw = GICH_LR::HW.is_set(raw);
        Lr {
            // Only INTIDs that `write` took stand here, so the fallback is never used.
            intid: IntId::new(GICH_LR::VirtualID.read(raw)).unwrap_or(IntId::VIRTUAL_TIMER),
            priority: (GICH_LR::Priority.read(raw) << 3) as u8,
            state,
            hw,
            eoi: !hw && GICH_LR::EOI.is_set(raw),
            group1: GICH_LR::Grp1.is_set(raw),
            source: if hw {
                0
            } else {
                GICH_LR::CPUID.read(raw) as u8
            },
        }
    }

    #[inline(never)]
    fn encode(value: Lr) -> u64 {
        let state = match value.state {
            LrState::Invalid => GICH_LR::State::Invalid,
            LrState::Pending => GICH_LR::State::Pending,
            LrState::Active => GICH_LR::State::Active,
            LrState::PendingActive => GICH_LR::State::PendingAndActive,
        };
        let intid = value.intid.number();
        let link = if value.hw {
            GICH_LR::HW::SET + GICH_LR::PhysicalID.val(intid)
        } else {
            GICH_LR::EOI.val(value.eoi.into()) + GICH_LR::CPUID.val(value.source.into())
        };
        let group = GICH_LR::Grp1.val(value.group1.into());
        let priority = GICH_LR::Priority.val(u32::from(value.priority >> 3));
        let lr = state + link + group + priority + GICH_LR::VirtualID.val(intid);
        lr.value.into()
    }

    #[inline(always)]
    fn write_raw(&mut self, index: usize, raw: u64) {
        let offset = GICH_LR.wrapping_add(index.wrapping_mul(4));
        hypervisor_interface().write32(offset, raw as u32);
    }

    fn empty_mask(&self) -> u32 {
        hypervisor_interface().read32(GICH_ELRSR0)
    }

    fn wants_maintenance(&self) -> bool {
        hypervisor_interface().read32(GICH_HCR) & MAINTENANCE_BITS != 0
    }

    fn take_lost_ends(&mut self) -> u32 {
        let gich = hypervisor_interface();
        let hcr = gich.read32(GICH_HCR);
        gich.write32(GICH_HCR, GICH_HCR::EOICount::CLEAR.modify(hcr));
        // In two steps GICC_EOIR ends nothing, and GICC_DIR is not in the page that a guest has.
        if GICH_VMCR::VEM.is_set(gich.read32(GICH_VMCR)) {
            return 0;
        }
        GICH_HCR::EOICount.read(hcr)
    }

    fn set_maintenance(&mut self, wanted: Maintenance) {
        let gich = hypervisor_interface();
        let maintenance = GICH_HCR::UIE.val(wanted.underflow.into())
            + GICH_HCR::NPIE.val(wanted.no_pending.into())
            + GICH_HCR::LRENPIE.val(wanted.deactivate.into());
        gich.write32(GICH_HCR, maintenance.modify(gich.read32(GICH_HCR)));
    }
}
