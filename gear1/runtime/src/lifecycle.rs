//! A VM's life: stopped, loaded, running, stopping. Which call may be made in which state says
//! [`gear1_core::lifecycle`].
//!
//! Loading wipes all of the VM's memory and copies its images from the archive,
//! at most one piece a call, so that no deadline waits for it.
//!
//! Locks: a VM's state changes under the VM's lock. A load drops the lock twice, for the lock over
//! shared memory and for those of the PL061 blocks, which both come before a VM's. Another CPU may
//! load, start or stop the VM at these moments, so a load looks at the state again.

use core::sync::atomic::Ordering;

use gear1_abi::boot::RealTime;
use gear1_abi::call::{Status, VcpuState, VmState};
use gear1_abi::event::{Ended, Event, VmEnd};
use gear1_abi::exit::ExitReason;
use gear1_abi::id::VmId;
use gear1_abi::layout::el2::PIECE;
use gear1_abi::record::RecordId;
use gear1_arch::entry::Resume;
use gear1_arch::sync::TicketGuard;
use gear1_arch::window::load_piece;
use gear1_arch::{cpu, firmware, heartbeat, stolen_time};
use gear1_core::ffa::End;
use gear1_core::lifecycle::{self, Masters};
use gear1_core::pci::NOT_ASKED;
use gear1_core::seed::Start;
use gear1_core::vgic::VcpuIndex;

use crate::machine::{self, Cpu, Guest, Machine, VmInner};
use crate::{channel, ending, ffa, kick, log, smmu, vcpu, vgic, vm_state};

/// Result of a call: X1 to X6.
type Answer = Result<[u64; 6], Status>;

/// Returns the VM's state and the number of its vCPUs that are not off.
pub(crate) fn state(cpu: &Cpu, machine: &Machine, id: VmId) -> Answer {
    let silent = machine::last_silent(id);
    if let Some((starts, end, ends)) = machine::running(id).read() {
        let (state, alive) = (VmState::Running as u64, vm_state::alive(machine, id));
        return Ok([state, alive, starts.into(), end as u64, ends.0, silent]);
    }
    let mut vm = machine::lock_vm(id);
    vm_state::complete_stop(cpu.local(), machine, id, &mut vm);
    let (starts, end) = (u64::from(vm.starts), vm.end as u64);
    let state = vm.state as u64;
    Ok([
        state,
        vm_state::alive(machine, id),
        starts,
        end,
        vm.ends.0,
        silent,
    ])
}

/// Requests a stop. Returns `Busy` until every vCPU has exited and every bus master has quiesced.
pub(crate) fn stop(cpu: &Cpu, machine: &Machine, id: VmId) -> Answer {
    #[cfg(feature = "check-ghost")]
    let _looking = ffa::Looking::begin(machine);
    #[cfg(feature = "check-locks")]
    gear1_arch::confine::open(machine::vm(id));
    let mut vm = machine::lock_vm(id);
    (vm.end, vm.restarts) = (Ended::No, false);
    if vm.state == VmState::Running {
        log::log(cpu.index(), RecordId::VmStop, [id.reg(), 0, 0]);
    }
    if lifecycle::stop(vm.state) {
        // A repeated request is useful: a vCPU that was running may wait for Gear2 by now, and
        // turns off at once.
        ending::stop_vcpus(cpu, machine, id, &mut vm);
    }
    vm_state::complete_stop(cpu.local(), machine, id, &mut vm);
    if vm.state == VmState::Stopping {
        Err(Status::Busy)
    } else {
        Ok([0; 6])
    }
}

/// Ends the VM of the running guest at its own request (PSCI SYSTEM_OFF or SYSTEM_RESET).
pub(crate) fn end(mut guest: Guest<'_>, reason: ExitReason, how: VmEnd) -> Resume {
    let id = guest.loaded.id;
    end_with(guest.reborrow(), reason, Event::VmEnd(id, how))
}

/// The running vCPU, or its VM, does not go on: stops the VM and tells Gear2 why.
#[inline(never)]
pub(crate) fn end_with(mut guest: Guest<'_>, reason: ExitReason, event: Event) -> Resume {
    let (loaded, machine) = (guest.loaded, guest.loaded.machine);
    let (vm_id, id) = (loaded.vm, loaded.id);
    let cpu = &mut *guest.cpu;
    #[cfg(feature = "check-ghost")]
    drop(ffa::Looking::begin(machine));
    let mut vm = machine::lock_vm(vm_id);
    // The state changes under the lock: once this vCPU is off, another CPU could stop and restart
    // the VM, and this end would count for the VM's next life.
    loaded.shared.set_state(VcpuState::Off);
    // Gear2, or another vCPU, may have ended it already.
    if vm.state == VmState::Running {
        ending::note(machine, vm_id, &mut vm, event);
    }
    cpu.data.restart = vm.restarts;
    cpu.data.turned_off = matches!(event, Event::VmEnd(_, VmEnd::Off));
    ending::stop_vcpus(cpu, machine, vm_id, &mut vm);
    drop(vm);
    if cpu.data.real_time != RealTime::No {
        #[cfg(feature = "check-locks")]
        gear1_arch::confine::open(machine::vm(vm_id));
        kick::notify_gear2(cpu, machine, id);
    }
    vcpu::leave_as_is(guest.reborrow(), reason, &event)
}

