//! Supervision of Gear2 (L3): a loop that hangs, faults or gives up has Gear2 restarted.
//!
//! A restart brings all CPUs that have a loop together here ([`Meeting`]), renews Gear2's image
//! from the archive, and enters every loop anew. VMs and vCPUs stay what they are; what a loop was
//! told and may not have acted on is pending again: interrupts and the doorbell by [`enter_anew`],
//! wake-ups, accesses and calls by the states of vCPUs, ends by those of VMs.
//!
//! A CPU waits in a meeting, holding no lock, for the others to come out of Gear1: as long as its
//! longest way through a handler. Then it waits for the copying of the image. It takes interrupts
//! meanwhile.
//!
//! Requirements: G1-RUN-011, G1-SUP-001 (a hang is noticed within the period), G1-SUP-002,
//! G1-SUP-003.

use gear1_abi::boot::{BootInfo, IrqOwner};
use gear1_abi::call::{Failure, VcpuState};
use gear1_abi::id::CpuIndex;
use gear1_abi::layout::el2::PIECE;
use gear1_abi::layout::gear2;
use gear1_abi::record::RecordId;
use gear1_abi::regs::NO_DEADLINE;
use gear1_arch::entry::Resume;
use gear1_arch::exception::{ELR_EL2, ESR_EL2};
use gear1_arch::sync::TicketLock;
use gear1_arch::window::load_piece;
use gear1_arch::{barrier, cpu, stop};
use gear1_core::context::{PSTATE_EL0_MASKED, PSTATE_EL1T_MASKED};
use gear1_core::supervise::{Budget, Meeting};

use crate::exit_timing::ExitTiming;
use crate::halt::{HaltReason, halt};
use crate::machine::{self, Cpu, Guest, Machine};
use crate::{irq, kick, log, timer};

static MEETING: Meeting = Meeting::new();
/// Held for one look. Nobody waits: only who called a meeting takes it.
static BUDGET: TicketLock<Budget> = TicketLock::new(Budget::new());

/// Makes Gear2's loop what runs next on this CPU, for the first time.
pub(crate) fn start(cpu: &mut Cpu, machine: &Machine) {
    // Bound: the length of a restart.
    // Bound: CPUs (8) x changes of theirs while a meeting begins or ends.
    while !MEETING.join(cpu.index()) {
        barrier::yield_hint();
    }
    enter_anew(cpu, machine);
}

/// Gear2's loop on this CPU failed and is not resumed: restarts Gear2, or halts if it is not
/// supervised or fails too often.
#[cold]
#[inline(never)]
pub(crate) fn failed(cpu: &mut Cpu, machine: &Machine, failure: Failure) -> Resume {
    let gear2 = &machine.boot.gear2;
    if gear2.period == 0 {
        halt(cpu, HaltReason::of(failure));
    }
    if !MEETING.call() {
        return rejoin(cpu, machine);
    }
    let now = cpu::now();
    if !BUDGET.lock().spend(now, gear2.restarts, gear2.window) {
        halt(cpu, HaltReason::of(failure));
    }
    restart(cpu, machine, failure);
    enter_anew(cpu, machine);
    Resume::Switch
}

/// Restarts Gear2 as the CPU that called the meeting: the others wait in [`rejoin`] until its end.
fn restart(cpu: &mut Cpu, machine: &Machine, failure: Failure) {
    let (pc, index) = (ELR_EL2.get(), cpu.index());
    let values = [failure as u64, pc, ESR_EL2.get()];
    log::log(index, RecordId::Gear2Restart, values);
    gather(cpu, machine);
    // planted: Gear2 is restarted as it was
    renew(cpu, machine);
    machine::count_gear2_restart(failure, pc, index);
    // Bound: CPUs (8) x changes of theirs while a meeting begins or ends.
    MEETING.end();
}

/// Waits until all CPUs with a loop are here.
fn gather(cpu: &mut Cpu, machine: &Machine) {
    // Bound: MAX_CPUS (8).
    for number in 0..machine.boot.cpu_count as usize {
        // planted: no longer: a restart of Gear2 calls its own CPUs only
        if let Some(other) = CpuIndex::new(number)
            && MEETING.has(other)
        {
            kick::kick_cpu(cpu, machine, other);
        }
    }
    MEETING.arrive(cpu.index());
    // Bound: the longest way through a handler of another CPU.
    while !MEETING.is_complete() {
        wait(cpu, machine);
    }
}

/// Waits for one round: for another CPU, or between two pieces of work. Takes interrupts as an idle
/// CPU does, so that none waits for the whole of a restart.
fn wait(cpu: &mut Cpu, machine: &Machine) {
    stop::obey();
    irq::handle_pending(cpu, machine);
    barrier::yield_hint();
}

/// Loads Gear2's image and wipes its heap, before Gear2 runs on any CPU. Each CPU drops old
/// instructions in [`enter_anew`].
pub(crate) fn load(cpu: &Cpu, machine: &Machine) {
    let gear2 = &machine.boot.gear2;
    let image = core::slice::from_ref(&gear2.load);
    // Bound: two regions.
    for (region, loads) in [(&gear2.image, image), (&gear2.heap, Default::default())] {
        let regions = core::slice::from_ref(region);
        let mut done = 0;
        // Bound: Gear2's image and heap / 32 KiB.
        while done < region.size {
            // A real-time VM's CPU, which runs by now, may have halted.
            stop::obey();
            // SAFETY: what init handed over for Gear2, which no CPU runs yet.
            unsafe { load_piece(cpu.local(), regions, loads, done, None) };
            done = done.saturating_add(PIECE);
        }
    }
}

