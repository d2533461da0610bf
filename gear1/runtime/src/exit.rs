//! The entries from the vectors: synchronous exceptions and SErrors from guests and from Gear2,
//! decoded and dispatched, and interrupts.
//!
//! The ways that guests take most often end here without a stack frame. All others end in
//! [`finish`]: where a real-time VM's vCPU has left its guest, its CPU waits in `realtime`, which
//! stands above the handlers.
//!
//! Requirements: G1-RUN-003, G1-GIC-006, G1-FLT-006.

use gear1_abi::boot::RealTime;
use gear1_abi::call::Failure;
use gear1_abi::exit::ExitReason;
use gear1_abi::guest;
use gear1_arch::cpu::hcr;
use gear1_arch::entry::Resume;
use gear1_arch::gic::Acknowledged;
use gear1_arch::regs::{HCR_EL2, Readable as _, Writeable as _};
use gear1_arch::stop;
use gear1_core::syndrome::{Syndrome, SysregAccess, ec};
use gear1_core::vcpu::VcpuShared;

use crate::gic::{self, Gic, HostGic};
use crate::halt::{HaltReason, halt};
use crate::machine::Cpu;
use crate::vcpu::Handled;
use crate::{abort, gear2_call, guest_call, inject, irq, realtime, supervise, sysreg, vcpu, vgic};

/// Ends the exit of a guest.
#[inline(always)]
fn finish(cpu: &mut Cpu, handled: Handled) -> Resume {
    match handled {
        Handled::Same => Resume::Same,
        Handled::Switch => Resume::Switch,
        Handled::Left => left(cpu),
    }
}

/// A real-time VM's vCPU has left its guest.
#[inline(never)]
fn left(cpu: &mut Cpu) -> Resume {
    match cpu.data.machine {
        Some(machine) => realtime::on_exit(cpu, machine),
        None => halt(cpu, HaltReason::Inconsistent),
    }
}

/// Entry from the synchronous vectors.
#[unsafe(no_mangle)]
extern "C" fn gear1_sync(cpu: &mut Cpu, esr: u64) -> Resume {
    let syndrome = Syndrome(esr);
    let Some(shared) = cpu.running() else {
        return of_gear2(cpu, syndrome);
    };
    match syndrome.class() {
        ec::HVC64 => hvc(cpu, shared),
        ec::SYSREG => system_register(cpu, syndrome, shared),
        ec::DATA_ABORT => data_abort(cpu, syndrome, shared),
        _ => slow_exit(cpu, syndrome),
    }
}

/// Handles a synchronous exception of Gear2.
#[inline(never)]
fn of_gear2(cpu: &mut Cpu, syndrome: Syndrome) -> Resume {
    let Some(machine) = cpu.data.machine else {
        halt(cpu, HaltReason::Inconsistent)
    };
    match (syndrome.class(), cpu.data.world.el1) {
        (ec::SVC64, _) | (ec::HVC64, true) => {
            gear2_call::dispatch(cpu, machine, syndrome.immediate())
        }
        _ => supervise::failed(cpu, machine, Failure::Fault),
    }
}

/// HVC: the PC is behind the instruction already.
#[inline(always)]
fn hvc(cpu: &mut Cpu, shared: &VcpuShared) -> Resume {
    let [function, ..] = cpu.frame().x;
    if guest_call::version(cpu, function, shared) {
        return Resume::Same;
    }
    if guest::is_vendor(function) {
        return vendor_call(cpu);
    }
    call(cpu, ExitReason::Hvc)
}

#[inline(never)]
fn vendor_call(cpu: &mut Cpu) -> Resume {
    let handled = guest_call::vendor(cpu, ExitReason::Hvc);
    finish(cpu, handled)
}

/// A call by SMCCC.
#[inline(never)]
fn call(cpu: &mut Cpu, reason: ExitReason) -> Resume {
    let handled = guest_call::call(cpu, reason);
    finish(cpu, handled)
}

/// A trapped MSR, MRS or system instruction.
#[inline(never)]
fn system_register(cpu: &mut Cpu, syndrome: Syndrome, shared: &VcpuShared) -> Resume {
    let access = syndrome.sysreg();
    if access.is_read() {
        if let Some(resume) = sysreg::identification(cpu, access, shared) {
            return resume;
        }
    } else if sysreg::is_sgi1r(access) {
        return sgi1r(cpu, access, shared);
    }
    slow_register(cpu, access, shared)
}

/// An SGI: the same as the vCPU's last one, and its own, or another.
#[inline(never)]
fn sgi1r(cpu: &mut Cpu, access: SysregAccess, shared: &VcpuShared) -> Resume {
    if sysreg::replay_own_sgi(cpu, access, shared) {
        return Resume::Same;
    }
    sgi(cpu, access)
}

