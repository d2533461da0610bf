//! Features of VMs that the manifest gives them to. Of debug and performance monitors: trapped
//! accesses, loading and unloading, the PMU's interrupt. Of pointer authentication: the keys.
//!
//! Invariant: state that is not in a vCPU's context is in the hardware of the CPU that the vCPU is
//! loaded on.
//!
//! Requirements: G1-CPU-007, G1-CPU-008, G1-CPU-015.

use gear1_arch::{cpu as this_cpu, monitors as hardware, pointer_auth};
use gear1_core::idregs::{self, IdReg};
use gear1_core::monitors::{
    ALL as ALL_MONITORS, Bank, DEBUG, DebugReg, MDSCR_GUEST, PMU, PMU_INTID, PmuReg,
};
use gear1_core::pointer_auth::POINTER_AUTH;
use gear1_core::syndrome::SysregAccess;

use crate::gic::{Gic, HostGic};
use crate::machine::{Cpu, CpuData, Loaded, Machine};
use crate::vgic::PMU_IRQ;

/// Carries out an access of the running vCPU and returns the value read, if the register is one of
/// these and the VM has it.
pub(crate) fn access(cpu: &mut Cpu, access: SysregAccess) -> Option<u64> {
    let written = (!access.is_read()).then(|| cpu.frame().reg(access.register()));
    let context = cpu.context()?;
    let (has, bank) = (context.monitors.has, &mut context.bank);
    if has & DEBUG != 0
        && let Some(reg) = DebugReg::from_id(access.id())
    {
        return debug(bank, reg, written);
    }
    if has & PMU == 0 {
        return None;
    }
    let reg = PmuReg::from_id(access.id(), bank.selected)?;
    Some(performance(bank, reg, written))
}

/// Carries out an access to a PMU register in hardware, where the loaded vCPU's counters are.
///
/// The selection of PMSELR_EL0 is noted beside: PMXEVTYPER_EL0 and PMXEVCNTR_EL0 name a counter by
/// it, and the vCPU's own may differ from the hardware's after an exit.
fn performance(bank: &mut Bank, reg: PmuReg, written: Option<u64>) -> u64 {
    let Some(value) = written else {
        return hardware::read(reg, bank.selected);
    };
    if reg == PmuReg::Pmselr {
        bank.selected = value as u8 & 31;
    }
    hardware::write(reg, value);
    0
}

/// Carries out an access to a debug register. Of MDSCR_EL1 the guest sets only what concerns its
/// own breakpoints, watchpoints and single step.
fn debug(bank: &mut Bank, reg: DebugReg, written: Option<u64>) -> Option<u64> {
    match (reg, written) {
        (DebugReg::Control, Some(value)) => hardware::set_debug_control(value & MDSCR_GUEST),
        (DebugReg::Control, None) => return Some(hardware::debug_control()),
        (DebugReg::Lock, Some(value)) => hardware::lock(value),
        (DebugReg::LockStatus, None) => return Some(hardware::lock_status()),
        (DebugReg::Point { bank: of, number }, written) => return point(bank, of, number, written),
        (DebugReg::Lock, None) | (DebugReg::LockStatus, Some(_)) => {}
    }
    Some(0)
}

/// Accesses a breakpoint or watchpoint, whose values the bank keeps beside the hardware. One that
/// the CPU does not have reads as zero and ignores writes.
fn point(bank: &mut Bank, of: usize, number: usize, written: Option<u64>) -> Option<u64> {
    let register = bank.points.get_mut(of)?.get_mut(number)?;
    if number < hardware::points(of)
        && let Some(value) = written
    {
        *register = value;
        hardware::load_points(bank);
        return Some(0);
    }
    Some(*register)
}

/// Loads the hardware with a vCPU's, which has some.
#[cold]
#[inline(never)]
pub(crate) fn load(cpu: &mut Cpu, loaded: &Loaded) {
    let (Some(context), _, data) = cpu.parts() else {
        return;
    };
    if context.features & POINTER_AUTH != 0 && data.has_pointer_auth {
        // planted: a vCPU signs with another one's keys
        pointer_auth::restore(&context.keys);
    }
    let bank = &context.bank;
    if context.monitors.has & DEBUG != 0 {
        hardware::load_points(bank);
        hardware::lock(u64::from(!bank.unlocked));
    }
    if context.monitors.has & PMU != 0 {
        hardware::load_pmu(bank);
        // The physical interrupt is active exactly while the vCPU owes its end.
        let is_active = loaded.read_gic(|gic, index| gic.hw_active(index, PMU_IRQ));
        Gic::set_ppi_active(cpu.local(), PMU_INTID, is_active);
        Gic::enable_ppi(cpu.local(), PMU_INTID);
    }
}

/// Stores the hardware, which a vCPU had that has some and is left. The physical interrupt becomes
/// inactive, as the next vCPU with a PMU must get its own.
#[cold]
#[inline(never)]
pub(crate) fn unload(cpu: &mut Cpu) {
    let (Some(context), _, data) = cpu.parts() else {
        return;
    };
    if context.features & POINTER_AUTH != 0 && data.has_pointer_auth {
        context.keys = pointer_auth::save();
    }
    context.bank.unlocked = !hardware::is_locked();
    if context.monitors.has & PMU != 0 {
        hardware::save_pmu(&mut context.bank);
        Gic::set_ppi_active(cpu.local(), PMU_INTID, false);
    }
}

/// Sets what the loaded vCPU has of these features, and the values of its ID registers.
pub(crate) fn set(data: &mut CpuData, machine: &Machine, features: u64) {
    data.features = features;
    data.monitors = features & ALL_MONITORS;
    data.world.note_monitors(data.monitors != 0);
    let (pa_range, gicv3) = (machine.pa_range, Gic::VERSION == 3);
    // Bound: 10 registers.
    for (reg, place) in IdReg::ALL {
        if let Some(value) = data.id_registers.get_mut(place) {
            *value = idregs::filter(reg, this_cpu::id_register(reg), pa_range, gicv3, features);
        }
    }
}
