//! NEXT: Gear2 says what runs, Gear1 comes back with the next event.
//!
//! Requirements: G1-RUN-006, G1-TIM-007, G1-VCPU-001, G1-VCPU-002.

use gear1_abi::call::{Decision, Failure, Reply, Status, VcpuState, Waits};
use gear1_abi::event::Event;
use gear1_abi::regs::Regs;
use gear1_arch::entry::Resume;
use gear1_arch::{barrier, cpu, serror};
use gear1_core::vcpu::VcpuShared;

use crate::gic::{Gic, HostGic};
use crate::halt::{HaltReason, halt};
use crate::machine::{self, Cpu, Loaded, Machine};
use crate::{event, irq, reply, supervise, timer, vcpu};

/// Returns X0 to X7 of Gear2's call.
#[inline]
fn arguments(cpu: &mut Cpu) -> Regs {
    let [a, b, c, d, e, f, g, h, ..] = cpu.gear2().x;
    [a, b, c, d, e, f, g, h]
}

/// Answers the call with an event: Gear2 resumes, and no guest is entered.
fn answer(cpu: &mut Cpu, event: &Event) -> Resume {
    event::deliver(cpu, event, cpu::now());
    Resume::Same
}

/// Answers a decision that cannot be carried out. Gear2 has made a mistake, or its view is older
/// than the state: neither is a reason to stop it.
fn refuse(cpu: &mut Cpu, status: Status) -> Resume {
    answer(cpu, &Event::Refused(status as u64))
}

/// Handles `SVC #NEXT`. Most decisions run the loaded vCPU again, for as long as before, with the
/// answer to what it has asked: they need no stack frame, and no look at what they do not change.
///
/// # Safety
///
/// Gear2 has trapped on this CPU.
#[inline(always)]
pub(crate) unsafe fn next_at_once(cpu: &mut Cpu) -> Resume {
    run_at_once(cpu).unwrap_or_else(|| next_slowly(cpu))
}

/// Handles a decision that takes longer, from its beginning: most often another vCPU is run.
#[inline(never)]
fn next_slowly(cpu: &mut Cpu) -> Resume {
    if let Some(loaded) = cpu.data.loaded
        && Decision::runs_other_than(&arguments(cpu), loaded.id)
    {
        // SAFETY: Gear2 has trapped, as for `next_at_once`, which alone calls this.
        return unsafe { run_another(cpu, loaded.machine) };
    }
    let Some(machine) = cpu.data.machine else {
        halt(cpu, HaltReason::Inconsistent)
    };
    // SAFETY: as for `next_at_once`, which alone calls this.
    unsafe { next(cpu, machine) }
}

/// Carries out a decision that changes neither the loaded vCPU, nor its waits, nor the deadline.
/// `None`: it is another one, or something stands against it, and nothing has been done.
///
/// A loaded vCPU exists and is this CPU's own: [`run_loaded`] looks for no more. The reply's abort
/// and a vCPU in Wfi are left to it, as they come seldom.
#[inline(always)]
fn run_at_once(cpu: &mut Cpu) -> Option<Resume> {
    let loaded = cpu.data.loaded?;
    let (deadline, value) = Decision::decode_run_of(&arguments(cpu), loaded.id, cpu.data.waits)?;
    let now = cpu::now();
    if event::is_pending_at(cpu, || now) {
        return None;
    }
    let (Some(context), gear2, data, next) = cpu.parts_to_switch() else {
        return None;
    };
    if deadline != data.deadline {
        return None;
    }
    let way = data.world.short_way()?;
    let shared = loaded.shared;
    // The registers are this CPU's alone: nobody sees that they come behind the state.
    let is_running = match value {
        Some(value) => reply::put_at_once(context, shared, value),
        None => shared.transition(VcpuState::Ready, VcpuState::Running),
    };
    if !is_running {
        return None;
    }
    if shared.requests().is_none() {
        // No request was handled, so nothing here can have woken a vCPU of this CPU since the look
        // at pending events.
        // SAFETY: Gear2 has trapped, as for `next_at_once`; the rest was looked at above.
        unsafe { vcpu::prepare_at_once((data, gear2), context, shared, way, now) };
        // SAFETY: `prepare_at_once` has prepared the CPU for `loaded`, whose context this is.
        unsafe { next.set_guest(context, shared) };
        return Some(Resume::Switch);
    }
    Some(handle_and_enter(cpu, loaded))
}

