//! Loading vCPUs onto CPUs, and leaving and entering guests.
//!
//! *Loaded*: a CPU's EL1 registers and list registers are this vCPU's. It stays
//! loaded while Gear2 runs, and moves only when another vCPU is run here.
//! *Running*: it executes.

use gear1_abi::call::{VcpuState, VmState};
use gear1_abi::event::Event;
use gear1_abi::exit::ExitReason;
use gear1_abi::id::{VcpuId, VmId};
use gear1_arch::entry::Resume;
use gear1_arch::regs::{CNTV_CTL_EL0, ELR_EL2, Readable as _, VMPIDR_EL2, Writeable as _};
use gear1_arch::{cpu, el1, fp};
use gear1_core::context::FpState;
use gear1_core::vcpu::Attention;
use gear1_core::vgic::{IntId, Kicks, VcpuIndex, VmGic};

use crate::gic::{Gic, HostGic, ListRegisters};
use crate::machine::{self, Cpu, Loaded, Machine};
use crate::{abort, channel, timer};

const FIRST: VcpuIndex = match VcpuIndex::new(0) {
    Some(first) => first,
    None => panic!("a VM has a vCPU"),
};

/// Length of the trapped instruction: AArch64, or the AArch32 ones that trap.
const INSTRUCTION: u64 = 4;

/// Returns the vCPU's index as the virtual GIC has it.
#[inline(always)]
pub(crate) fn gic_index(index: usize) -> VcpuIndex {
    VcpuIndex::new(index & 7).unwrap_or(FIRST)
}

/// Steps over the instruction that trapped.
#[inline(always)]
pub(crate) fn skip_instruction() {
    ELR_EL2.set(ELR_EL2.get().wrapping_add(INSTRUCTION));
}

impl Loaded {
    /// Runs `look` on the VM's virtual GIC; nothing pending changes.
    #[inline(always)]
    pub(crate) fn look_at_gic<R>(
        &self,
        registers: usize,
        look: impl FnOnce(&mut VmGic, VcpuIndex, &mut ListRegisters) -> R,
    ) -> R {
        let mut vm = machine::vm(self.vm).lock();
        look(
            &mut vm.gic,
            gic_index(self.index),
            &mut Gic::list_registers(registers),
        )
    }
}

/// Changes the virtual GIC of the vCPU loaded on `cpu`, and carries out what
/// follows: physical interrupts that ended, other vCPUs that must hear of it.
#[inline]
pub(crate) fn change_gic(
    cpu: &Cpu,
    machine: &Machine,
    loaded: &Loaded,
    change: impl FnOnce(&mut VmGic, VcpuIndex, &mut ListRegisters) -> Kicks,
) {
    let mut vm = machine::vm(loaded.vm).lock();
    let index = gic_index(loaded.index);
    let mut lrs = Gic::list_registers(cpu.data.list_registers);
    let mut kicks = change(&mut vm.gic, index, &mut lrs);
    if kicks.contains(index) {
        kicks = kicks.and(vm.gic.flush(index, &mut lrs));
    }
    deactivate_ended(&mut vm.gic, index);
    let others = without_awake(kicks, loaded);
    if !others.is_empty() {
        notify(cpu, machine, loaded.vm, others);
    }
}

/// Changes the virtual GIC of a VM that may or may not be loaded on `cpu`, and
/// carries out what follows. Tells whether the VM runs; if not, nothing is done.
pub(crate) fn change_vm_gic(
    cpu: &Cpu,
    machine: &Machine,
    id: VmId,
    change: impl FnOnce(&mut VmGic) -> Kicks,
) -> bool {
    let mut vm = machine::vm(id).lock();
    let runs = vm.state == VmState::Running;
    if runs {
        change_locked(cpu, machine, id, &mut vm.gic, change);
    }
    runs
}

/// Makes a physical interrupt pending in the VM that owns its device, whether it runs or not.
pub(crate) fn inject_external(cpu: &Cpu, machine: &Machine, id: VmId, intid: IntId) {
    let mut vm = machine::vm(id).lock();
    change_locked(cpu, machine, id, &mut vm.gic, |gic| {
        gic.inject_hw(gic_index(0), intid)
    });
}

/// Changes a virtual GIC whose VM's lock is held, and carries out what follows.
fn change_locked(
    cpu: &Cpu,
    machine: &Machine,
    id: VmId,
    gic: &mut VmGic,
    change: impl FnOnce(&mut VmGic) -> Kicks,
) {
    let mut kicks = change(gic);
    if let Some(loaded) = cpu.data.loaded.filter(|loaded| loaded.vm == id) {
        let index = gic_index(loaded.index);
        if kicks.contains(index) {
            kicks = kicks.and(gic.flush(index, &mut Gic::list_registers(cpu.data.list_registers)));
            deactivate_ended(gic, index);
        }
        kicks = without_awake(kicks, &loaded);
    }
    notify(cpu, machine, id, kicks);
}

/// Fills the list registers of the loaded vCPU with what became pending.
pub(crate) fn flush_gic(cpu: &Cpu, machine: &Machine, loaded: &Loaded) {
    loaded.shared.take(Attention::IRQ);
    change_gic(cpu, machine, loaded, |gic, index, lrs| {
        gic.flush(index, lrs)
    });
}

