//! WFI of a vCPU for which nothing is due: the CPU leaves for Gear2, or waits with the vCPU inside
//! Gear1, and Gear2 hears of that only if there is something else for it.
//!
//! Requirements: G1-VCPU-001, G1-VCPU-002, G1-VCPU-003.

use gear1_abi::call::{VcpuState, WAITS_HERE};
use gear1_abi::event::Event;
use gear1_abi::exit::ExitReason;
use gear1_arch::entry::Resume;
use gear1_arch::gic::Acknowledged;
use gear1_arch::{barrier, cpu};
use gear1_core::vcpu::{CpuShared, Requests};

use crate::gic::{self, Gic, HostGic};
use crate::machine::{self, Cpu, Guest, Loaded};
use crate::vcpu::{NextPc, ShortExit};
use crate::{event, irq, supervise, vcpu, vgic};

/// Leaves the running guest, whose vCPU is in Wfi, for Gear2.
#[inline(always)]
pub(crate) fn leave(mut guest: Guest<'_>, reason: ExitReason) -> Resume {
    let Loaded { id, shared, .. } = *guest.loaded;
    let event = Event::Wfi(id);
    match ShortExit::of(guest.cpu) {
        // SAFETY: the loaded guest has trapped. Its PC is behind the WFI or the call already.
        Some(exit) => unsafe { exit.leave((shared, reason), NextPc::Kept, &event) },
        None => vcpu::leave_as_is(guest.reborrow(), reason, &event),
    }
}

/// End of a wait with the loaded vCPU.
enum Waited {
    /// The vCPU was woken, and is Running.
    Woken,
    /// There is an event for Gear2.
    Heard(Event),
    /// Gear2 is restarted.
    Called,
}

/// Waits with the vCPU, which is in Wfi since its exit, until it is woken or there is an event for
/// Gear2. Its registers, stage 2 and list registers stay loaded, and Gear2 takes no part.
///
/// Whoever wakes the vCPU makes it Ready, leaves its wake-up for this CPU's loop and kicks the CPU,
/// as if Gear2 waited: the wake-up is taken here, if it is all that the loop has to hear. Whatever
/// else the loop is to hear comes as an event, and the vCPU stays in Wfi, or Ready beside its
/// wake-up.
#[inline(never)]
pub(crate) fn stay(mut guest: Guest<'_>, reason: ExitReason) -> Resume {
    let signals = machine::cpu_shared(guest.cpu.index());
    let began = cpu::now();
    signals.begin_wait(began);
    let end = wait_for_end(guest.reborrow(), signals, began);
    let now = cpu::now();
    let ticks = signals.end_wait(began, now);
    let gear2 = guest.cpu.gear2();
    gear2.set_reg(9, gear2.reg(9).wrapping_add(ticks));
    let shared = guest.loaded.shared;
    if matches!(end, Waited::Woken)
        && (shared.requests().is_none() || vgic::replay_posted(guest.cpu, shared))
        && !event::is_pending_at(guest.cpu, || now)
    {
        return Resume::Same;
    }
    wait_is_over(guest.reborrow(), reason, end)
}

/// Ends a wait that does not end at once in the guest.
#[inline(never)]
fn wait_is_over(mut guest: Guest<'_>, reason: ExitReason, end: Waited) -> Resume {
    match end {
        Waited::Woken => vcpu::after_interrupt(guest.reborrow(), reason),
        Waited::Heard(event) => {
            let handled = vcpu::leave_as_is(guest.reborrow(), reason, &event);
            let gear2 = guest.cpu.gear2();
            gear2.set_reg(9, gear2.reg(9) | WAITS_HERE);
            handled
        }
        Waited::Called => supervise::stop_waiting_and_rejoin(guest.reborrow()),
    }
}

/// Waits for the first interrupt, which most often is the vCPU's own timer, and on if need be.
#[inline(always)]
fn wait_for_end(mut guest: Guest<'_>, signals: &CpuShared, began: u64) -> Waited {
    let shared = guest.loaded.shared;
    if !event::is_pending_at(guest.cpu, || began) {
        barrier::dsb_sy();
        barrier::wfi();
        // Most waits end by the vCPU's own timer.
        if let Some(irq) = Gic::acknowledge() {
            if Gic::intid(irq) == gic::VIRTUAL_TIMER
                && shared.transition(VcpuState::Wfi, VcpuState::Running)
            {
                irq::timer_of_running(guest.cpu, guest.loaded, irq);
                return Waited::Woken;
            }
            if let Some(waited) = interrupted(guest.reborrow(), irq) {
                return waited;
            }
            if let Some(waited) = take_wake(guest.loaded, signals) {
                return waited;
            }
        }
    }
    wait_on(guest.reborrow(), signals)
}

/// Waits on, when the first interrupt has not ended the wait.
#[inline(never)]
fn wait_on(mut guest: Guest<'_>, signals: &CpuShared) -> Waited {
    // A list register whose interrupt the guest has masked would keep this CPU out of WFI.
    Gic::set_virtual_interface(false);
    // Bound: none, by design: the CPU has nothing to do until its vCPU is woken or an event comes;
    // it waits in WFI.
    let waited = loop {
        if let Some(waited) = end_of_wait(guest.cpu, guest.loaded, signals) {
            break waited;
        }
        barrier::dsb_sy();
        barrier::wfi();
        if let Some(irq) = Gic::acknowledge()
            && let Some(waited) = interrupted(guest.reborrow(), irq)
        {
            break waited;
        }
    };
    Gic::set_virtual_interface(true);
    waited
}

/// Handles an interrupt of a CPU that waits with its vCPU. Another CPU may have ended the wait.
fn interrupted(guest: Guest<'_>, irq: Acknowledged) -> Option<Waited> {
    let Guest { cpu, loaded, .. } = guest;
    if irq::handle(cpu, loaded.machine, irq) != ExitReason::Kick {
        None
    } else if supervise::is_called(cpu) {
        Some(Waited::Called)
    } else {
        let is_off = loaded.shared.is(VcpuState::Off);
        is_off.then_some(Waited::Heard(Event::Off(loaded.id)))
    }
}

/// Tells what ends the wait of the vCPU, if anything does.
fn end_of_wait(cpu: &mut Cpu, loaded: &Loaded, signals: &CpuShared) -> Option<Waited> {
    let waited = take_wake(loaded, signals);
    waited.or_else(|| event::pending_event(cpu, None).map(Waited::Heard))
}

/// Takes the wake-up of the vCPU, if that is all that this CPU's loop has to hear.
#[inline(always)]
fn take_wake(loaded: &Loaded, signals: &CpuShared) -> Option<Waited> {
    let shared = loaded.shared;
    // A start resets the vCPU, and Gear2 decides on the new life.
    let is_reset = shared.requests().intersects(Requests::RESET);
    if is_reset || !signals.take_only_wake(loaded.id.index()) {
        return None;
    }
    Some(if shared.transition(VcpuState::Ready, VcpuState::Running) {
        Waited::Woken
    } else {
        // Its VM was stopped since.
        Waited::Heard(Event::Off(loaded.id))
    })
}
