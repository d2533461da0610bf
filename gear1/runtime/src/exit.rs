//! The entries from the vectors: synchronous exceptions and SErrors from guests and from Gear2,
//! decoded and dispatched, and interrupts.
//!
//! The ways that guests take most often end here without a stack frame. Where a real-time VM's vCPU
//! has left its guest, the handler returns [`Resume::Left`], and the CPU waits in `realtime`, which
//! stands above the handlers.
//!
//! Each function from an entry to the first slow one is kept apart (`inline(never)`): inside one
//! function the slow ways would store registers on the stack before the fast ones end, which costs
//! every exit some instructions.
//!
//! Requirements: G1-RUN-003, G1-GIC-006, G1-FLT-006, G1-TRC-002.

use gear1_abi::boot::RealTime;
use gear1_abi::call::{Failure, number};
use gear1_abi::exit::ExitReason;
use gear1_abi::guest;
use gear1_abi::id::VcpuId;
use gear1_arch::entry::Resume;
use gear1_arch::exception;
use gear1_arch::gic::Acknowledged;
use gear1_arch::{stop, world};
use gear1_core::syndrome::{Syndrome, SysregAccess, ec};
use gear1_core::vcpu::VcpuShared;

use crate::gic::{self, Gic, HostGic};
use crate::halt::{HaltReason, halt};
use crate::machine::{Cpu, Guest};
use crate::vgic::Sent;
use crate::{
    abort, event, gear2_call, guest_call, inject, irq, realtime, run, supervise, sysreg, vcpu, vgic,
};

/// Returns the guest that has trapped on the CPU.
#[inline(always)]
fn trapped(cpu: &mut Cpu) -> Guest<'_> {
    match Guest::of(cpu) {
        Ok(guest) => guest,
        Err(cpu) => halt(cpu, HaltReason::Inconsistent),
    }
}

/// Entry behind an exit by which the vCPU of a real-time VM has left its guest, with all its registers
/// stored.
#[unsafe(no_mangle)]
extern "C" fn gear1_left(cpu: &mut Cpu) -> Resume {
    let Some(machine) = cpu.data.machine else {
        halt(cpu, HaltReason::Inconsistent)
    };
    // SAFETY: `Resume::Left` says that `vcpu::leave_as_is` has left the guest.
    unsafe { realtime::on_exit(cpu, machine) }
}

/// Entry from the synchronous vectors, but for HVC and SVC.
#[unsafe(no_mangle)]
extern "C" fn gear1_sync(cpu: &mut Cpu, esr: u64) -> Resume {
    let syndrome = Syndrome(esr);
    let Some(shared) = cpu.running() else {
        return of_gear2(cpu, syndrome);
    };
    match syndrome.class() {
        ec::SYSREG => system_register(cpu, syndrome, shared),
        ec::DATA_ABORT => data_abort(cpu, syndrome, shared),
        _ => other_exit(cpu, syndrome, shared),
    }
}

/// Entry from the synchronous vectors for SVC, which Gear2 at EL0 alone can have taken to EL2. Each
/// round trip of a guest through Gear2 has one NEXT, and most have no other call.
#[unsafe(no_mangle)]
extern "C" fn gear1_svc(cpu: &mut Cpu, esr: u64) -> Resume {
    let syndrome = Syndrome(esr);
    if syndrome.is_svc(number::NEXT) {
        // SAFETY: Gear2 has trapped: SVC goes to EL2 by HCR_EL2.TGE, which no guest has, and by
        // HFGITR_EL2, which `init_traps` clears, alone.
        unsafe { run::next_at_once(cpu) }
    } else {
        of_gear2(cpu, syndrome)
    }
}

/// Entry from the synchronous vectors for HVC: the PC is behind the instruction already.
/// PSCI_VERSION is answered at once, as the shortest way through Gear1.
#[unsafe(no_mangle)]
extern "C" fn gear1_hvc(cpu: &mut Cpu, esr: u64) -> Resume {
    let Some(shared) = cpu.running() else {
        return of_gear2(cpu, Syndrome(esr));
    };
    let [function, ..] = cpu.frame().x;
    if guest_call::version(cpu, function, shared) {
        return Resume::Same;
    }
    if guest::is_vendor(function) {
        return vendor_call(cpu, function, shared);
    }
    call(cpu, ExitReason::Hvc)
}

/// Handles the exits that the dispatcher does not look for by itself. WFI is looked for here, so
/// that the dispatcher's own exits take no instruction more.
#[inline(never)]
fn other_exit(cpu: &mut Cpu, syndrome: Syndrome, shared: &'static VcpuShared) -> Resume {
    match syndrome.class() {
        ec::WFX if !syndrome.is_wfxt() => wait(cpu, syndrome, shared),
        _ => slow_exit(cpu, syndrome),
    }
}