/// Deactivates the physical interrupts whose virtual ones the guest ended by register writes.
pub(crate) fn deactivate_ended(gic: &mut VmGic, index: VcpuIndex) {
    // Bound: each call takes one of at most 512 interrupts out.
    while let Some(intid) = gic.take_ended(index) {
        Gic::deactivate(intid.number());
    }
}

/// Carries out what a change of the virtual GIC asks for. The VM's lock is held.
/// `cpu` is the one that runs this; its own running vCPU is flushed by the caller.
pub(crate) fn notify(cpu: &Cpu, machine: &Machine, vm: VmId, kicks: Kicks) {
    for index in kicks.iter() {
        if let Some(id) = machine::vcpu_of(machine, vm, index.index()) {
            attention(cpu, machine, id, Attention::IRQ);
        }
    }
}

/// Returns the kicks without the one for the loaded vCPU, whose list registers
/// were filled here, unless it waits in WFI and must be woken.
pub(crate) fn without_awake(kicks: Kicks, loaded: &Loaded) -> Kicks {
    if loaded.shared.state() == VcpuState::Wfi {
        kicks
    } else {
        kicks.without(gic_index(loaded.index))
    }
}

/// Asks a vCPU for attention, and wakes or kicks what must hear it.
pub(crate) fn attention(cpu: &Cpu, machine: &Machine, id: VcpuId, what: Attention) {
    let shared = machine::vcpu(id);
    shared.raise(what);
    match shared.state() {
        VcpuState::Running => kick_home(cpu, machine, id),
        VcpuState::Wfi => {
            if shared.transition(VcpuState::Wfi, VcpuState::Ready) {
                wake(cpu, machine, id);
            }
        }
        VcpuState::Off | VcpuState::Ready | VcpuState::AwaitsMmio | VcpuState::AwaitsHypercall => {}
    }
}

/// Tells the loop of the vCPU's home that it became runnable.
pub(crate) fn wake(cpu: &Cpu, machine: &Machine, id: VcpuId) {
    machine::cpu_shared(machine::vcpu(id).home()).wake(id.index());
    kick_home(cpu, machine, id);
}

fn kick_home(cpu: &Cpu, machine: &Machine, id: VcpuId) {
    kick(cpu, machine, machine::vcpu(id).home());
}

/// Interrupts another CPU so that it looks at what was left for it.
pub(crate) fn kick(cpu: &Cpu, machine: &Machine, target: gear1_abi::id::CpuIndex) {
    if target == cpu.index() {
        return;
    }
    if let Some(other) = machine.boot.cpus.get(target.index()) {
        Gic::kick(target, other.mpidr);
    }
}

/// Makes the vCPU the one loaded on this CPU. `None`: another CPU still holds its registers.
pub(crate) fn load(cpu: &mut Cpu, machine: &Machine, id: VcpuId) -> Option<()> {
    if cpu
        .data
        .loaded
        .as_ref()
        .is_some_and(|loaded| loaded.id == id)
    {
        return Some(());
    }
    let context = machine::claim_context(id)?;
    unload(cpu, machine);
    let (vm, index) = machine.vcpus.get(id.index()).copied()?;
    let loaded = Loaded {
        id,
        vm,
        index,
        shared: machine::vcpu(id),
        has_channels: channel::has_any(machine, vm),
    };
    timer::cancel_offline(&mut cpu.data, id);
    el1::restore(&context.el1);
    VMPIDR_EL2.set(context.vmpidr);
    Gic::restore_cpu_interface(&context.gic);
    cpu.install(context);
    loaded.shared.take(Attention::IRQ);
    let this = cpu.index();
    change_gic(cpu, machine, &loaded, |gic, index, lrs| {
        // The physical timer interrupt is active exactly while the vCPU owes its end.
        Gic::set_timer_active(this, gic.hw_active(index, IntId::VIRTUAL_TIMER));
        gic.flush(index, lrs)
    });
    cpu.data.loaded = Some(loaded);
    Some(())
}

/// Takes what the list registers hold into the virtual GIC and empties them.
/// After a restart of the VM its GIC knows nothing of them, so they are cleared
/// whatever it says.
fn empty_list_registers(cpu: &Cpu, machine: &Machine, loaded: &Loaded) {
    change_gic(cpu, machine, loaded, |gic, index, lrs| gic.save(index, lrs));
    if loaded.shared.state() == VcpuState::Off || loaded.shared.attention().has(Attention::RESET) {
        Gic::clear_list_registers(cpu.data.list_registers);
    }
}

/// Takes the loaded vCPU off this CPU: its registers go to its context.
pub(crate) fn unload(cpu: &mut Cpu, machine: &Machine) {
    let Some(loaded) = cpu.data.loaded.take() else {
        return;
    };
    if let Some(context) = cpu.context() {
        el1::save(&mut context.el1);
        Gic::save_cpu_interface(&mut context.gic);
        CNTV_CTL_EL0.set(0);
        let timer = (context.el1.cntv_ctl, context.el1.cntv_cval);
        empty_list_registers(cpu, machine, &loaded);
        Gic::set_timer_active(cpu.index(), false);
        timer::watch_offline(cpu, machine, loaded.id, timer);
    }
    cpu.remove();
}