/// Loads the next piece of a stopped VM; X1 = bytes left.
///
/// `progress` moves on under the VM's lock together with the piece that it counts, so two CPUs that
/// load the same VM share the pieces and load none twice.
pub(crate) fn load(cpu: &Cpu, machine: &Machine, id: VmId) -> Answer {
    #[cfg(feature = "check-ghost")]
    let _looking = ffa::Looking::begin(machine);
    if machine::running(id).runs() {
        return Err(Status::WrongState);
    }
    let boot = machine::boot_vm(machine, id);
    let mut vm = machine::lock_vm(id);
    vm_state::complete_stop(cpu.local(), machine, id, &mut vm);
    begin_load(&mut vm)?;
    let total = machine::memory_size(boot);
    if vm.progress == 0 {
        match release_shares(cpu, machine, id, vm)? {
            Some(again) => vm = again,
            None => return Ok([total, 0, 0, 0, 0, 0]),
        }
    }
    let (done, number) = (vm.progress, vm.starts);
    let (key, vm_number) = (&machine.boot.seed_key, id.reg() as u32);
    let start = Start {
        key,
        vm: vm_number,
        number,
    };
    // SAFETY: what init handed over for the VM, which is loading, so all its vCPUs are off, and all
    // that it shared is released. FF-A unmaps a guest's page before it returns.
    unsafe { load_piece(cpu.local(), &boot.regions, &boot.loads, done, Some(start)) };
    vm.progress = done.saturating_add(PIECE).min(total);
    let left = match total.wrapping_sub(vm.progress) {
        0 => finish_load(machine, id, vm),
        left => left,
    };
    Ok([left, 0, 0, 0, 0, 0])
}

/// Takes a VM that may be loaded into Loading, from the beginning of its memory. A VM that its own
/// CPU restarts keeps its end, which Gear2 may not have asked for yet.
fn begin_load(vm: &mut VmInner) -> Result<(), Status> {
    if lifecycle::load(vm.state)? {
        vm.state = VmState::Loading;
        vm.progress = 0;
        if !vm.restarts {
            vm.end = Ended::No;
        }
    }
    Ok(())
}

/// Takes back, one step a call, what the VM has shared, before its first piece is wiped: another VM
/// may still have the page mapped. `None`: more steps follow.
///
/// Not under the VM's lock, as the lock over shared memory comes before it.
fn release_shares(
    cpu: &Cpu,
    machine: &Machine,
    id: VmId,
    vm: TicketGuard<'static, VmInner>,
) -> Result<Option<TicketGuard<'static, VmInner>>, Status> {
    let starts = vm.starts;
    drop(vm);
    match ffa::release(cpu, machine, id) {
        End::Done => {}
        End::More => return Ok(None),
        End::Runs => return Err(Status::WrongState),
    }
    let vm = machine::lock_vm(id);
    // Another CPU may have loaded the VM meanwhile, and even started it.
    let still = lifecycle::still_loads(vm.state, vm.starts == starts);
    still.then_some(Some(vm)).ok_or(Status::WrongState)
}

/// Ends a load whose memory is complete: no state of the former life remains in the virtual GIC, in
/// TLBs or in PL061 blocks. Returns what X1 says is left, which is not 0 while physical interrupts
/// wait for their deactivation, of which only so many are done in one call (G1-RUN-011), or while the
/// SMMU has not yet opened the VM's streams.
fn finish_load(machine: &Machine, id: VmId, mut vm: TicketGuard<'static, VmInner>) -> u64 {
    let inner = &mut *vm;
    // The devices are stopped, and their VM's memory is whole.
    if !smmu::turn(machine, id, &mut inner.streams, true) {
        return 1;
    }
    // planted: a VM's next life has the interrupt controller of its last
    vm.gic.reset();
    if !vgic::deactivate_some(&mut vm.gic, VcpuIndex::FIRST) {
        // Another call is loading the rest: nothing is loaded twice.
        return 1;
    }
    vm.state = VmState::Loaded;
    // The old guest's translations and instructions must not outlive it: each CPU forgets them
    // by itself before a vCPU of the new life runs there (`vcpu::forget_others`). A broadcast
    // would reach real-time VMs (G1-RT-008).
    machine::life(id).fetch_add(1, Ordering::Release);
    // Not under the VM's lock: a PL061's lock comes before its VM's.
    drop(vm);
    channel::reset(machine, id);
    0
}

