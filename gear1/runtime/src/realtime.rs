//! Real-time VMs: each of their vCPUs has a CPU that runs nothing else, neither Gear2 nor another
//! VM.
//!
//! Where other CPUs hand an event to Gear2, such a CPU handles it here: it waits at EL2 until its
//! vCPU is to run, and loads its VM anew after SYSTEM_RESET.
//!
//! Invariants: a path of these CPUs takes no lock but their own VM's (G1-RT-001). With
//! pass-through, the physical CPU interface, SGIs and timers are the guest's from a vCPU's start to
//! its end, and Gear1 has no interrupt of its own there (G1-RT-002); a stop takes the guest's
//! memory away instead.

use gear1_abi::boot::RealTime;
use gear1_abi::call::{VcpuState, VmState};
use gear1_abi::id::{CpuIndex, VcpuId, VmId};
use gear1_arch::entry::Resume;
use gear1_arch::regs::{CNTP_CTL_EL0, CNTV_CTL_EL0, Writeable as _};
use gear1_arch::{barrier, cpu as this_cpu, firmware};
use gear1_core::monitors::ALL as ALL_MONITORS;
use gear1_core::vgic::VcpuIndex;

use crate::gic::{Gic, HostGic};
use crate::machine::{self, Cpu, Machine};
use crate::{irq, kick, last_words, lifecycle, vcpu};

/// Returns the real-time vCPU whose owner CPU this CPU is.
fn own_vcpu(machine: &Machine, cpu: CpuIndex) -> Option<(VcpuId, VmId, VcpuIndex)> {
    let count = machine.boot.vcpu_count as usize;
    let vcpus = (0..count).zip(&machine.vcpus);
    // Bound: MAX_VCPUS (32).
    vcpus
        .filter_map(|(number, (vm, index))| Some((VcpuId::new(number)?, *vm, *index)))
        .find(|(id, vm, _)| {
            machine::boot_vm(machine, *vm).real_time != RealTime::No
                && machine::vcpu(*id).owner_cpu() == cpu
        })
}

/// Makes this CPU a real-time VM's: starts the VM on its first vCPU's CPU. Returns when there is a
/// vCPU to enter; on a CPU without one, never.
///
/// # Safety
///
/// The CPU starts: nothing has run on it since [`Cpus::attach`](gear1_arch::this_cpu::Cpus::attach).
pub(crate) unsafe fn start(cpu: &mut Cpu, machine: &'static Machine) {
    let Some((id, vm, index)) = own_vcpu(machine, cpu.index()) else {
        firmware::cpu_off(machine.boot.enable_method)
    };
    let boot = machine::boot_vm(machine, vm);
    cpu.data.rt_vcpu = Some(id);
    cpu.data.real_time = boot.real_time;
    leave_out_gear2(cpu);
    // With pass-through the guest enables its interrupts itself, and those of Gear2's, which CPU 0
    // has where no CPU is Gear2's, are enabled nowhere: they would come into the guest.
    if boot.real_time == RealTime::PassThrough {
        // SAFETY: the CPU is this vCPU's alone from now on.
        unsafe { this_cpu::give_timer_and_monitors(machine::features(boot) & ALL_MONITORS) };
    } else {
        irq::enable(machine.boot, cpu.local());
    }
    #[cfg(feature = "check-locks")]
    gear1_arch::confine::confine(machine::vm(vm));
    if index == VcpuIndex::FIRST && boot.loaded {
        // The start cannot fail: nobody else knows of the VM yet.
        let _ = lifecycle::start(cpu, machine, vm);
    }
    wait_for_start(cpu, machine, vm);
}

/// Prepares the world switch of a CPU that never runs Gear2: a switch to Gear2, with which each
/// exit to [`on_exit`] begins, installs an empty stage 2 instead of Gear2's.
fn leave_out_gear2(cpu: &mut Cpu) {
    let world = cpu.data.world.without_gear2();
    cpu.data.world = world;
    // SAFETY: Gear2's frame, which is current, is never restored on this CPU: a guest is entered
    // first, and a guest that leaves is followed by a guest.
    unsafe { world.start_gear2(cpu.gear2()) };
}