/// Saves the FP registers that this CPU holds for `id`, if it does.
pub(crate) fn release_fp(cpu: &mut Cpu, id: VcpuId) {
    if cpu.data.fp_owner != Some(id) {
        return;
    }
    cpu.data.fp_owner = None;
    cpu::set_fp_trap(false);
    gear1_arch::barrier::isb();
    let is_loaded = cpu
        .data
        .loaded
        .as_ref()
        .is_some_and(|loaded| loaded.id == id);
    if is_loaded {
        if let Some(context) = cpu.context() {
            fp::save(&mut context.fp);
        }
    } else if let Some(mut context) = machine::claim_context(id) {
        fp::save(&mut context.fp);
    }
    cpu::set_fp_trap(true);
}

/// A guest's first FP use since another's: moves the registers. The trapped
/// instruction runs again.
#[inline(never)]
pub(crate) fn take_fp(cpu: &mut Cpu) -> Resume {
    if let Some(owner) = cpu.data.fp_owner {
        release_fp(cpu, owner);
    }
    cpu::set_fp_trap(false);
    gear1_arch::barrier::isb();
    if let (Some(context), _, data) = cpu.parts()
        && let Some(loaded) = data.loaded.as_ref()
    {
        loaded.shared.count(ExitReason::Fp);
        fp::restore(&context.fp);
        data.fp_owner = Some(loaded.id);
    }
    Resume::Same
}

/// Puts the loaded vCPU into its reset state, to start as was requested.
fn apply_reset(cpu: &mut Cpu, machine: &Machine, pc: u64, argument: u64) {
    let index = cpu.index();
    let Some(loaded) = cpu.data.loaded else {
        return;
    };
    change_gic(cpu, machine, &loaded, |gic, index, lrs| {
        gic.save(index, lrs)
    });
    Gic::clear_list_registers(cpu.data.list_registers);
    let (Some(context), _, data) = cpu.parts() else {
        return;
    };
    context.reset(pc, argument);
    context.gic.vmcr = Gic::VMCR_RESET;
    context.fp = FpState::ZERO;
    if data.fp_owner == Some(loaded.id) {
        data.fp_owner = None;
    }
    el1::restore(&context.el1);
    Gic::restore_cpu_interface(&context.gic);
    Gic::set_timer_active(index, false);
    flush_gic(cpu, machine, &loaded);
}

/// Runs the loaded vCPU next: it is Running already. Sees to what waits for its attention.
/// Returns an event instead when it must not run.
pub(crate) fn prepare_entry(cpu: &mut Cpu, machine: &Machine) -> Option<Event> {
    let loaded = cpu.data.loaded?;
    let (shared, id) = (loaded.shared, loaded.id);
    let wanted = shared.attention();
    if wanted.is_none() {
        return None;
    }
    if wanted.has(Attention::STOP) {
        shared.take(Attention::STOP);
        shared.set_state(VcpuState::Off);
        return Some(Event::Off(id));
    }
    if let Some((pc, argument)) = shared.take_reset() {
        apply_reset(cpu, machine, pc, argument);
    }
    if let Some((word, value)) = shared.take_reply() {
        abort::apply_reply(cpu, word, value);
    }
    if wanted.has(Attention::IRQ) {
        flush_gic(cpu, machine, &loaded);
    }
    None
}

/// Makes the loaded vCPU's context the one restored next.
pub(crate) fn enter(cpu: &mut Cpu, trap_wfe: bool) -> Resume {
    if let (Some(context), gear2, data) = cpu.parts()
        && let Some(loaded) = data.loaded.as_ref()
    {
        if let Some((id, reason, since)) = data.exit.take()
            && id == loaded.id
        {
            loaded
                .shared
                .add_ticks(reason, cpu::now().wrapping_sub(since));
        }
        let fp_trap = data.fp_owner != Some(loaded.id);
        data.world.enter_guest(gear2, context, trap_wfe, fp_trap);
    }
    cpu.set_guest();
    Resume::Switch
}

/// Leaves the running guest for Gear2, which gets `event`; the vCPU is in `state` from now on.
pub(crate) fn leave(cpu: &mut Cpu, state: VcpuState, reason: ExitReason, event: Event) -> Resume {
    if let Some(loaded) = cpu.data.loaded.as_ref() {
        loaded.shared.set_state(state);
    }
    leave_as_is(cpu, reason, event)
}

/// The same, with the state already set.
pub(crate) fn leave_as_is(cpu: &mut Cpu, reason: ExitReason, event: Event) -> Resume {
    if let (Some(context), gear2, data) = cpu.parts()
        && let Some(loaded) = data.loaded.as_ref()
    {
        data.exit = Some((loaded.id, reason, cpu::now()));
        data.world.leave_guest(context, gear2);
    }
    crate::next::deliver(cpu, event);
    cpu.set_gear2();
    Resume::Switch
}