/// Handles a synchronous exception of Gear2.
#[inline(never)]
fn of_gear2(cpu: &mut Cpu, syndrome: Syndrome) -> Resume {
    let Some(machine) = cpu.data.machine else {
        halt(cpu, HaltReason::Inconsistent)
    };
    match (syndrome.class(), cpu.data.world.is_gear2_at_el1()) {
        (ec::SVC64, _) | (ec::HVC64, true) => match syndrome.immediate() {
            // SAFETY: Gear2 has trapped: the entries call this for no guest.
            number::NEXT => unsafe { run::next(cpu, machine) },
            // SAFETY: as above.
            call => unsafe { gear2_call::dispatch(cpu, machine, call) },
        },
        _ => supervise::failed(cpu, machine, Failure::Fault),
    }
}

/// A call of the vendor's range, most of which are Gear2's.
#[inline(never)]
fn vendor_call(cpu: &mut Cpu, function: u64, shared: &'static VcpuShared) -> Resume {
    // SAFETY: `gear1_hvc` comes here for the guest that has trapped.
    let resume = unsafe { guest_call::vendor_at_once(cpu, function, shared) };
    resume.unwrap_or_else(|| slow_vendor_call(cpu))
}

/// Another one, from its beginning.
#[inline(never)]
fn slow_vendor_call(cpu: &mut Cpu) -> Resume {
    guest_call::vendor(trapped(cpu), ExitReason::Hvc)
}

/// A call by SMCCC.
#[inline(never)]
fn call(cpu: &mut Cpu, reason: ExitReason) -> Resume {
    guest_call::call(trapped(cpu), reason)
}

/// A trapped MSR, MRS or system instruction. Reads of identification registers and writes of
/// ICC_SGI1R_EL1 are most of them.
#[inline(never)]
fn system_register(cpu: &mut Cpu, syndrome: Syndrome, shared: &VcpuShared) -> Resume {
    let access = syndrome.sysreg();
    if access.is_read() {
        if let Some(resume) = sysreg::identification(cpu, access, shared) {
            return resume;
        }
    } else if Gic::VERSION == 3 && sysreg::is_sgi1r(access) {
        return sgi1r(cpu, access, shared);
    }
    slow_register(cpu, access)
}

/// An SGI: most are for one vCPU.
#[inline(never)]
fn sgi1r(cpu: &mut Cpu, access: SysregAccess, shared: &VcpuShared) -> Resume {
    match sysreg::sgi_at_once(cpu, access, shared) {
        Sent::Done => Resume::Same,
        Sent::Woke(id) => sgi_woke(cpu, id),
        Sent::No => sgi(cpu, access),
    }
}

/// An SGI to another vCPU, which is sent, and has woken the vCPU.
#[inline(never)]
fn sgi_woke(cpu: &mut Cpu, id: VcpuId) -> Resume {
    sysreg::sgi_woke(trapped(cpu), id)
}

/// An SGI to several vCPUs, to one that is off, or to the sender and another one than before.
#[inline(never)]
fn sgi(cpu: &mut Cpu, access: SysregAccess) -> Resume {
    sysreg::sgi(trapped(cpu), access)
}

/// An access to a register that few guests use often.
#[inline(never)]
fn slow_register(cpu: &mut Cpu, access: SysregAccess) -> Resume {
    sysreg::access(trapped(cpu), access)
}

/// A data abort: a load of the distributor's control registers, an SGI of a GICv2, or another
/// access.
#[inline(never)]
fn data_abort(cpu: &mut Cpu, syndrome: Syndrome, shared: &VcpuShared) -> Resume {
    if let Some(resume) = abort::distributor_read(cpu, syndrome, shared) {
        return resume;
    }
    if Gic::VERSION == 2 && syndrome.data_abort().is_word_store() {
        return sgir(cpu, syndrome, shared);
    }
    device_access(cpu, syndrome)
}

/// A 32-bit store, which may be an SGI of a GICv2: most are for one vCPU.
///
/// `cold` has the compiler ask for a load first, which is then no longer than with a GICv3.
#[cold]
#[inline(never)]
fn sgir(cpu: &mut Cpu, syndrome: Syndrome, shared: &VcpuShared) -> Resume {
    match abort::sgir_at_once(cpu, syndrome, shared) {
        Sent::Done => Resume::Same,
        Sent::Woke(id) => sgi_woke(cpu, id),
        Sent::No => device_access(cpu, syndrome),
    }
}

/// A data abort that is most likely an access which Gear2 answers.
#[inline(never)]
fn device_access(cpu: &mut Cpu, syndrome: Syndrome) -> Resume {
    // SAFETY: `gear1_sync` comes here by way of `data_abort`, for the guest that has trapped.
    let resume = unsafe { abort::forward_at_once(cpu, syndrome) };
    resume.unwrap_or_else(|| slow_data_abort(cpu, syndrome))
}

/// A data abort whose address has to be found first.
#[inline(never)]
fn slow_data_abort(cpu: &mut Cpu, syndrome: Syndrome) -> Resume {
    abort::data(trapped(cpu), syndrome)
}

