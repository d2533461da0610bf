//! GICv2 (Arm IHI 0048): SGIs by the distributor, memory-mapped CPU interface.

use core::sync::atomic::Ordering::Relaxed;

use super::{CPU_INTERFACE, distributor, register::SGIR};
use crate::cpu;
use crate::mmio::{read32, write32};

/// GICD_CTLR and GICC_CTLR: Group 0.
pub(super) const ENABLE: u32 = 1;
/// GICC_CTLR.EOImode.
const TWO_STEP: u32 = 1 << 9;

/// Offsets in the CPU interface.
pub mod register {
    /// Control.
    pub const CTLR: u64 = 0x00;
    /// Priority mask.
    pub const PMR: u64 = 0x04;
    /// Binary point.
    pub const BPR: u64 = 0x08;
    /// Acknowledge.
    pub const IAR: u64 = 0x0c;
    /// End.
    pub const EOIR: u64 = 0x10;
    /// Running priority.
    pub const RPR: u64 = 0x14;
    /// Highest priority pending.
    pub const HPPIR: u64 = 0x18;
    /// Binary point of Group 1.
    pub const ABPR: u64 = 0x1c;
    /// Acknowledge in Group 1.
    pub const AIAR: u64 = 0x20;
    /// End in Group 1.
    pub const AEOIR: u64 = 0x24;
    /// Highest priority pending in Group 1.
    pub const AHPPIR: u64 = 0x28;
    /// Active priorities.
    pub const APR0: u64 = 0xd0;
    /// Implementer.
    pub const IIDR: u64 = 0xfc;
    /// Deactivate.
    pub const DIR: u64 = 0x1000;
}

/// Returns the address of the CPU interface, each CPU's own.
pub fn cpu_interface() -> u64 {
    CPU_INTERFACE.load(Relaxed)
}

/// Reads a register of the CPU interface.
pub fn read(register: u64) -> u32 {
    read32(cpu_interface() + register)
}

/// Writes a register of the CPU interface.
pub fn write(register: u64, value: u32) {
    write32(cpu_interface() + register, value);
}

pub(super) fn init_cpu() {
    for four in 0..4 {
        write32(distributor() + super::register::CPENDSGIR + 4 * four, !0);
    }
    write(register::APR0, 0);
    write(register::PMR, 0xff);
    write(register::BPR, 0);
    write(register::CTLR, ENABLE);
}

pub(super) fn set_mask(priority: u8) {
    write(register::PMR, priority.into());
}

/// GICC_BPR is the number of the highest bit that is not compared.
pub(super) fn set_preemption(lowest: u8) {
    write(register::BPR, u32::from(lowest) - 1);
}

pub(super) fn set_two_step(on: bool) {
    write(register::CTLR, if on { ENABLE | TWO_STEP } else { ENABLE });
}

pub(super) fn set_delivery(on: bool) {
    write(register::CTLR, if on { ENABLE } else { 0 });
}

pub(super) fn send_sgi(cpu: usize, intid: u32) {
    send_sgi_to(1 << cpu, intid);
}

pub(super) fn send_sgi_to(cpus: u8, intid: u32) {
    sgir(u32::from(cpus) << 16 | intid);
}

pub(super) fn send_sgi_to_others(intid: u32) {
    sgir(1 << 24 | intid);
}

/// Sends an SGI to the CPU that runs, by the filter that says so.
pub fn send_sgi_to_self(intid: u32) {
    sgir(2 << 24 | intid);
}

fn sgir(value: u32) {
    cpu::dsb();
    write32(distributor() + SGIR, value);
}

pub(super) fn acknowledge() -> u32 {
    let acknowledged = read(register::IAR);
    cpu::dsb();
    acknowledged
}

pub(super) fn end(acknowledged: u32) {
    write(register::EOIR, acknowledged);
}

pub(super) fn deactivate(acknowledged: u32) {
    write(register::DIR, acknowledged);
}

pub(super) fn highest_pending() -> u32 {
    read(register::HPPIR)
}

pub(super) fn running_priority() -> u8 {
    read(register::RPR) as u8
}
