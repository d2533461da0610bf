//! Loading vCPUs onto CPUs, and leaving and entering guests.
//!
//! *Loaded*: a CPU's EL1 registers and list registers are this vCPU's. It stays
//! loaded while Gear2 runs, and moves only when another vCPU is run here.
//! *Running*: it executes.
//!
//! Requirements: G1-RUN-003, G1-CPU-013.

use gear1_abi::boot::RealTime;
use gear1_abi::call::{VcpuState, Waits};
use gear1_abi::event::Event;
use gear1_abi::exit::ExitReason;
use gear1_arch::cpu::FpAccess;
use gear1_arch::entry::Resume;
use gear1_arch::regs::{CNTVOFF_EL2, VDISR_EL2, Writeable as _};
use gear1_arch::this_cpu::Next;
use gear1_arch::world::ShortWay;
use gear1_arch::{cache, cpu, el1, world};
use gear1_core::context::{Frame, VcpuContext};
use gear1_core::vcpu::{Requests, Start, VcpuShared};
use gear1_core::vgic::is_quiet;

use crate::exit_timing::ExitTiming;
use crate::gic::{Gic, HostGic, VIRTUAL_TIMER as TIMER};
use crate::machine::{self, Cpu, CpuData, Guest, Loaded, Machine};
use crate::vgic::{change_gic, flush_gic};
use crate::{event, messages, monitors, reply, timer};

mod fp;
mod load;
mod registers;

pub(crate) use fp::{release_fp, take_fp};
use load::forget_others;
pub(crate) use load::{end_stolen, load, load_here, unload};
pub(crate) use registers::registers_here;
use registers::restore_el1;

/// Puts the loaded vCPU into its reset state, to start as was requested.
fn apply_reset(cpu: &mut Cpu, machine: &Machine, start: Start) {
    let Some(loaded) = cpu.data.loaded else {
        return;
    };
    change_gic(cpu, machine, loaded, |gic, index, lrs| gic.save(index, lrs));
    Gic::clear_list_registers(cpu.data.list_registers);
    forget_others(cpu, machine, loaded, true);
    let (started, life) = {
        let vm = machine::lock_vm(loaded.vm);
        (vm.started, vm.starts)
    };
    let (Some(context), _, data) = cpu.parts() else {
        return;
    };
    el1::save_timer(&mut context.el1);
    context.reset(start, started);
    context.life = life;
    context.gic.vmcr = Gic::VMCR_RESET;
    let features = context.features;
    fp::reset(data, context, loaded);
    if data.has_ras {
        VDISR_EL2.set(0);
    }
    CNTVOFF_EL2.set(context.cntvoff);
    restore_el1(data, &context.el1);
    Gic::restore_cpu_interface(&context.gic);
    if !start.warm {
        Gic::set_ppi_active(cpu.local(), TIMER, false);
    }
    if features != 0 {
        monitors::load(cpu, loaded);
    }
    timer::refresh_physical(cpu, machine);
    flush_gic(cpu, machine, loaded);
    // SAFETY: Gear2 trapped, or never runs here: a vCPU that runs has no reset pending.
    unsafe { cpu.forget_interrupted() };
}

/// Runs the loaded vCPU next: it is Running already. Handles its requests.
/// Returns an event instead when it must not run.
#[inline(always)]
pub(crate) fn prepare_entry(cpu: &mut Cpu, machine: &Machine) -> Option<Event> {
    match &cpu.data.loaded {
        Some(loaded) if !loaded.shared.requests().is_none() => handle_requests(cpu, machine),
        Some(_) | None => None,
    }
}