/// Copies Gear2's image anew and zeroes its bss. Nobody executes it meanwhile; each CPU drops the
/// old instructions in [`enter_anew`].
fn renew(cpu: &mut Cpu, machine: &Machine) {
    let boot = machine.boot;
    let (image, load) = (&boot.gear2.image, &boot.gear2.load);
    let (regions, loads) = (core::slice::from_ref(image), core::slice::from_ref(load));
    let mut done = 0;
    // Bound: Gear2's image / 32 KiB.
    while done < image.size {
        // SAFETY: what init handed over for Gear2, which no CPU runs: all are in the meeting. FF-A
        // unmaps a guest's page before it returns.
        unsafe { load_piece(cpu.local(), regions, loads, done, None) };
        done = done.saturating_add(PIECE);
        wait(cpu, machine);
    }
}

/// Tells whether Gear2 is being restarted and this CPU is to come: not if it has no loop.
pub(crate) fn is_called(cpu: &Cpu) -> bool {
    MEETING.is_called() && MEETING.has(cpu.index())
}

/// Takes part in a restart that another CPU called: this CPU's loop is not resumed.
#[cold]
#[inline(never)]
pub(crate) fn rejoin(cpu: &mut Cpu, machine: &Machine) -> Resume {
    let meeting = MEETING.arrive(cpu.index());
    // Bound: the length of a restart.
    while !MEETING.is_over(meeting) {
        wait(cpu, machine);
    }
    enter_anew(cpu, machine);
    Resume::Switch
}

/// Takes part in a restart while a guest runs: the guest's vCPU becomes ready.
#[cold]
#[inline(never)]
pub(crate) fn leave_and_rejoin(guest: Guest<'_>) -> Resume {
    guest.loaded.shared.set_state(VcpuState::Ready);
    stop_waiting_and_rejoin(guest)
}

/// Takes part in a restart while this CPU waits with the loaded vCPU, whose state tells the new
/// loop what the vCPU waits for.
#[cold]
#[inline(never)]
pub(crate) fn stop_waiting_and_rejoin(guest: Guest<'_>) -> Resume {
    let Guest { cpu, loaded, .. } = guest;
    if let (Some(context), gear2, data) = cpu.parts() {
        // SAFETY: the loaded guest has trapped; `enter_anew` follows, which makes Gear2's frame the
        // next one, and gives it a PSTATE.
        unsafe { data.world.leave_guest(context, gear2) };
    }
    rejoin(cpu, loaded.machine)
}

/// Resumes Gear2 on this CPU after an interrupt, unless Gear2 is overdue or a restart is under way.
#[inline(never)]
pub(crate) fn interrupted(cpu: &mut Cpu, machine: &Machine) -> Resume {
    if MEETING.is_called() {
        return rejoin(cpu, machine);
    }
    if timer::is_overdue(&cpu.data) {
        return failed(cpu, machine, Failure::Hang);
    }
    Resume::Same
}

/// Makes this CPU's loop, from its beginning, what runs next.
fn enter_anew(cpu: &mut Cpu, machine: &Machine) {
    let boot = machine.boot;
    let index = cpu.index();
    cpu.data.exit = ExitTiming::NONE;
    cpu.data.deadline = NO_DEADLINE;
    let shared = machine::cpu_shared(index);
    shared.ring();
    shared.forget_waits();
    if machine::irq_cpu(boot, IrqOwner::GEAR2) == index.index() {
        replay_interrupts(cpu, boot);
    }
    timer::watch_gear2(&mut cpu.data, cpu::now());
    let world = cpu.data.world;
    let frame = cpu.gear2();
    frame.set_reg(0, index.reg());
    frame.pc = boot.gear2.entry;
    frame.pstate = if world.is_gear2_at_el1() {
        PSTATE_EL1T_MASKED
    } else {
        PSTATE_EL0_MASKED
    };
    frame.sp_el0 = stack_of(index);
    // SAFETY: the frame becomes the next one below, and its PSTATE was set above.
    unsafe { world.start_gear2(frame) };
    // SAFETY: `start_gear2` has prepared the CPU, and callers return `Switch`.
    unsafe { cpu.set_gear2() };
}

/// Returns the address in Gear2's address space where the stack of a CPU's loop begins. Stacks grow
/// down and lie one behind the other, so one stack's beginning is the next one's end.
fn stack_of(index: CpuIndex) -> u64 {
    let end = index.reg().wrapping_add(1);
    gear2::STACKS.wrapping_add(end.wrapping_mul(gear2::STACK_STRIDE))
}

/// Re-pends every interrupt that Gear2 owns: the failed instance may have left one active. Gear2
/// completes the spurious ones with IRQ_DONE.
fn replay_interrupts(cpu: &mut Cpu, boot: &BootInfo) {
    // Bound: MAX_INTIDS (1020).
    for (intid, owner) in (0_u32..).zip(&boot.irq_owner) {
        if *owner == IrqOwner::GEAR2 {
            cpu.data.add_gear2_irq(intid);
        }
    }
}
