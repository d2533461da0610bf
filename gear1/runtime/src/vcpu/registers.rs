//! The registers of a loaded vCPU, which stay in hardware while Gear2 runs.
//!
//! Requirements: G1-RUN-003, G1-RUN-012, G1-TIM-005.

use gear1_abi::call::vcpu_reg;
use gear1_arch::el1;
use gear1_arch::regs::{CNTVOFF_EL2, VDISR_EL2, VMPIDR_EL2, Writeable as _};
use gear1_core::context::{El1State, VcpuContext};

use crate::gic::{Gic, HostGic};
use crate::machine::{Cpu, CpuData};

/// Loads the registers of a vCPU that stay in hardware while Gear2 runs.
#[inline(always)]
pub(super) fn load_registers(data: &CpuData, context: &VcpuContext) {
    // Before the virtual timer is on again.
    // planted: a vCPU loads another offset
    CNTVOFF_EL2.set(context.cntvoff);
    restore_el1(data, &context.el1);
    if data.has_ras {
        VDISR_EL2.set(context.el1.disr);
    }
    VMPIDR_EL2.set(context.vmpidr);
    Gic::restore_cpu_interface(&context.gic);
}

/// Loads a vCPU's EL1 registers; with Gear2 at EL1, only those that do not leave when it is
/// entered.
pub(super) fn restore_el1(data: &CpuData, state: &El1State) {
    // planted: a vCPU finds another's EL1 registers
    if !data.world.is_gear2_at_el1() {
        el1::restore(state);
    }
    el1::restore_timer(state);
}

/// Saves a vCPU's EL1 registers; with Gear2 at EL1, only those that did not leave when Gear2 was
/// entered.
#[inline(always)]
pub(super) fn save_el1(data: &CpuData, state: &mut El1State) {
    if !data.world.is_gear2_at_el1() {
        el1::save(state);
    }
    el1::save_timer(state);
}

/// Returns the registers of the vCPU that is loaded here and has left its guest, and the life that
/// they are of.
pub(crate) fn registers_here(cpu: &mut Cpu) -> Option<(u32, [u64; vcpu_reg::COUNT])> {
    let (Some(context), _, data) = cpu.parts() else {
        return None;
    };
    save_el1(data, &mut context.el1);
    Some((context.life, context.registers()))
}