/// Handles all requests of the loaded vCPU: a stop first, which makes the others pointless, then a
/// reset, which must not undo what a later request brings.
#[inline(never)]
fn handle_requests(cpu: &mut Cpu, machine: &Machine) -> Option<Event> {
    let loaded = cpu.data.loaded?;
    let (shared, id) = (loaded.shared, loaded.id);
    let wanted = shared.requests();
    if wanted.intersects(Requests::STOP) {
        shared.take(Requests::STOP);
        shared.set_state(VcpuState::Off);
        return Some(Event::Off(id));
    }
    if let Some(start) = shared.take_reset() {
        apply_reset(cpu, machine, start);
    }
    if let Some((word, value)) = shared.take_reply() {
        reply::apply(cpu, word, value);
    }
    if wanted.intersects(RARE_REQUESTS) {
        handle_rare_requests(cpu, machine, loaded, wanted);
    }
    if wanted.intersects(Requests::INTERRUPTS) {
        flush_gic(cpu, machine, loaded);
    }
    None
}

/// Requests of FF-A messages and of instruction caches, which come seldom.
const RARE_REQUESTS: Requests = Requests::AWAITS
    .union(Requests::MESSAGE)
    .union(Requests::ICACHE);

/// Sees to requests that come seldom.
#[inline(never)]
fn handle_rare_requests(cpu: &mut Cpu, machine: &Machine, loaded: &Loaded, wanted: Requests) {
    if wanted.intersects(Requests::AWAITS.union(Requests::MESSAGE)) {
        messages::resume(cpu, machine, loaded);
    }
    if wanted.intersects(Requests::ICACHE) {
        serve_icache(loaded);
    }
}

/// Invalidates this CPU's instruction cache for everybody in the VM who has asked for that so far.
#[inline(never)]
pub(crate) fn serve_icache(loaded: &Loaded) {
    let requests = machine::icache_requests(loaded.vm);
    loaded
        .shared
        .serve_icache(requests, cache::invalidate_instructions);
}

/// Prepares the CPU for the loaded vCPU, which runs from `now` on, on the short way. The caller makes
/// it the one restored next.
///
/// # Safety
///
/// As for [`enter`]. `context` is the loaded vCPU's, whose shared part `shared` is, `gear2` is the
/// frame of this CPU, and `way` is of this exit.
#[inline(always)]
pub(crate) unsafe fn prepare_at_once(
    (data, gear2): (&mut CpuData, &mut Frame),
    context: &VcpuContext,
    shared: &VcpuShared,
    way: ShortWay,
    now: u64,
) {
    let access = begin_run(data, gear2, shared, now);
    // SAFETY: as in `enter_loaded`.
    unsafe { (data.world).enter_guest_shortly(way, gear2, context, access) };
}

/// Notes that the loaded vCPU runs from `now` on. Returns what it reaches of FP without a trap.
#[inline(always)]
fn begin_run(data: &CpuData, gear2: &mut Frame, shared: &VcpuShared, now: u64) -> FpAccess {
    data.exit.end(shared, now);
    event::began(gear2, now);
    data.fp.open()
}

/// Sets what WFI and WFE of the loaded vCPU do from its next entry on.
#[inline(always)]
pub(crate) fn set_waits(cpu: &mut Cpu, waits: Waits) {
    if let (Some(context), _, data) = cpu.parts() {
        data.waits = waits;
        context.hcr = world::hcr_with(context.hcr, waits);
    }
}

/// Makes the loaded vCPU's context the one restored next.
///
/// # Safety
///
/// Gear2 has trapped on this CPU, or never runs here.
#[inline(never)]
pub(crate) unsafe fn enter(cpu: &mut Cpu) -> Resume {
    match cpu.data.loaded {
        // SAFETY: the caller's condition.
        Some(loaded) => unsafe { enter_loaded(cpu, loaded) },
        None => Resume::Switch,
    }
}

/// Does as [`enter`] does, inside the function that calls this one.
///
/// # Safety
///
/// As for [`enter`]. `loaded` is the loaded vCPU.
#[inline(always)]
pub(crate) unsafe fn enter_loaded(cpu: &mut Cpu, loaded: &Loaded) -> Resume {
    if let (Some(context), gear2, data, next) = cpu.parts_to_switch() {
        let access = begin_run(data, gear2, loaded.shared, cpu::now());
        // SAFETY: the caller's condition; the guest's frame is the next one below. `boot::start_vm`
        // alone sets `vttbr` and `hcr`, of each vCPU that is loadable. `pstate` is
        // what SPSR_EL2 held when the guest left, a reset's or an `Entry`'s.
        unsafe { data.world.enter_guest(gear2, context, access) };
        // SAFETY: `enter_guest` has prepared the CPU, and this function returns `Switch`.
        unsafe { next.set_guest(context, loaded.shared) };
    }
    Resume::Switch
}