#[inline(never)]
fn sgi(cpu: &mut Cpu, access: SysregAccess) -> Resume {
    let handled = sysreg::sgi(cpu, access);
    finish(cpu, handled)
}

#[inline(never)]
fn slow_register(cpu: &mut Cpu, access: SysregAccess, shared: &VcpuShared) -> Resume {
    let handled = sysreg::access(cpu, access, shared);
    finish(cpu, handled)
}

#[inline(never)]
fn data_abort(cpu: &mut Cpu, syndrome: Syndrome, shared: &VcpuShared) -> Resume {
    if let Some(resume) = abort::distributor_read(cpu, syndrome, shared) {
        return resume;
    }
    slow_data_abort(cpu, syndrome)
}

#[inline(never)]
fn slow_data_abort(cpu: &mut Cpu, syndrome: Syndrome) -> Resume {
    let handled = abort::data(cpu, syndrome);
    finish(cpu, handled)
}

/// Handles exits of guests outside the fast path.
#[inline(never)]
fn slow_exit(cpu: &mut Cpu, syndrome: Syndrome) -> Resume {
    let Some(machine) = cpu.data.machine else {
        return Resume::Same;
    };
    let handled = match syndrome.class() {
        // Trapped, so the PC is still at the instruction.
        ec::SMC64 => {
            vcpu::skip_instruction();
            return call(cpu, ExitReason::Smc);
        }
        ec::WFX if !syndrome.is_wfxt() => guest_call::wait(cpu, machine, syndrome),
        ec::FP => {
            vcpu::take_fp(cpu);
            return Resume::Same;
        }
        ec::INSTRUCTION_ABORT => abort::instruction(cpu, machine, syndrome),
        _ => inject::undefined(cpu, machine),
    };
    finish(cpu, handled)
}

/// Entry from the SError vectors: reflected to the guest that runs, since an
/// asynchronous error cannot be told apart from one it caused. Gear2's is a fault of Gear2's.
#[unsafe(no_mangle)]
extern "C" fn gear1_serror(cpu: &mut Cpu) -> Resume {
    if cpu.is_gear2_current()
        && let Some(machine) = cpu.data.machine
    {
        return supervise::failed(cpu, machine, Failure::Fault);
    }
    HCR_EL2.set(HCR_EL2.get() | hcr::VSE);
    Resume::Same
}

/// Entry from the IRQ vectors.
#[unsafe(no_mangle)]
extern "C" fn gear1_irq(cpu: &mut Cpu) -> Resume {
    let Some(irq) = Gic::acknowledge() else {
        return Resume::Same;
    };
    if Gic::intid(irq) == gic::VIRTUAL_TIMER
        && let Some(shared) = cpu.running()
        && vgic::replay(cpu, shared, cpu.data.timer_interrupt.get())
    {
        Gic::drop_priority(irq);
        shared.count(ExitReason::Timer);
        return Resume::Same;
    }
    if Gic::intid(irq) == gic::KICK
        && let Some(shared) = cpu.running()
        && cpu.data.real_time == RealTime::No
    {
        return kicked(cpu, irq, shared);
    }
    interrupt(cpu, irq)
}

/// Another CPU has something for this one, which runs a guest.
#[inline(never)]
fn kicked(cpu: &mut Cpu, irq: Acknowledged, shared: &VcpuShared) -> Resume {
    Gic::drop_priority(irq);
    Gic::end(irq);
    stop::obey();
    shared.count(ExitReason::Kick);
    let Some(machine) = cpu.data.machine else {
        return Resume::Same;
    };
    if supervise::is_called(cpu) {
        return supervise::leave_and_rejoin(cpu, machine);
    }
    let handled = vcpu::after_interrupt(cpu, machine, ExitReason::Kick);
    finish(cpu, handled)
}

#[inline(never)]
fn interrupt(cpu: &mut Cpu, irq: Acknowledged) -> Resume {
    let Some(machine) = cpu.data.machine else {
        return Resume::Same;
    };
    let reason = irq::handle(cpu, machine, irq);
    if cpu.is_gear2_current() {
        return supervise::interrupted(cpu, machine);
    }
    let Some(loaded) = cpu.data.loaded.as_ref() else {
        return Resume::Same;
    };
    loaded.shared.count(reason);
    let handled = if reason == ExitReason::Timer {
        vcpu::woke_somebody(cpu, machine, reason)
    } else {
        vcpu::after_interrupt(cpu, machine, reason)
    };
    finish(cpu, handled)
}
