//! Gear2's replies to vCPUs that wait for one.
//!
//! A vCPU that is loaded gets its reply into its registers at once. One that is not loaded gets a
//! word in its shared part, which the next load applies: its registers are in a context that this
//! CPU has not claimed.
//!
//! Requirements: G1-FLT-001, G1-PSCI-009.

use gear1_abi::boot::RealTime;
use gear1_abi::call::{Reply, Status, VcpuState};
use gear1_abi::id::VcpuId;
use gear1_arch::cpu;
use gear1_arch::regs::{
    ELR_EL1, ESR_EL1, FAR_EL1, Readable as _, SPSR_EL1, VBAR_EL1, Writeable as _,
};
use gear1_core::context::VcpuContext;
use gear1_core::syndrome::{Entry, INSTRUCTION, Syndrome};
use gear1_core::vcpu::VcpuShared;

use crate::kick;
use crate::machine::{self, Cpu, Machine};

/// Completes what a vCPU of this CPU's waits for. The registers come before the state: once the
/// vCPU is Ready, it may be run.
pub(crate) fn complete(cpu: &mut Cpu, id: VcpuId, reply: Reply, value: u64) -> Result<(), Status> {
    let shared = machine::vcpu(id);
    let waits = awaited(shared)?;
    let hypercall = if waits == VcpuState::AwaitsHypercall {
        HYPERCALL
    } else {
        0
    };
    let word = reply as u64 | hypercall;
    let here = cpu.data.is_loaded(id);
    if here {
        apply(cpu, word, value);
    } else {
        shared.post_reply(word, value);
    }
    // Fails only when the VM was stopped meanwhile; then nobody wants the reply.
    if shared.transition(waits, VcpuState::Ready) {
        if !here {
            shared.begin_stolen(cpu::now());
        }
        Ok(())
    } else {
        Err(Status::WrongState)
    }
}

/// Returns the state of a vCPU that waits for a reply. Only a reply, here on the owner CPU, and the
/// end of the VM, on any CPU, take a vCPU out of these states.
#[inline(always)]
fn awaited(shared: &VcpuShared) -> Result<VcpuState, Status> {
    match shared.state() {
        waits @ (VcpuState::AwaitsMmio | VcpuState::AwaitsHypercall) => Ok(waits),
        VcpuState::Off | VcpuState::Ready | VcpuState::Running | VcpuState::Wfi => {
            Err(Status::WrongState)
        }
    }
}

/// Completes a request outside of a decision: the loop of another CPU gets a wake-up. With `None` a
/// vCPU in WFI, which may end at any time, or in power-down wakes (G1-PSCI-009).
pub(crate) fn complete_and_wake(
    cpu: &mut Cpu,
    machine: &Machine,
    id: VcpuId,
    how: Reply,
    value: u64,
) -> Result<(), Status> {
    let (vm, _) = *id.select(&machine.vcpus);
    let is_gear2s = machine::boot_vm(machine, vm).real_time == RealTime::No;
    if how == Reply::None && is_gear2s && machine::vcpu(id).wake_up() {
        kick::wake(cpu, machine, id);
        return Ok(());
    }
    complete(cpu, id, how, value)?;
    if machine::vcpu(id).owner_cpu() != cpu.index() {
        kick::wake(cpu, machine, id);
    }
    Ok(())
}

/// In a reply's word: it answers a hypercall.
const HYPERCALL: u64 = 1 << 8;

/// Puts a reply into the loaded vCPU's registers. It is not running: PC and
/// PSTATE are in its context.
pub(crate) fn apply(cpu: &mut Cpu, word: u64, value: u64) {
    let (has_pan, el1) = (cpu.data.has_pan, cpu.data.world.is_gear2_at_el1());
    let Some(context) = cpu.context() else { return };
    if word & HYPERCALL != 0 {
        end_hypercall(context, word, value);
        return;
    }
    match Reply::from_reg(word & 0xff) {
        Some(Reply::Value) => end_access(context, value),
        Some(Reply::Abort) => take_abort(context, has_pan, el1),
        Some(Reply::None) | None => {}
    }
}

/// Ends what the loaded vCPU waits for with a value, and makes it Running. `false`: it waits for
/// nothing, and nothing has been done. Each state is tried, calls first: a look at the state in
/// advance would not save the compare-exchange.
#[inline(always)]
pub(crate) fn put_at_once(context: &mut VcpuContext, shared: &VcpuShared, value: u64) -> bool {
    if shared.transition(VcpuState::AwaitsHypercall, VcpuState::Running) {
        // planted: an answer of Gear2's is lost on the short way
        context.frame.set_reg(0, value);
        return true;
    }
    let is_answered = shared.transition(VcpuState::AwaitsMmio, VcpuState::Running);
    if is_answered {
        end_access(context, value);
    }
    is_answered
}

/// Ends an access that the loaded vCPU waits in: a load gets the value.
#[inline(always)]
fn end_access(context: &mut VcpuContext, value: u64) {
    let abort = Syndrome(context.awaited_esr).data_abort();
    if !abort.is_write() {
        context.frame.set_reg(abort.register(), abort.extend(value));
    }
    context.frame.step_over();
}

/// Ends a hypercall that the loaded vCPU waits in: X0 gets the value. The PC is behind the call
/// already, and goes back for reply `None`, by which a restarted Gear2 has the call made again.
#[inline(always)]
fn end_hypercall(context: &mut VcpuContext, word: u64, value: u64) {
    if word & 0xff == Reply::None as u64 {
        context.frame.pc = context.frame.pc.wrapping_sub(INSTRUCTION);
    } else {
        context.frame.set_reg(0, value);
    }
}

/// Has the loaded vCPU take an external abort for the access that it waits for, as if the bus had
/// refused the access. `el1`: Gear2 runs at EL1, so the guest's EL1 registers are in its context
/// instead of the hardware.
#[inline(always)]
fn take_abort(context: &mut VcpuContext, has_pan: bool, el1: bool) {
    let entry = Entry::synchronous(context.frame.pstate, context.el1.sctlr, has_pan);
    // The next time that it comes here, `abort::forward` looks at it.
    let vbar = if el1 {
        context.el1.vbar
    } else {
        VBAR_EL1.get()
    };
    context.nesting.note(context.frame.pc, vbar, entry, false);
    let esr = entry.external_abort(Syndrome(context.awaited_esr), None);
    let (far, pc, pstate) = (context.awaited_far, context.frame.pc, context.frame.pstate);
    if el1 {
        let state = &mut context.el1;
        (state.esr, state.far, state.elr, state.spsr) = (esr, far, pc, pstate);
    } else {
        ESR_EL1.set(esr);
        FAR_EL1.set(far);
        ELR_EL1.set(pc);
        SPSR_EL1.set(pstate);
    }
    context.frame.pc = vbar.wrapping_add(entry.vector_offset());
    context.frame.pstate = entry.pstate();
}