/// Leaves the running guest for Gear2, which gets `event`; the vCPU is in `state` from now on.
pub(crate) fn leave(
    mut guest: Guest<'_>,
    state: VcpuState,
    reason: ExitReason,
    event: &Event,
) -> Resume {
    guest.loaded.shared.set_state(state);
    leave_as_is(guest.reborrow(), reason, event)
}

/// Instruction at which a vCPU that has left its guest goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextPc {
    /// ELR_EL2 is the right one: behind a call, or at an access that awaits its reply.
    Kept,
    /// The one behind the trapped instruction, at which ELR_EL2 is.
    SteppedOver,
}

/// Exit of the loaded guest that can lead to Gear2 on the short way: none of it needs the stack, and
/// nothing is looked for twice.
pub(crate) struct ShortExit<'a> {
    /// Registers of the vCPU, general ones and what else is stored already.
    pub(crate) context: &'a mut VcpuContext,
    /// State of the CPU.
    pub(crate) data: &'a mut CpuData,
    gear2: &'a mut Frame,
    next: Next<'a>,
    way: ShortWay,
}

impl<'a> ShortExit<'a> {
    /// Returns the exit, if there is a [`ShortWay`] for it. If not, nothing has been done that another
    /// way would not do.
    #[inline(always)]
    pub(crate) fn of(cpu: &'a mut Cpu) -> Option<Self> {
        let (Some(context), gear2, data, next) = cpu.parts_to_switch() else {
            return None;
        };
        let way = data.world.short_way()?;
        Some(Self {
            context,
            data,
            gear2,
            next,
            way,
        })
    }

