//! The seam to the physical interrupt controller: what GICv2 and GICv3 both do
//! for Gear1. A runtime image is built for one of them, so that every call is
//! direct; init picks the image that fits the board.
//!
//! Requirements: G1-GIC-006.

use gear1_abi::id::CpuIndex;
use gear1_core::context::GicCpuState;
use gear1_core::vgic::ListRegisters;
use gear1_core::vgic::passthrough::Fields;

use crate::mmio::Mmio;
use crate::this_cpu::LocalCpu;

/// PPI of the list registers' maintenance.
pub const MAINTENANCE: u32 = 25;
/// PPI of the EL2 physical timer.
pub const HYP_TIMER: u32 = 26;
/// PPI of the virtual timer.
pub const VIRTUAL_TIMER: u32 = 27;
/// SGI by which Gear1's CPUs kick one another.
pub const KICK: u32 = 0;

/// Priority of all physical interrupts, in each byte: a guest's priorities exist only in its
/// virtual GIC.
pub(crate) const PRIORITY: u32 = 0x8080_8080;
/// Polls of a register that the GIC changes by itself before it is taken as done.
pub(crate) const PATIENCE: u32 = 100_000;

/// Acknowledged interrupt: the INTID, and for a GICv2 SGI its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged(pub(crate) u32);

pub(crate) const GICD_ICENABLER: usize = 0x180;
pub(crate) const GICD_ISPENDR: usize = 0x200;
pub(crate) const GICD_ICPENDR: usize = 0x280;
pub(crate) const GICD_ICACTIVER: usize = 0x380;
const GICD_ICFGR: usize = 0xc00;

/// Says how a shared interrupt triggers: the register is the same in both versions.
pub(crate) fn configure_spi(gicd: Mmio, intid: u32, edge: bool) {
    let config = GICD_ICFGR.wrapping_add((intid as usize / 16).wrapping_mul(4));
    let bit = 2_u32.wrapping_shl(intid % 16 * 2);
    let old = gicd.read32(config);
    gicd.write32(config, if edge { old | bit } else { old & !bit });
}

/// Makes a shared interrupt disabled and neither pending nor active, in either version.
pub(crate) fn silence_spi(gicd: Mmio, intid: u32) {
    let word = (intid as usize / 32).wrapping_mul(4);
    // Bound: 3 registers.
    for clear in [GICD_ICENABLER, GICD_ICPENDR, GICD_ICACTIVER] {
        gicd.write32(clear.wrapping_add(word), 1_u32.wrapping_shl(intid));
    }
}

/// Makes a shared interrupt pending, in either version. The register ignores zeroes, so other
/// interrupts of the word keep their state, and no lock is needed.
pub(crate) fn pend_spi(gicd: Mmio, intid: u32) {
    let word = (intid as usize / 32).wrapping_mul(4);
    gicd.write32(GICD_ISPENDR.wrapping_add(word), 1_u32.wrapping_shl(intid));
}

/// Reads a register of fields in a frame.
pub(crate) fn read_fields(frame: Mmio, fields: &Fields) -> u32 {
    let offset = fields.offset as usize;
    if fields.count == 1 {
        u32::from(frame.read8(offset))
    } else {
        frame.read32(offset)
    }
}

/// Writes the fields in `mask`. Set and clear registers ignore zeroes; priorities are written one
/// by one, so that no other field is written at all.
pub(crate) fn write_fields(frame: Mmio, fields: &Fields, value: u32, mask: u32) {
    let offset = fields.offset as usize;
    if fields.bits == 1 {
        frame.write32(offset, value & mask);
        return;
    }
    // Bound: 4 fields of a word.
    for number in 0..fields.count.min(4) {
        let shift = number.wrapping_mul(8);
        if mask.wrapping_shr(shift) & 0xff != 0 {
            frame.write8(
                offset.wrapping_add(number as usize),
                value.wrapping_shr(shift) as u8,
            );
        }
    }
}

/// A physical GIC with its virtual CPU interface.
///
/// EOImode is 1 on every CPU that Gear2 has: dropping the priority leaves the
/// interrupt active until the guest's own EOI (a list register with HW = 1) or
/// `deactivate`.
pub trait HostGic {
    /// List registers of the calling CPU.
    type ListRegisters: ListRegisters;
    /// The virtual CPU interface's control register at a vCPU's reset.
    const VMCR_RESET: u64;
    /// Version, as `BootGic::version` has it.
    const VERSION: u32;

