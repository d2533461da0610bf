//! Timers of a CPU: Gear2's deadline, the vCPUs' timers that are watched in software, doorbells
//! that this CPU holds, heartbeats that it looks at, and the next feeding of the board's watchdog.
//! The EL2 physical timer is set to the nearest of them.
//!
//! While Gear2 runs, the EL2 timer fires at the latest when Gear2's loop is overdue. The return of
//! Gear2 does not reprogram the timer: a check that comes too early, at most once a period, costs
//! less.
//!
//! A loaded vCPU's virtual timer is in hardware, whether the vCPU runs or not, and interrupts by
//! itself. Gear1 watches the EL1 physical timer of the loaded vCPU, and the earlier one of both
//! timers of each vCPU that is not loaded.
//!
//! Requirements: `docs/requirements/timers.md`. G1-TIM-008.

use gear1_abi::boot::MAX_DOORBELLS;
use gear1_abi::call::VcpuState;
use gear1_abi::id::{MAX_CPUS, MAX_VCPUS, VcpuId};
use gear1_abi::regs::NO_DEADLINE;
use gear1_arch::cpu;
use gear1_arch::regs::{CNTFRQ_EL0, CNTHP_CTL_EL2, CNTHP_CVAL_EL2, Readable as _, Writeable as _};
use gear1_core::timer::PhysicalReg;
use gear1_core::vgic::IntId;

use crate::machine::{self, Cpu, CpuData, Loaded, Machine, WATCHED_TIMERS};
use crate::{board_watchdog, ending, kick, vgic};

/// CNTHP_CTL_EL2: enabled and not masked.
const TIMER_ON: u64 = 1;
/// Number of the bit of the board's watchdog in `CpuData::watched`: the last one.
const FEEDING: usize = WATCHED_TIMERS - 1;

/// Returns the vCPU's bit in `CpuData::watched`.
fn bit(id: VcpuId) -> u64 {
    1_u64.wrapping_shl(id.index() as u32)
}

/// Sets Gear2's deadline, in physical counter ticks.
#[inline]
pub(crate) fn set_deadline(data: &mut CpuData, deadline: u64) {
    if data.deadline != deadline {
        data.deadline = deadline;
        // planted: a deadline is forgotten
        arm(data);
    }
}

/// Sets Gear2's deadline, and leaves the EL2 timer to the caller, which [arms](arm) it.
#[inline(always)]
pub(crate) fn note_deadline(data: &mut CpuData, deadline: u64) {
    data.deadline = deadline;
}

/// Returns the period that the manifest gives: without one, Gear2 is never overdue.
pub(crate) fn period(ticks: u64) -> u64 {
    if ticks == 0 { u64::MAX / 2 } else { ticks }
}

/// Returns the ticks of 0.4 us, by which an unloaded vCPU's timer may be taken early: less than the
/// way from there to the vCPU, through both gears.
///
/// A timer that becomes due while Gear2 decides on another event, or while another vCPU is loaded,
/// waits for both, and then for a second decision and a second load.
pub(crate) fn early() -> u64 {
    CNTFRQ_EL0.get() / 2_500_000
}

/// Begins Gear2's period: Gear2 gets an event now and must return within the period.
#[inline(always)]
pub(crate) fn watch_gear2(data: &mut CpuData, now: u64) {
    let (armed, period) = (data.armed, data.period);
    let due = now.wrapping_add(period);
    (data.watchdog_deadline, data.event_delivered_at) = (due, now);
    if armed > due {
        arm(data);
    }
}

/// Tells whether the loop of this CPU, which Gear2 executes, should have been back.
pub(crate) fn is_overdue(data: &CpuData) -> bool {
    // planted: a hang of Gear2 is not noticed
    cpu::now().wrapping_sub(data.event_delivered_at) >= data.period
}

/// Sets the EL2 timer to the nearest deadline.
pub(crate) fn arm(data: &mut CpuData) {
    arm_from(data, data.deadline);
}