/// Makes the boot vCPU of a loaded VM runnable. The other vCPUs are off until the guest turns them
/// on by CPU_ON.
///
/// All is done under the VM's lock. A CPU that takes the wake-up at once finds `started` and the
/// stage 2 of the new life, because it takes the same lock before it enters the guest.
pub(crate) fn start(cpu: &Cpu, machine: &Machine, id: VmId) -> Answer {
    #[cfg(feature = "check-ghost")]
    let _looking = ffa::Looking::begin(machine);
    let boot = machine::boot_vm(machine, id);
    let first = machine::vcpu_of(machine, id, 0).ok_or(Status::NotFound)?;
    if machine::running(id).runs() {
        return Err(Status::WrongState);
    }
    let mut vm = machine::lock_vm(id);
    vm.state = lifecycle::start(vm.state)?;
    (vm.restarts, vm.is_left) = (false, false);
    vm.masters = Masters::NEW;
    vm.asked = NOT_ASKED;
    vm_state::thaw(machine, id);
    vm.starts = vm.starts.wrapping_add(1);
    vm.ends = vm.ends.begin_life();
    // G1-TIM-005: the virtual count begins at 0.
    // planted: the virtual count goes on over a restart
    vm.started = cpu::now();
    begin_lives(machine, id);
    // SAFETY: callers start VMs of the manifest only.
    machine::heartbeat(id).begin(unsafe { heartbeat::word(id) });
    machine::running(id).begin(vm.starts, vm.end, vm.ends);
    #[cfg(feature = "check-locks")]
    gear1_arch::confine::close(machine::vm(id));
    let shared = machine::vcpu(first);
    shared.request_reset(boot.entry, boot.argument);
    shared.set_state(VcpuState::Ready);
    kick::wake(cpu, machine, first);
    log::log(cpu.index(), RecordId::VmStart, [id.reg(), boot.entry, 0]);
    Ok([vm.started, 0, 0, 0, 0, 0])
}

/// Gives every vCPU of a VM that starts its first state: requests and stolen time of the former
/// life are gone.
fn begin_lives(machine: &Machine, id: VmId) {
    // Bound: 8 vCPUs.
    for index in 0..usize::from(machine::boot_vm(machine, id).vcpu_count) {
        if let Some(vcpu) = machine::vcpu_of(machine, id, index) {
            machine::vcpu(vcpu).begin_life();
        }
        // SAFETY: callers start VMs of the manifest only.
        unsafe { stolen_time::update(id, index, 0) };
    }
}

/// Powers the machine off, or resets it, for Gear2. A real-time VM that runs, or is about to, is in
/// its way, unless the VM that the manifest lets power the machine off has turned itself off
/// (G1-RT-009).
pub(crate) fn system(cpu: &Cpu, machine: &Machine, reset: bool) -> Answer {
    let (mut is_asked, mut is_needed) = (false, false);
    // Bound: MAX_VMS (16).
    for number in 0..machine.boot.vm_count.into() {
        if let Some(id) = VmId::from_reg(number) {
            let wish = power_wish(cpu, machine, id);
            is_asked |= wish == Some(Power::MayGo);
            is_needed |= wish == Some(Power::IsNeeded);
        }
    }
    // planted: Gear2 powers off although a real-time VM runs
    if is_needed && !is_asked {
        return Err(Status::WrongState);
    }
    firmware::system(machine.boot.enable_method, reset)
}

/// Say of a VM in powering the machine off.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Power {
    /// The VM that the manifest lets power the machine off has turned itself off.
    MayGo,
    /// A real-time VM that runs, stops, or starts by itself soon.
    IsNeeded,
}

/// Returns whether a VM lets the machine go or needs it; most VMs do neither. MayGo of any VM
/// outweighs IsNeeded of all, so a VM that is both says MayGo.
fn power_wish(cpu: &Cpu, machine: &Machine, id: VmId) -> Option<Power> {
    let boot = machine::boot_vm(machine, id);
    let is_real_time = boot.real_time != RealTime::No;
    if machine::running(id).runs() {
        return is_real_time.then_some(Power::IsNeeded);
    }
    let mut vm = machine::lock_vm(id);
    vm_state::complete_stop(cpu.local(), machine, id, &mut vm);
    if boot.powers_machine && vm.end == Ended::Off {
        return Some(Power::MayGo);
    }
    let begins = vm.restarts || boot.loaded && vm.starts == 0;
    (is_real_time && (begins || lifecycle::stop(vm.state))).then_some(Power::IsNeeded)
}