    /// Sets the distributor up: everything off. Called once, by the boot CPU.
    fn init_distributor();
    /// Sets up this CPU's part, and its virtual CPU interface.
    fn init_cpu(cpu: LocalCpu<'_>);
    /// Says how a shared interrupt triggers. Called by the boot CPU before any other is on.
    fn configure_spi(intid: u32, edge: bool);
    /// Enables a shared interrupt and routes it to this CPU.
    fn enable_spi(cpu: LocalCpu<'_>, intid: u32);
    /// Acknowledges the highest pending interrupt.
    fn acknowledge() -> Option<Acknowledged>;
    /// Returns the INTID of an acknowledged interrupt.
    fn intid(irq: Acknowledged) -> u32;
    /// Drops the running priority; the interrupt stays active.
    fn drop_priority(irq: Acknowledged);
    /// Ends an acknowledged interrupt whose priority was dropped.
    fn end(irq: Acknowledged);
    /// Ends a PPI of this CPU, or an SPI, whose priority was dropped.
    fn deactivate(intid: u32);
    /// Returns what makes an SGI pending on a CPU once it is [sent](Self::send_sgi). `affinity`:
    /// the CPU's MPIDR fields.
    fn sgi(target: CpuIndex, affinity: u64, sgi: u32) -> u64;
    /// Makes an SGI pending on another CPU, or on this one.
    fn send_sgi(sgi: u64);
    /// Makes [`KICK`] pending on a CPU whose interface a guest has, or will have soon: the
    /// interrupt ends a WFI. The interrupt is pending on return, so that a later clear finds it and
    /// none is left on its way.
    ///
    /// # Safety
    ///
    /// The CPU is one of the hand-over's: of no other are there registers.
    unsafe fn disturb(target: CpuIndex, affinity: u64);
    /// Makes this CPU's interface, SGIs and PPIs as after a reset, for a guest that has them.
    fn give_interface(cpu: LocalCpu<'_>);
    /// Takes this CPU's interface, SGIs and PPIs back for Gear1, whatever state the guest left.
    fn take_interface_back(cpu: LocalCpu<'_>);
    /// Reads fields of shared interrupts, or of the private ones of `cpu`.
    ///
    /// # Safety
    ///
    /// As for [`HostGic::disturb`].
    unsafe fn read_own(cpu: CpuIndex, fields: &Fields) -> u32;
    /// Writes the fields that are in `mask`.
    ///
    /// # Safety
    ///
    /// As for [`HostGic::disturb`].
    unsafe fn write_own(cpu: CpuIndex, fields: &Fields, value: u32, mask: u32);
    /// Routes a shared interrupt to one CPU.
    fn route_spi(target: CpuIndex, affinity: u64, intid: u32);
    /// Makes a shared interrupt pending, as its edge does.
    fn pend_spi(intid: u32);
    /// Makes a shared interrupt disabled and neither pending nor active.
    fn silence_spi(intid: u32);
    /// Makes a physical PPI active or inactive on this CPU: that of the virtual timer, for one,
    /// belongs to the vCPU whose list register is linked to it.
    fn set_ppi_active(cpu: LocalCpu<'_>, intid: u32, active: bool);
    /// Enables a PPI on this CPU.
    fn enable_ppi(cpu: LocalCpu<'_>, intid: u32);
    /// Turns the virtual CPU interface off, so that pending list registers do not
    /// keep this CPU out of WFI, or on again.
    fn set_virtual_interface(on: bool);
    /// Returns how many list registers there are, at most 16.
    fn list_register_count() -> usize;
    /// Names this CPU's list registers; `all` has a bit for each of `list_register_count`.
    fn list_registers(all: u32) -> Self::ListRegisters;
    /// Empties all list registers and asks for no maintenance.
    fn clear_list_registers(all: u32);
    /// Returns the guest's priority mask.
    fn guest_priority_mask() -> u8;
    /// Stores the virtual CPU interface beside its list registers.
    fn save_cpu_interface(state: &mut GicCpuState);
    /// Restores the virtual CPU interface.
    fn restore_cpu_interface(state: &GicCpuState);
}