/// The vCPU has left its guest: what Gear2 does elsewhere.
///
/// # Safety
///
/// `vcpu::leave_as_is` has just left the guest on this CPU, which is a real-time VM's.
pub(crate) unsafe fn on_exit(cpu: &mut Cpu, machine: &'static Machine) -> Resume {
    let Some(loaded) = cpu.data.loaded else {
        return Resume::Same;
    };
    let is_turned_off = core::mem::take(&mut cpu.data.turned_off);
    last_words::keep(cpu);
    if cpu.data.real_time == RealTime::PassThrough {
        CNTV_CTL_EL0.set(0);
        CNTP_CTL_EL0.set(0);
        // planted: a guest's interface stays as it left it
        Gic::take_interface_back(cpu.local());
    }
    let powers_machine = machine::boot_vm(machine, loaded.vm).powers_machine;
    if powers_machine && is_turned_off {
        firmware::system(machine.boot.enable_method, false);
    }
    wait_for_start(cpu, machine, loaded.vm);
    Resume::Switch
}

/// Waits until this CPU's vCPU is to run, and makes it what runs next. Unbounded by design: the CPU
/// has nothing else to do.
fn wait_for_start(cpu: &mut Cpu, machine: &'static Machine, vm: VmId) {
    let Some(id) = cpu.data.rt_vcpu else {
        return;
    };
    // Bound: none, by design: a real-time VM's CPU has nothing to do until its vCPU is to run; it
    // waits in WFI.
    // planted: late: a CPU that turned itself off looks
    while !is_ready(cpu, machine, id, vm) {}
    if cpu.data.real_time == RealTime::PassThrough {
        // The waker made the vCPU ready and kicked this CPU under the VM's lock, which a start
        // takes as well. Hence no kick is under way that the guest could take for its own interrupt
        // (G1-RT-007).
        Gic::give_interface(cpu.local());
        // planted: a guest finds its kick pending
    }
    // SAFETY: Gear2 never runs here. The callers return `Switch`, or enter the guest first.
    let _switch = unsafe { vcpu::enter(cpu) };
}

/// Does what stands between this CPU and its vCPU, or waits for an interrupt. Tells whether the
/// vCPU is loaded and Running, with nothing to handle before its entry.
///
/// The wake-up is taken before the state is read: one that comes later leaves its kick pending,
/// which ends the WFI.
fn is_ready(cpu: &mut Cpu, machine: &'static Machine, id: VcpuId, vm: VmId) -> bool {
    machine::cpu_shared(cpu.index()).take_wake();
    // planted: nobody starts a VM again whose heartbeat has stopped
    cpu.data.restart |= core::mem::take(&mut machine::lock_vm(vm).is_left);
    if cpu.data.restart {
        restart(cpu, machine, vm);
        irq::handle_pending(cpu, machine);
        false
    } else if machine::vcpu(id).transition(VcpuState::Ready, VcpuState::Running) {
        // SAFETY: the CPU loads this vCPU alone, and enters it next.
        let is_loaded = unsafe { vcpu::load(cpu, machine, id) }.is_some();
        is_loaded && vcpu::prepare_entry(cpu, machine).is_none()
    } else {
        barrier::dsb_sy();
        barrier::wfi();
        irq::handle_pending(cpu, machine);
        false
    }
}

/// Does one step of a restart without Gear2, which has to wait for the VM's other vCPUs first: one
/// piece of the load, or the start. Interrupts are taken between two steps.
fn restart(cpu: &mut Cpu, machine: &Machine, vm: VmId) {
    let inner = machine::lock_vm(vm);
    let (restarts, state) = (inner.restarts, inner.state);
    drop(inner);
    if !restarts {
        // Gear2 has stopped or started it meanwhile.
        cpu.data.restart = false;
    } else if state == VmState::Loaded {
        cpu.data.restart = false;
        let _ = lifecycle::start(cpu, machine, vm);
        if let Some(id) = cpu.data.rt_vcpu {
            kick::notify_gear2(cpu, machine, id);
        }
    } else if lifecycle::load(cpu, machine, vm).is_err() {
        // Another vCPU is inside its guest still.
        barrier::yield_hint();
    }
}

/// CPU_SUSPEND with pass-through: any interrupt that the guest would wake for wakes the CPU.
pub(crate) fn suspend(cpu: &Cpu) -> Option<Resume> {
    if cpu.data.real_time != RealTime::PassThrough {
        return None;
    }
    barrier::dsb_sy();
    barrier::wfi();
    Some(Resume::Same)
}