/// Handles the requests of the loaded vCPU, which is Running already, and enters it.
#[inline(never)]
fn handle_and_enter(cpu: &mut Cpu, loaded: &Loaded) -> Resume {
    enter_claimed(cpu, loaded.machine, loaded.shared)
}

/// Handles `SVC #NEXT`, whatever is decided.
///
/// # Safety
///
/// Gear2 has trapped on this CPU.
#[inline(never)]
pub(crate) unsafe fn next(cpu: &mut Cpu, machine: &'static Machine) -> Resume {
    // Gear2's own: left pending, it would be the guest's that is entered, or keep WFI from waiting.
    if serror::collect(cpu.data.has_ras) {
        return supervise::failed(cpu, machine, Failure::Fault);
    }
    match Decision::decode(&arguments(cpu)) {
        Some(Decision::Run {
            vcpu,
            deadline,
            reply,
            value,
            waits,
        }) if let Some(loaded) = cpu.data.loaded
            && loaded.id == vcpu =>
        {
            run_loaded(cpu, loaded, deadline, (reply, value), waits)
        }
        // SAFETY: the caller's condition.
        Some(Decision::Run { .. }) => unsafe { run_another(cpu, machine) },
        Some(Decision::Idle { deadline }) => match cpu.data.loaded {
            Some(loaded) if loaded.shared.is(VcpuState::Ready) => {
                hold_back(cpu, machine, loaded, deadline)
            }
            Some(_) | None => idle(cpu, machine, deadline),
        },
        None => refuse(cpu, Status::Invalid),
    }
}

/// Begins to carry out a decision to run a vCPU, in the order that `docs/abi.md` promises. A reply
/// comes before all that may prevent the run, as Gear2 counts it as delivered. The deadline comes
/// before the pending events, as it holds whether the vCPU runs or not.
///
/// The owner CPU alone gets here, so between the claim and the entry no other CPU runs the vCPU; a
/// stop or a wake-up by another CPU becomes a request, which `prepare_entry` sees.
#[inline(always)]
fn begin(cpu: &mut Cpu, loaded: &Loaded, reply: Reply, value: u64) -> Result<(), Status> {
    if loaded.shared.owner_cpu() != cpu.index() {
        return Err(Status::WrongState);
    }
    match reply {
        Reply::None => Ok(()),
        Reply::Value | Reply::Abort => reply::complete(cpu, loaded.id, reply, value),
    }
}

/// Carries out a decision to run the loaded vCPU.
fn run_loaded(
    cpu: &mut Cpu,
    loaded: &'static Loaded,
    deadline: u64,
    (reply, value): (Reply, u64),
    waits: Waits,
) -> Resume {
    if let Err(status) = begin(cpu, loaded, reply, value) {
        return refuse(cpu, status);
    }
    timer::set_deadline(&mut cpu.data, deadline);
    if let Some(event) = &event::pending_event(cpu, None) {
        return answer(cpu, event);
    }
    if !loaded.shared.claim() {
        return refuse(cpu, Status::WrongState);
    }
    vcpu::set_waits(cpu, waits);
    enter_claimed(cpu, loaded.machine, loaded.shared)
}

