//! Events that Gear2's loop on a CPU has not received yet.
//!
//! Interrupts and the deadline are this CPU's own; wake-ups, doorbells and pokes are atomics that
//! any CPU sets. All are levels, so an event that is set twice before it is taken is one event.
//!
//! Requirements: G1-RUN-005.

use gear1_abi::event::Event;
use gear1_abi::id::VcpuId;
use gear1_arch::cpu;
use gear1_core::context::Frame;
use gear1_core::vcpu::CpuShared;

use crate::machine::{self, Cpu, CpuData};
use crate::timer;

/// Gives Gear2's loop the event and its time, which begins Gear2's period.
#[inline(never)]
pub(crate) fn deliver(cpu: &mut Cpu, event: &Event, now: u64) {
    put(cpu.gear2(), event, now);
    timer::watch_gear2(&mut cpu.data, now);
}

/// Puts the event and its time into the registers that Gear2's loop returns with. A caller that knows
/// the kind of the event has nothing decoded.
#[inline(always)]
pub(crate) fn put(gear2: &mut Frame, event: &Event, now: u64) {
    let regs = event.encode();
    let ([x0, x1, x2, x3, x4, x5, x6, x7, ..], [a, b, c, d, e, f, g, _]) = (&mut gear2.x, regs);
    (*x0, *x1, *x2, *x3, *x4, *x5, *x6, *x7) = (a, b, c, d, e, f, g, now);
}

/// Notes when the decision took effect: X8 of Gear2's call, which is the caller's zero until then.
/// Gear2 charges the time before to the vCPU for which both gears worked.
#[inline(always)]
pub(crate) fn began(gear2: &mut Frame, now: u64) {
    gear2.set_reg(8, now);
}

/// Returns what this CPU's loop has not heard yet. `running`: the vCPU that an
/// interrupt stopped, for events that tell it.
#[inline(always)]
pub(crate) fn pending_event(cpu: &mut Cpu, running: Option<VcpuId>) -> Option<Event> {
    if is_pending(cpu) {
        take_event(cpu, running)
    } else {
        None
    }
}

/// Tells whether there is something that this CPU's loop has not heard yet.
#[inline(always)]
pub(crate) fn is_pending(cpu: &Cpu) -> bool {
    is_pending_at(cpu, cpu::now)
}

/// Tells so for a time that `now` returns.
#[inline(always)]
pub(crate) fn is_pending_at(cpu: &Cpu, now: impl FnOnce() -> u64) -> bool {
    // No deadline is the end of time.
    cpu.data.has_gear2_irq || is_signalled(cpu) || cpu.data.deadline <= now()
}

/// Tells whether another CPU, or this one, has left something for this CPU's loop.
#[inline(always)]
pub(crate) fn is_signalled(cpu: &Cpu) -> bool {
    cpu.data.signals.is_some_and(CpuShared::is_pending)
}

/// Takes the first pending event in the order of `docs/abi.md`. Interrupts come first, as each
/// interrupt stays active until Gear2 ends it; the deadline comes last, as it can wait longest.
#[inline(never)]
fn take_event(cpu: &mut Cpu, running: Option<VcpuId>) -> Option<Event> {
    if cpu.data.has_gear2_irq
        && let Some(intid) = take_gear2_irq(&mut cpu.data)
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

/// Takes the lowest physical interrupt that waits for Gear2 on this CPU.
fn take_gear2_irq(data: &mut CpuData) -> Option<u32> {
    // Bound: 16 words of INTIDs.
    for (index, word) in (0_u32..16).zip(data.gear2_irqs.iter_mut()) {
        if *word != 0 {
            let bit = word.trailing_zeros();
            *word &= word.wrapping_sub(1);
            return Some(index.wrapping_mul(64).wrapping_add(bit));
        }
    }
    data.has_gear2_irq = false;
    None
}
