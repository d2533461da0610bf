//! Timers of a CPU: Gear2's deadline, and the virtual timers of its vCPUs that
//! are not loaded. The nearest of them is what the EL2 physical timer is set to.
//!
//! A loaded vCPU's virtual timer is in hardware, whether it runs or not, and
//! interrupts by itself. Requirements: G1-TIME-001, G1-TIME-002.

use gear1_abi::call::VcpuState;
use gear1_abi::id::VcpuId;
use gear1_abi::regs::NO_DEADLINE;
use gear1_arch::cpu;
use gear1_arch::regs::{CNTHP_CTL_EL2, CNTHP_CVAL_EL2, Writeable as _};

use crate::machine::{self, Cpu, CpuData, Machine};
use crate::signal;

/// CNTV_CTL_EL0: enabled and not masked.
const TIMER_ON: u64 = 1;
const TIMER_CONTROL: u64 = 3;

fn bit(id: VcpuId) -> u32 {
    1_u32.wrapping_shl(id.index() as u32)
}

/// Sets Gear2's deadline, in physical counter ticks.
#[inline]
pub(crate) fn set_deadline(data: &mut CpuData, deadline: u64) {
    if data.deadline != deadline {
        data.deadline = deadline;
        arm(data);
    }
}

/// Sets the EL2 timer to what is due first.
fn arm(data: &mut CpuData) {
    let mut first = data.deadline;
    let mut rest = data.offline;
    // Bound: one bit of 32 is cleared each time.
    while rest != 0 {
        let index = rest.trailing_zeros() as usize;
        rest &= rest.wrapping_sub(1);
        first = first.min(
            data.offline_deadlines
                .get(index)
                .copied()
                .unwrap_or(NO_DEADLINE),
        );
    }
    if first == data.armed {
        return;
    }
    data.armed = first;
    if first == NO_DEADLINE {
        CNTHP_CTL_EL2.set(0);
    } else {
        CNTHP_CVAL_EL2.set(first);
        CNTHP_CTL_EL2.set(TIMER_ON);
    }
}

/// A vCPU was unloaded: watches its timer if it runs.
/// `timer`: its CNTV_CTL_EL0 and CNTV_CVAL_EL0.
pub(crate) fn watch_offline(cpu: &mut Cpu, machine: &Machine, id: VcpuId, timer: (u64, u64)) {
    // CNTVOFF_EL2 is 0: virtual and physical count are the same.
    let (control, due) = timer;
    if control & TIMER_CONTROL != TIMER_ON {
        return;
    }
    if due <= cpu::now() {
        wake_if_waiting(cpu, machine, id);
        return;
    }
    cpu.data.offline |= bit(id);
    if let Some(deadline) = cpu.data.offline_deadlines.get_mut(id.index()) {
        *deadline = due;
    }
    arm(&mut cpu.data);
}

/// A vCPU is being loaded: its timer is in hardware again.
pub(crate) fn cancel_offline(data: &mut CpuData, id: VcpuId) {
    if data.offline & bit(id) != 0 {
        data.offline &= !bit(id);
        arm(data);
    }
}

/// The vCPU was given to another CPU: a timer watched here counts as due, so
/// that it is not forgotten; the new home's hardware decides once it is loaded.
pub(crate) fn hand_over(cpu: &mut Cpu, machine: &Machine, id: VcpuId) {
    if cpu.data.offline & bit(id) != 0 {
        cancel_offline(&mut cpu.data, id);
        wake_if_waiting(cpu, machine, id);
    }
}

fn wake_if_waiting(cpu: &Cpu, machine: &Machine, id: VcpuId) {
    if machine::vcpu(id).transition(VcpuState::Wfi, VcpuState::Ready) {
        signal::wake(cpu, machine, id);
    }
}

/// The EL2 timer fired: wakes the vCPUs that are due. The timer interrupts
/// again by itself once loaded.
pub(crate) fn expired(cpu: &mut Cpu, machine: &Machine) {
    CNTHP_CTL_EL2.set(0);
    cpu.data.armed = NO_DEADLINE;
    let now = cpu::now();
    let mut rest = cpu.data.offline;
    // Bound: one bit of 32 is cleared each time.
    while rest != 0 {
        let index = rest.trailing_zeros() as usize;
        rest &= rest.wrapping_sub(1);
        let due = cpu
            .data
            .offline_deadlines
            .get(index)
            .copied()
            .unwrap_or(NO_DEADLINE);
        if due <= now
            && let Some(id) = VcpuId::new(index)
        {
            cpu.data.offline &= !bit(id);
            wake_if_waiting(cpu, machine, id);
        }
    }
    arm_unless_due(&mut cpu.data, now);
}

/// Arms the timer, but not for a deadline that has passed: that one is an event
/// already, and its interrupt would keep coming.
fn arm_unless_due(data: &mut CpuData, now: u64) {
    if data.deadline > now {
        arm(data);
    }
}

/// Takes Gear2's deadline if it has passed.
pub(crate) fn take_deadline(data: &mut CpuData) -> bool {
    if data.deadline == NO_DEADLINE || data.deadline > cpu::now() {
        return false;
    }
    data.deadline = NO_DEADLINE;
    arm(data);
    true
}