/// Handles `SVC #NEXT` with a decision to run a vCPU that is not loaded: the world switch. All of it
/// is in this function, because each function of its own would store and load registers.
///
/// # Safety
///
/// Gear2 has trapped on this CPU.
#[inline(never)]
unsafe fn run_another(cpu: &mut Cpu, machine: &'static Machine) -> Resume {
    // As in `next`.
    if serror::collect(cpu.data.has_ras) {
        return supervise::failed(cpu, machine, Failure::Fault);
    }
    let Some(Decision::Run {
        vcpu: id,
        deadline,
        reply,
        value,
        waits,
    }) = Decision::decode(&arguments(cpu))
    else {
        return refuse(cpu, Status::Invalid);
    };
    let Some(loaded) = machine::loadable(id) else {
        return refuse(cpu, Status::NotFound);
    };
    if let Err(status) = begin(cpu, loaded, reply, value) {
        return refuse(cpu, status);
    }
    let shared = loaded.shared;
    // The load arms the EL2 timer, whose deadlines it changes as well.
    timer::note_deadline(&mut cpu.data, deadline);
    // A world switch takes long: whom the timer wakes now would wait for it.
    timer::take_expired(cpu, machine);
    if let Some(event) = &event::pending_event(cpu, None) {
        // Another event than the deadline may have come first: a deadline that has passed is told
        // with the next one, and its interrupt would only come in between.
        timer::arm_unless_due(&mut cpu.data, cpu::now());
        return answer(cpu, event);
    }
    if !shared.claim() {
        timer::arm(&mut cpu.data);
        return refuse(cpu, Status::WrongState);
    }
    // SAFETY: Gear2 has trapped.
    if unsafe { vcpu::load_here(cpu, machine, loaded) }.is_none() {
        timer::arm(&mut cpu.data);
        shared.set_state(VcpuState::Ready);
        return refuse(cpu, Status::Busy);
    }
    timer::take_expired(cpu, machine);
    vcpu::set_waits(cpu, waits);
    if !shared.requests().is_none()
        && let Some(event) = &vcpu::prepare_entry(cpu, machine)
    {
        return answer(cpu, event);
    }
    // The load and the requests may have woken a vCPU of this very CPU (one whose timer is due by
    // now), for which nobody would interrupt the guest (G1-VCPU-001). The deadline may have passed
    // during the load.
    // planted: nobody looks behind the load for whom it woke
    if let Some(event) = &event::pending_event(cpu, None) {
        shared.set_state(VcpuState::Ready);
        return answer(cpu, event);
    }
    // SAFETY: Gear2 has trapped, and `loaded` is loaded since.
    unsafe { vcpu::enter_loaded(cpu, loaded) }
}

/// Enters the loaded vCPU, which was loaded before the decision and is Running already, unless an
/// event comes first.
#[inline(always)]
fn enter_claimed(cpu: &mut Cpu, machine: &Machine, shared: &VcpuShared) -> Resume {
    if let Some(event) = &vcpu::prepare_entry(cpu, machine) {
        return answer(cpu, event);
    }
    // The requests may have woken a vCPU of this very CPU, for which nobody would interrupt the guest
    // (G1-VCPU-001).
    if event::is_signalled(cpu)
        && let Some(event) = &event::pending_event(cpu, None)
    {
        shared.set_state(VcpuState::Ready);
        return answer(cpu, event);
    }
    // SAFETY: Gear2 has trapped, as for `next` and `next_at_once`.
    unsafe { vcpu::enter(cpu) }
}

/// Waits for an event while the loaded vCPU could run, because Gear2 holds it back: its cap is used
/// up, or its VM is paused. The wait is stolen from the vCPU (G1-TIM-007).
#[inline(never)]
fn hold_back(cpu: &mut Cpu, machine: &Machine, loaded: &Loaded, deadline: u64) -> Resume {
    loaded.shared.begin_stolen(cpu::now());
    let resume = idle(cpu, machine, deadline);
    vcpu::end_stolen(loaded);
    resume
}

/// Waits for an event. The loaded vCPU stays loaded: it may be the one that is woken.
#[inline(never)]
fn idle(cpu: &mut Cpu, machine: &Machine, deadline: u64) -> Resume {
    timer::set_deadline(&mut cpu.data, deadline);
    event::began(cpu.gear2(), cpu::now());
    // A pending list register would keep this CPU out of WFI.
    Gic::set_virtual_interface(false);
    // Bound: none, by design: the CPU has nothing to do until an event comes; it waits in WFI.
    loop {
        if let Some(event) = &event::pending_event(cpu, None) {
            Gic::set_virtual_interface(true);
            return answer(cpu, event);
        }
        barrier::dsb_sy();
        barrier::wfi();
        if irq::handle_pending(cpu, machine) && supervise::is_called(cpu) {
            Gic::set_virtual_interface(true);
            return supervise::rejoin(cpu, machine);
        }
    }
}
