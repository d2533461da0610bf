//! Loading a vCPU onto a CPU, and unloading the one before.
//!
//! Requirements: G1-RUN-003, G1-TIM-005, G1-MEM-022, G1-CPU-011, G1-CPU-013, G1-GIC-008.

use core::sync::atomic::Ordering;

use gear1_abi::call::VcpuState;
use gear1_abi::id::{VcpuId, VmId};
use gear1_arch::regs::{CNTV_CTL_EL0, Readable as _, VDISR_EL2, Writeable as _};
use gear1_arch::{cpu, firmware, stolen_time, tlb};
use gear1_core::context::El1State;
use gear1_core::timer::PhysicalTimer;
use gear1_core::vcpu::Requests;
use gear1_core::vgic::VmGic;

use super::registers::{load_registers, save_el1};
use crate::gic::{Gic, HostGic, VIRTUAL_TIMER as TIMER};
use crate::machine::{self, Cpu, Loaded, Machine};
use crate::{monitors, timer, vgic};

/// Makes the vCPU the one loaded on this CPU. `None`: another CPU still holds its registers.
///
/// # Safety
///
/// As for [`load_another`].
#[inline(always)]
pub(crate) unsafe fn load(cpu: &mut Cpu, machine: &'static Machine, id: VcpuId) -> Option<()> {
    if cpu.data.is_loaded(id) {
        return Some(());
    }
    // SAFETY: the caller's condition.
    unsafe { load_another(cpu, machine, id) }
}

/// Loads a vCPU that is not loaded here, in one copy for all who seldom do.
///
/// # Safety
///
/// As for [`load_here`].
#[inline(never)]
unsafe fn load_another(cpu: &mut Cpu, machine: &'static Machine, id: VcpuId) -> Option<()> {
    // SAFETY: the caller's condition.
    machine::loadable(id).and_then(|loaded| unsafe { load_here(cpu, machine, loaded) })
}

/// Loads a vCPU that is not loaded here. Its context is claimed before the other vCPU is unloaded:
/// if another CPU still holds the context, this CPU changes nothing, and Gear2 asks again.
///
/// # Safety
///
/// Gear2 has trapped on this CPU; or the CPU is a real-time VM's, has no vCPU loaded, and enters
/// this one next.
#[inline(always)]
pub(crate) unsafe fn load_here(
    cpu: &mut Cpu,
    machine: &'static Machine,
    loaded: &'static Loaded,
) -> Option<()> {
    let id = loaded.id;
    let mut context = machine::claim_context(id)?;
    // SAFETY: Gear2 has trapped, or nothing is loaded.
    unsafe { unload_here(cpu, machine) };
    let vm = loaded.vm;
    cpu.data.gicd_hpfar = vgic::gicd_hpfar(&cpu.data, loaded);
    timer::forget(&mut cpu.data, id);
    timer::arm(&mut cpu.data);
    load_registers(&cpu.data, &context);
    let has_physical_timer = context.physical_timer != PhysicalTimer::OFF;
    let timer_due = virtual_timer_due(&context.el1, context.cntvoff);
    let features = context.features;
    if features != cpu.data.features {
        monitors::set(&mut cpu.data, machine, features);
    }
    let stayed = context.cpu.replace(cpu.index()) == Some(cpu.index());
    // SAFETY: the caller's condition.
    unsafe { cpu.install(context) };
    // planted: nothing is forgotten when a vCPU is loaded
    forget_others(cpu, machine, loaded, stayed);
    if cpu.data.mitigations.is_needed() {
        forget_branches(cpu, machine, vm);
    }
    let posted = loaded.shared.take_each(Requests::INTERRUPTS).sgis();
    // A reset turns the timer off.
    let is_reset = loaded.shared.requests().intersects(Requests::RESET);
    // planted: a vCPU's timer interrupts at each load
    let timer_due = timer_due <= cpu::now() && !is_reset;
    vgic::fill_loaded(cpu, machine, loaded, posted, timer_due);
    cpu.data.loaded = Some(loaded);
    // planted: a vCPU reaches the FP registers of the one before
    cpu.data.fp.note_loaded(id);
    if features != 0 {
        monitors::load(cpu, loaded);
    }
    end_stolen(loaded);
    if has_physical_timer {
        timer::refresh_physical(cpu, machine);
    }
    Some(())
}

/// Ends a time that was stolen from a vCPU of this CPU, if one began, and tells the VM. A vCPU
/// whose VM has no stolen time is updated as well: nobody reads it.
#[inline(always)]
pub(crate) fn end_stolen(loaded: &Loaded) {
    if let Some(ticks) = loaded.shared.end_stolen(cpu::now()) {
        // SAFETY: only a vCPU of the manifest is loadable, and only one that is has a `Loaded`.
        unsafe { stolen_time::update(loaded.vm, loaded.index.index(), ticks) };
    }
}

/// Returns the time at which a vCPU's virtual timer interrupts.
#[inline(always)]
fn virtual_timer_due(el1: &El1State, cntvoff: u64) -> u64 {
    gear1_core::timer::deadline(el1.cntv_ctl, el1.cntv_cval, cntvoff)
}

