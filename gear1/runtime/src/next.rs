//! NEXT: Gear2 says what runs, Gear1 comes back with the next event.

use gear1_abi::call::{Decision, Reply, Status, VcpuState};
use gear1_abi::event::Event;
use gear1_abi::id::VcpuId;
use gear1_abi::regs::Regs;
use gear1_arch::entry::Resume;
use gear1_arch::{barrier, cpu};

use crate::gic::{Gic, HostGic};
use crate::machine::{self, Cpu, Machine};
use crate::{abort, irq, timer, vcpu};

/// Puts the event into the registers that Gear2's loop returns with.
pub(crate) fn deliver(cpu: &mut Cpu, event: Event) {
    let regs = event.encode();
    let now = cpu::now();
    let frame = cpu.gear2();
    let ([x0, x1, x2, x3, x4, x5, x6, x7, ..], [a, b, c, d, e, f, g, _]) = (&mut frame.x, regs);
    (*x0, *x1, *x2, *x3, *x4, *x5, *x6, *x7) = (a, b, c, d, e, f, g, now);
}

/// Returns X0 to X7 of Gear2's call.
#[inline]
pub(crate) fn arguments(cpu: &mut Cpu) -> Regs {
    let [a, b, c, d, e, f, g, h, ..] = cpu.gear2().x;
    [a, b, c, d, e, f, g, h]
}

/// Answers the call with an event.
fn answer(cpu: &mut Cpu, event: Event) -> Resume {
    deliver(cpu, event);
    Resume::Same
}

fn refuse(cpu: &mut Cpu, status: Status) -> Resume {
    answer(cpu, Event::Refused(status as u64))
}

/// Returns what this CPU's loop has not heard yet. `running`: the vCPU that an
/// interrupt stopped, for events that tell it.
pub(crate) fn pending_event(cpu: &mut Cpu, running: Option<VcpuId>) -> Option<Event> {
    if cpu.data.has_gear2_irq
        && let Some(intid) = irq::take_gear2_irq(&mut cpu.data)
    {
        return Some(Event::Irq(running, intid));
    }
    let shared = machine::cpu_shared(cpu.index());
    if shared.is_pending() {
        if let Some(id) = shared.take_wake().and_then(VcpuId::new) {
            return Some(Event::Wake(id));
        }
        if shared.take_ring() {
            return Some(Event::Doorbell(running));
        }
        if shared.take_poke() {
            return Some(Event::Poke(running));
        }
    }
    timer::take_deadline(&mut cpu.data).then_some(Event::Deadline(running))
}

/// Handles `SVC #NEXT`.
pub(crate) fn next(cpu: &mut Cpu, machine: &Machine) -> Resume {
    match Decision::decode(&arguments(cpu)) {
        Some(Decision::Run {
            vcpu,
            deadline,
            reply,
            value,
            trap_wfe,
        }) => run(
            cpu,
            machine,
            Run {
                id: vcpu,
                deadline,
                reply,
                value,
                trap_wfe,
            },
        ),
        Some(Decision::Idle { deadline }) => idle(cpu, machine, deadline),
        None => refuse(cpu, Status::Invalid),
    }
}

struct Run {
    id: VcpuId,
    deadline: u64,
    reply: Reply,
    value: u64,
    trap_wfe: bool,
}

fn run(cpu: &mut Cpu, machine: &Machine, what: Run) -> Resume {
    if what.id.reg() >= u64::from(machine.boot.vcpu_count) {
        return refuse(cpu, Status::NotFound);
    }
    let shared = machine::vcpu(what.id);
    if shared.home() != cpu.index() {
        return refuse(cpu, Status::WrongState);
    }
    if what.reply != Reply::None
        && let Err(status) = abort::reply(cpu, what.id, what.reply, what.value)
    {
        return refuse(cpu, status);
    }
    timer::set_deadline(&mut cpu.data, what.deadline);
    if let Some(event) = pending_event(cpu, None) {
        return answer(cpu, event);
    }
    let claimed = shared.transition(VcpuState::Ready, VcpuState::Running)
        || shared.transition(VcpuState::Wfi, VcpuState::Running);
    if !claimed {
        return refuse(cpu, Status::WrongState);
    }
    if vcpu::load(cpu, machine, what.id).is_none() {
        shared.set_state(VcpuState::Ready);
        return refuse(cpu, Status::Busy);
    }
    if let Some(event) = vcpu::prepare_entry(cpu, machine) {
        return answer(cpu, event);
    }
    vcpu::enter(cpu, what.trap_wfe)
}

#[inline(never)]
fn idle(cpu: &mut Cpu, machine: &Machine, deadline: u64) -> Resume {
    timer::set_deadline(&mut cpu.data, deadline);
    // A pending list register would keep this CPU out of WFI.
    Gic::set_virtual_interface(false);
    // Unbounded by design: the CPU has nothing to do until an event comes.
    let event = loop {
        if let Some(event) = pending_event(cpu, None) {
            break event;
        }
        barrier::dsb_sy();
        barrier::wfi();
        irq::handle_pending(cpu, machine);
    };
    Gic::set_virtual_interface(true);
    answer(cpu, event)
}