/// Sets the EL2 timer, with `deadline` as Gear2's deadline.
fn arm_from(data: &mut CpuData, deadline: u64) {
    let mut first = data.watchdog_deadline.min(deadline);
    let mut rest = data.watched;
    // Bound: 64 timers of a word, one cleared a round.
    while rest != 0 {
        let index = rest.trailing_zeros() as usize;
        rest &= rest.wrapping_sub(1);
        first = first.min(watched_deadline(data, index));
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

/// Watches a vCPU's timer that is due at `due` (G1-TIM-004).
fn watch(data: &mut CpuData, id: VcpuId, due: u64) {
    watch_until(data, id.index(), due);
}

/// Holds a doorbell until `due`, when it interrupts its receiver (G1-CHN-005).
pub(crate) fn watch_doorbell(data: &mut CpuData, number: usize, due: u64) {
    // planted: a ring that is held back is forgotten
    watch_until(data, MAX_VCPUS.wrapping_add(number), due);
}

/// Makes this CPU the feeder of the board's watchdog, if there is one (G1-SUP-005).
pub(crate) fn begin_to_feed(data: &mut CpuData, machine: &Machine) {
    if let Some(due) = board_watchdog::start(machine) {
        watch_until(data, FEEDING, due);
    }
}

/// Watches a timer by the number of its bit.
#[inline(always)]
fn watch_until(data: &mut CpuData, index: usize, due: u64) {
    note_until(data, index, due);
    arm(data);
}

/// Does so, and leaves the EL2 timer to the caller.
#[inline(always)]
fn note_until(data: &mut CpuData, index: usize, due: u64) {
    if let Some(deadline) = data.watched_deadlines.get_mut(index) {
        data.watched |= 1_u64.wrapping_shl(index as u32);
        *deadline = due;
    }
}

/// A vCPU was unloaded: watches its timers. `due`: the earlier one. The caller [arms](arm) the EL2
/// timer, whose deadlines a load changes more than once.
#[inline(always)]
pub(crate) fn watch_unloaded(cpu: &mut Cpu, machine: &Machine, id: VcpuId, due: u64) {
    if due == NO_DEADLINE {
        forget(&mut cpu.data, id);
    } else if due <= cpu::now() {
        forget(&mut cpu.data, id);
        wake_if_waiting(cpu, machine, id);
    } else {
        note_until(&mut cpu.data, id.index(), due);
    }
}

/// Forgets a vCPU's timer: it is off, or in hardware again.
pub(crate) fn unwatch(data: &mut CpuData, id: VcpuId) {
    if data.watched & bit(id) != 0 {
        forget(data, id);
        arm(data);
    }
}

/// Does so, and leaves the EL2 timer to the caller.
#[inline(always)]
pub(crate) fn forget(data: &mut CpuData, id: VcpuId) {
    data.watched &= !bit(id);
}

/// Brings the line of the loaded vCPU's physical timer up to date, and watches it until it
/// changes by itself (G1-TIM-003, G1-TIM-004).
pub(crate) fn refresh_physical(cpu: &mut Cpu, machine: &Machine) {
    let now = cpu::now();
    let (Some(context), _, data) = cpu.parts() else {
        return;
    };
    let Some(loaded) = data.loaded else {
        return;
    };
    let timer = context.physical_timer;
    let (high, due) = (timer.is_high(now), timer.deadline());
    if high || due == NO_DEADLINE {
        unwatch(data, loaded.id);
    } else {
        watch(data, loaded.id, due);
    }
    vgic::change_gic(cpu, machine, loaded, |gic, index, _| {
        gic.set_line(index, IntId::PHYSICAL_TIMER, high)
    });
}

/// Emulates the guest's access to its physical timer. Returns the value that a read gets
/// (G1-TIM-002).
pub(crate) fn access_physical(
    cpu: &mut Cpu,
    machine: &Machine,
    reg: PhysicalReg,
    written: Option<u64>,
) -> u64 {
    let now = cpu::now();
    let Some(context) = cpu.context() else {
        return 0;
    };
    let Some(value) = written else {
        return context.physical_timer.read(reg, now);
    };
    context.physical_timer.write(reg, value, now);
    refresh_physical(cpu, machine);
    0
}

/// The vCPU was given to another CPU: a timer watched here counts as due, so
/// that it is not forgotten; the new owner CPU's hardware decides once it is loaded.
pub(crate) fn hand_over(cpu: &mut Cpu, machine: &Machine, id: VcpuId) {
    if cpu.data.watched & bit(id) != 0 {
        unwatch(&mut cpu.data, id);
        wake_if_waiting(cpu, machine, id);
    }
}

/// Makes a vCPU ready that waits in WFI. One that is Ready, Running or off needs no wake-up.
fn wake_if_waiting(cpu: &Cpu, machine: &Machine, id: VcpuId) {
    if machine::vcpu(id).wake_up() {
        kick::wake(cpu, machine, id);
    }
}

/// Does what the EL2 timer's interrupt does, if the timer has fired or is about to. The CPU is at
/// EL2, where an interrupt would wait until a guest is entered, and change the decision then.
#[inline]
pub(crate) fn take_expired(cpu: &mut Cpu, machine: &Machine) {
    if cpu.data.armed <= cpu::now().wrapping_add(cpu.data.early) {
        expired(cpu, machine);
    }
}

/// The EL2 timer fired: wakes the vCPUs that are due, or are about to be. The load of a vCPU makes
/// the interrupt of its virtual timer pending.
pub(crate) fn expired(cpu: &mut Cpu, machine: &Machine) {
    CNTHP_CTL_EL2.set(0);
    cpu.data.armed = NO_DEADLINE;
    let now = cpu::now();
    if cpu.data.watchdog_deadline <= now {
        // Gear2 is back, or its loop is overdue: `is_overdue` tells.
        cpu.data.watchdog_deadline = NO_DEADLINE;
    }
    let soon = now.wrapping_add(cpu.data.early);
    let (mut rest, mut first) = (cpu.data.watched, (now, None));
    // Bound: 64 timers of a word, one cleared a round.
    while rest != 0 {
        let index = rest.trailing_zeros() as usize;
        rest &= rest.wrapping_sub(1);
        let deadline = watched_deadline(&cpu.data, index);
        if deadline <= soon {
            match VcpuId::new(index) {
                Some(id) => is_due(cpu, machine, id, deadline <= now),
                None if deadline <= first.0 => first = (deadline, Some(index)),
                None => {}
            }
        }
    }
    if let (_, Some(index)) = first {
        other_is_due(cpu, machine, index);
    }
    arm_unless_due(&mut cpu.data, now);
}

/// A doorbell that this CPU holds, a look at a heartbeat, or the feeding of the board's watchdog is
/// due, by the number of its bit: of several the one that waits longest. The others follow one an
/// interrupt, because each may wait for a VM's lock (G1-RUN-011); they are due, so that the timer
/// fires at once.
#[inline(never)]
fn other_is_due(cpu: &mut Cpu, machine: &Machine, index: usize) {
    cpu.data.watched &= !1_u64.wrapping_shl(index as u32);
    let number = index.wrapping_sub(MAX_VCPUS);
    let again = match number.checked_sub(MAX_DOORBELLS) {
        None => vgic::doorbell::expire(cpu, machine, number),
        Some(_) if index == FEEDING => Some(board_watchdog::feed(cpu, machine)),
        Some(owner) => ending::look(cpu, machine, owner),
    };
    if let Some(due) = again {
        watch_until(&mut cpu.data, index, due);
    }
}

/// Begins the looks at the heartbeats of real-time VMs, if this CPU is the one that looks
/// (G1-SUP-004).
pub(crate) fn watch_heartbeats(cpu: &mut Cpu, machine: &Machine) {
    // Bound: MAX_CPUS (8).
    for owner in 0..MAX_CPUS {
        if let Some((_, interval)) = ending::to_look_at(cpu, machine, owner) {
            let index = MAX_VCPUS.wrapping_add(MAX_DOORBELLS).wrapping_add(owner);
            watch_until(&mut cpu.data, index, cpu::now().saturating_add(interval));
        }
    }
}

/// Returns the deadline of a watched timer, by the number of its bit.
#[inline(always)]
fn watched_deadline(data: &CpuData, index: usize) -> u64 {
    let deadline = data.watched_deadlines.get(index).copied();
    deadline.unwrap_or(NO_DEADLINE)
}

/// A watched timer is due: the loaded vCPU's physical timer, whose interrupt nothing else raises,
/// or one of a vCPU that is not loaded, which decides by its registers once it is loaded. Without
/// `now` it is about to be, and the loaded vCPU's line must not rise yet (G1-TIM-003).
#[inline(always)]
fn is_due(cpu: &mut Cpu, machine: &Machine, id: VcpuId, now: bool) {
    match cpu.data.loaded {
        Some(loaded) if loaded.id == id => {
            if now {
                cpu.data.watched &= !bit(id);
                raise_physical(cpu, machine, loaded);
            }
        }
        Some(_) | None => {
            cpu.data.watched &= !bit(id);
            wake_if_waiting(cpu, machine, id);
        }
    }
}

/// The loaded vCPU's physical timer is due. A vCPU that is off has none: its VM may be
/// stopped, and is loaded anew with all lines low.
fn raise_physical(cpu: &Cpu, machine: &Machine, loaded: &Loaded) {
    if loaded.shared.state() != VcpuState::Off {
        vgic::change_gic(cpu, machine, loaded, |gic, index, _| {
            gic.set_line(index, IntId::PHYSICAL_TIMER, true)
        });
    }
}

/// Arms the timer, but not for a deadline that has passed: that one is an event
/// already, and its interrupt would keep coming.
pub(crate) fn arm_unless_due(data: &mut CpuData, now: u64) {
    let is_due = data.deadline <= now;
    arm_from(data, if is_due { NO_DEADLINE } else { data.deadline });
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