    /// Leaves the guest for Gear2, with the vCPU's state already set. The caller knows the kind of
    /// the event, which is therefore not decoded.
    ///
    /// # Safety
    ///
    /// The loaded guest, whose shared part `shared` is, has trapped on this CPU.
    #[inline(always)]
    pub(crate) unsafe fn leave(
        self,
        (shared, reason): (&'static VcpuShared, ExitReason),
        next_pc: NextPc,
        event: &Event,
    ) -> Resume {
        let now = cpu::now();
        self.data.exit = ExitTiming::begin(shared, reason, now);
        // SAFETY: the caller's condition. Gear2's frame, whose PSTATE is what SPSR_EL2 held when
        // Gear2 trapped, is the next one below.
        unsafe {
            (self.data.world).leave_guest_shortly(self.way, self.context, self.gear2);
        }
        if next_pc == NextPc::SteppedOver {
            self.context.frame.step_over();
        }
        event::put(self.gear2, event, now);
        // SAFETY: `leave_guest_shortly` has prepared the CPU, and this function returns `Switch`.
        unsafe { self.next.set_gear2(self.gear2) };
        // Last, so that nothing has to outlive the call that it may make.
        timer::watch_gear2(self.data, now);
        Resume::Switch
    }
}

/// Leaves the running guest for Gear2, with the vCPU's state already set.
pub(crate) fn leave_as_is(guest: Guest<'_>, reason: ExitReason, event: &Event) -> Resume {
    let Guest { cpu, loaded, .. } = guest;
    let now = cpu::now();
    if let (Some(context), gear2, data) = cpu.parts() {
        data.exit = ExitTiming::begin(loaded.shared, reason, now);
        // SAFETY: the loaded guest was running and trapped; Gear2's frame, whose PSTATE is what
        // SPSR_EL2 held when Gear2 trapped, is the next one below.
        unsafe { data.world.leave_guest(context, gear2) };
    }
    if cpu.data.real_time != RealTime::No {
        return Resume::Left;
    }
    event::deliver(cpu, event, now);
    // SAFETY: `leave_guest` has prepared the CPU, and this function returns `Switch`.
    unsafe { cpu.set_gear2() };
    Resume::Switch
}

/// Continues after an interrupt of a guest that the fast path did not handle: resumes the guest, or
/// returns to Gear2.
pub(crate) fn after_interrupt(mut guest: Guest<'_>, reason: ExitReason) -> Resume {
    let (loaded, machine) = (guest.loaded, guest.loaded.machine);
    if loaded.shared.requests().is_interrupts() {
        flush_gic(guest.cpu, machine, loaded);
    } else if let Some(event) = &prepare_entry(guest.cpu, machine) {
        return leave_as_is(guest.reborrow(), reason, event);
    }
    if guest.cpu.data.real_time != RealTime::No {
        machine::cpu_shared(guest.cpu.index()).take_wake();
        return Resume::Same;
    }
    match &event::pending_event(guest.cpu, Some(loaded.id)) {
        Some(event) => leave(guest.reborrow(), VcpuState::Ready, reason, event),
        None => Resume::Same,
    }
}

/// Ends an exit that may have woken a vCPU of this very CPU, for which nobody interrupts the guest:
/// Gear2 hears of it now. Every exit that changes a virtual GIC ends here or in
/// [`after_interrupt`].
pub(crate) fn woke_somebody(mut guest: Guest<'_>, reason: ExitReason) -> Resume {
    if !event::is_signalled(guest.cpu) {
        return Resume::Same;
    }
    after_interrupt(guest.reborrow(), reason)
}

/// Ends such an exit of an instruction that has set a register: unless the guest is left, `resume`
/// restores it.
#[inline(never)]
pub(crate) fn woke_somebody_or(mut guest: Guest<'_>, reason: ExitReason, resume: Resume) -> Resume {
    match woke_somebody(guest.reborrow(), reason) {
        Resume::Same => resume,
        left @ (Resume::Switch | Resume::Left) => left,
    }
}

/// Lets the running vCPU wait, unless it has list registers in use, or is asked for more than
/// `expected`. Tells whether it is in `Wfi` now; [`is_due`] says more.
#[inline(always)]
pub(crate) fn waits_at_once(data: &CpuData, shared: &VcpuShared, expected: Requests) -> bool {
    is_quiet(&mut Gic::list_registers(data.list_registers)) && shared.wait_quiet(expected)
}

/// Tells whether something is due for the running vCPU: an interrupt, or a request
/// beside `expected`. If not, it is in `Wfi` now. A waker sees that or is seen (G1-VCPU-001): it
/// raises the request before it reads the state. With something in the list registers that the VM's
/// state tells about, both are under the VM's lock; messages and SGIs come without it, so they are
/// looked for once more.
#[inline(never)]
pub(crate) fn is_due(cpu: &Cpu, machine: &Machine, loaded: &Loaded, expected: Requests) -> bool {
    let shared = loaded.shared;
    if waits_at_once(&cpu.data, shared, expected) {
        return false;
    }
    // A request alone keeps the vCPU awake, whatever the list registers hold.
    if !shared.requests().without(expected).is_none() {
        return true;
    }
    let mut due = true;
    change_gic(cpu, machine, loaded, |gic, index, lrs| {
        let kicks = gic.sync(index, lrs);
        due = !shared.wait_locked(expected, || {
            gic.deliverable(index, Gic::guest_priority_mask())
        });
        kicks
    });
    due
}

/// A fault of a vCPU that is to stop is no fault: its memory was taken away. It leaves as if it
/// had been kicked, which is what stops others.
pub(crate) fn exit_if_frozen(mut guest: Guest<'_>) -> Option<Resume> {
    let frozen = guest.cpu.data.real_time == RealTime::PassThrough;
    (frozen && guest.loaded.shared.requests().intersects(Requests::STOP))
        .then(|| exit_frozen(guest.reborrow()))
}

/// Stops a vCPU at the fault of its memory, which counts as an access that runs again.
#[inline(never)]
fn exit_frozen(mut guest: Guest<'_>) -> Resume {
    guest.loaded.shared.count(ExitReason::Again);
    after_interrupt(guest.reborrow(), ExitReason::Kick)
}