/// Invalidates translations and instructions on this CPU that the vCPU must not use: those of a
/// sibling, which has the same VMID; those of the VM's former life; and the vCPU's own from before
/// it ran on another CPU, where its invalidations did not reach this CPU. Called before the vCPU
/// runs here, after a change of the loaded vCPU and at a reset.
#[inline(always)]
pub(super) fn forget_others(cpu: &mut Cpu, machine: &Machine, loaded: &Loaded, stayed: bool) {
    let life = machine::life(loaded.vm).load(Ordering::Acquire);
    if cpu.data.residents.moves_in(loaded.vm, loaded.index, life) || !stayed {
        invalidate(cpu, machine, loaded.vm);
    }
}

/// Invalidates what this CPU holds of a VM.
#[inline(never)]
fn invalidate(cpu: &Cpu, machine: &Machine, vm: VmId) {
    let world = cpu.data.world;
    // SAFETY: a vCPU is loaded or reset before its guest is entered, which installs its stage 2.
    unsafe { world.with_stage2(machine.handover, vm, tlb::invalidate_vcpu_local) };
}

/// Has firmware empty the branch predictors that another VM has trained. Gear1 and Gear2 run before
/// the guest, and train them for nobody.
#[inline(never)]
fn forget_branches(cpu: &mut Cpu, machine: &Machine, vm: VmId) {
    if let Some(function) = cpu.data.mitigations.moves_in(vm) {
        // planted: nothing empties the branch predictors
        firmware::work_around(machine.boot.enable_method, function);
    }
}

/// Takes what the list registers hold into the virtual GIC and empties them, and makes the physical
/// timer interrupt inactive, which belongs to the vCPU.
#[inline(always)]
fn empty_list_registers(cpu: &Cpu, machine: &Machine, loaded: &Loaded) {
    if leaves_nothing(cpu, loaded) {
        // Where the timer's list register could be replayed, it was not changed since the timer's
        // last interrupt, and it is empty now. So the guest has ended that interrupt, and the
        // physical one with it (Arm IHI 0069, ICH_LR<n>_EL2.HW; Arm IHI 0048, GICH_LR<n>.HW).
        let is_timer_ended = !cpu.data.timer_interrupt.get().is_none();
        vgic::drop_replays(cpu);
        if is_timer_ended {
            return;
        }
    } else {
        save_list_registers(cpu, machine, loaded);
    }
    Gic::set_ppi_active(cpu.local(), TIMER, false);
}

/// Tells whether the vCPU, which is in Wfi most often when another one is run, can be unloaded
/// without its VM's lock: nothing stands in its list registers.
///
/// Another CPU may change the VM's GIC at this moment. The change is in the VM's state, and raises
/// a request: the vCPU becomes Ready by that, as one that waits while it is loaded (G1-VCPU-001),
/// and its next load takes the request under the lock. List registers are changed by this CPU
/// alone. A VM of several vCPUs is not for this way: until the next load of this vCPU, an SPI that
/// it has ended counts as listed here, and would come to no sibling that it is routed to meanwhile.
#[inline(always)]
fn leaves_nothing(cpu: &Cpu, loaded: &Loaded) -> bool {
    loaded.boot.vcpu_count == 1
        && loaded.shared.is(VcpuState::Wfi)
        && VmGic::leaves_nothing(&mut Gic::list_registers(cpu.data.list_registers))
}

/// Takes over the list registers under the VM's lock. After a restart of the VM its GIC knows
/// nothing of them, so they are cleared whatever it says.
#[inline(never)]
fn save_list_registers(cpu: &Cpu, machine: &Machine, loaded: &Loaded) {
    vgic::empty_unloaded(cpu, machine, loaded);
    if loaded.shared.state() == VcpuState::Off
        || loaded.shared.requests().intersects(Requests::RESET)
    {
        Gic::clear_list_registers(cpu.data.list_registers);
    }
}

/// Takes the loaded vCPU off this CPU: its registers go to its context.
///
/// # Safety
///
/// Gear2 has trapped on this CPU, or no vCPU is loaded.
pub(crate) unsafe fn unload(cpu: &mut Cpu, machine: &Machine) {
    // SAFETY: the caller's condition.
    unsafe { unload_here(cpu, machine) };
    timer::arm(&mut cpu.data);
}

/// Does so, and leaves the EL2 timer to the caller, which [arms](timer::arm) it.
///
/// # Safety
///
/// As for [`unload`].
#[inline(always)]
unsafe fn unload_here(cpu: &mut Cpu, machine: &Machine) {
    let Some(loaded) = cpu.data.loaded.take() else {
        return;
    };
    if let (Some(context), _, data) = cpu.parts() {
        save_el1(data, &mut context.el1);
        if data.has_ras {
            context.el1.disr = VDISR_EL2.get();
        }
        Gic::save_cpu_interface(&mut context.gic);
        CNTV_CTL_EL0.set(0);
        let due =
            virtual_timer_due(&context.el1, context.cntvoff).min(context.physical_timer.deadline());
        let features = context.features;
        empty_list_registers(cpu, machine, loaded);
        if features != 0 {
            monitors::unload(cpu);
        }
        loaded.shared.unload(cpu::now());
        // planted: an unloaded vCPU's timer is not watched
        timer::watch_unloaded(cpu, machine, loaded.id, due);
    }
    // SAFETY: a vCPU was loaded, so Gear2 has trapped.
    unsafe { cpu.remove() };
}