/// WFI or WFE. Most vCPUs that leave for Gear2 wait, and nothing is due for them.
#[inline(never)]
fn wait(cpu: &mut Cpu, syndrome: Syndrome, shared: &'static VcpuShared) -> Resume {
    if syndrome.is_wfe() {
        return wait_or_stay(cpu, syndrome);
    }
    // SAFETY: `gear1_sync` comes here for the guest that has trapped.
    let resume = unsafe { guest_call::wfi_at_once(cpu, shared) };
    resume.unwrap_or_else(|| wait_or_stay(cpu, syndrome))
}

/// WFE, or a WFI whose way needs a stack frame.
#[inline(never)]
fn wait_or_stay(cpu: &mut Cpu, syndrome: Syndrome) -> Resume {
    guest_call::wait(trapped(cpu), syndrome)
}

/// Handles exits of guests outside the fast path.
#[inline(never)]
fn slow_exit(cpu: &mut Cpu, syndrome: Syndrome) -> Resume {
    if syndrome.class() == ec::SMC64 {
        // Trapped, so the PC is still at the instruction.
        exception::skip_instruction();
        return call(cpu, ExitReason::Smc);
    }
    let mut guest = trapped(cpu);
    match syndrome.class() {
        ec::FP => take_fp(guest.reborrow()),
        ec::SVE if guest.loaded.boot.sve_bits != 0 => take_fp(guest.reborrow()),
        ec::SVE => inject::undefined(guest.reborrow(), ExitReason::Fp),
        ec::INSTRUCTION_ABORT => abort::instruction(guest.reborrow(), syndrome),
        _ => inject::undefined(guest.reborrow(), ExitReason::Undefined),
    }
}

/// The first use of FP, SIMD or SVE since another vCPU's.
#[inline(always)]
fn take_fp(guest: Guest<'_>) -> Resume {
    vcpu::take_fp(guest);
    Resume::Same
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
    if let Some(context) = cpu.context() {
        world::pend_serror(context);
    }
    Resume::Same
}

/// Entry from the IRQ vectors. The two that a running guest gets most often are a timer interrupt
/// that repeats and a kick; a real-time VM's CPU takes its rare kicks the long way.
#[unsafe(no_mangle)]
extern "C" fn gear1_irq(cpu: &mut Cpu) -> Resume {
    let Some(irq) = Gic::acknowledge() else {
        return gone(cpu);
    };
    if Gic::intid(irq) == gic::VIRTUAL_TIMER
        && let Some(shared) = cpu.running()
        && vgic::replay(cpu, shared, cpu.data.timer_interrupt.get())
    {
        Gic::drop_priority(irq);
        // planted: a timer interrupt that repeats is not counted
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

/// An interrupt that was gone when it was acknowledged. It has cost the guest an exit, which counts.
#[cold]
#[inline(never)]
fn gone(cpu: &Cpu) -> Resume {
    if let Some(shared) = cpu.running() {
        shared.count(ExitReason::IrqOther);
    }
    Resume::Same
}

/// Another CPU has something for this one, which runs a guest. The interrupt ends before the
/// requests are read: a request that comes in between kicks again.
#[inline(never)]
fn kicked(cpu: &mut Cpu, irq: Acknowledged, shared: &VcpuShared) -> Resume {
    Gic::drop_priority(irq);
    Gic::end(irq);
    stop::obey();
    shared.count(ExitReason::Kick);
    // What was replayed is delivered, whatever else there is.
    let has_sgi = shared.requests().sgis() != 0;
    if has_sgi
        && vgic::replay_posted(cpu, shared)
        && !event::is_pending(cpu)
        && !supervise::is_called(cpu)
    {
        return Resume::Same;
    }
    kicked_for_more(cpu)
}

/// The kick is for more than an SGI that repeats.
#[inline(never)]
fn kicked_for_more(cpu: &mut Cpu) -> Resume {
    let mut guest = trapped(cpu);
    if supervise::is_called(guest.cpu) {
        return supervise::leave_and_rejoin(guest.reborrow());
    }
    vcpu::after_interrupt(guest.reborrow(), ExitReason::Kick)
}

/// Another interrupt, while a guest or Gear2 runs. Gear2 takes no interrupts of its own: Gear2
/// resumes where it was, and hears of the interrupt at its next NEXT.
#[inline(never)]
fn interrupt(cpu: &mut Cpu, irq: Acknowledged) -> Resume {
    let Some(machine) = cpu.data.machine else {
        halt(cpu, HaltReason::Inconsistent)
    };
    let reason = irq::handle(cpu, machine, irq);
    if cpu.is_gear2_current() {
        return supervise::interrupted(cpu, machine);
    }
    let mut guest = trapped(cpu);
    guest.loaded.shared.count(reason);
    if reason == ExitReason::Timer {
        vcpu::woke_somebody(guest.reborrow(), reason)
    } else {
        vcpu::after_interrupt(guest.reborrow(), reason)
    }
}
