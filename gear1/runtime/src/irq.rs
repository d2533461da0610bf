//! Physical interrupts: acknowledged, then somebody's.
//!
//! For the loaded vCPU they go into its list registers; for Gear2 into a bitmap
//! that `NEXT` empties; Gear1's own are kicks, its timer and maintenance.
//!
//! Requirements: G1-GIC-006, G1-FLT-006.

use gear1_abi::boot::{BootInfo, IrqOwner, RealTime};
use gear1_abi::call::VcpuState;
use gear1_abi::exit::ExitReason;
use gear1_abi::id::VmId;
use gear1_abi::record::RecordId;
use gear1_arch::gic::Acknowledged;
use gear1_arch::regs::{CNTV_CTL_EL0, Writeable as _};
use gear1_arch::stop;
use gear1_arch::this_cpu::LocalCpu;
use gear1_core::monitors::PMU_INTID;
use gear1_core::vgic::{FIRST_LPI, IntId};

use crate::gic::{self, Gic, HostGic};
use crate::machine::{self, Cpu, FIRST_SPI, Loaded, Machine};
use crate::vgic::PMU_IRQ;
use crate::{kick, log, timer, vgic};

/// Handles pending interrupts while this CPU waits at EL2. Returns whether one was a kick.
#[inline(never)]
pub(crate) fn handle_pending(cpu: &mut Cpu, machine: &Machine) -> bool {
    Gic::acknowledge().is_some_and(|irq| handle(cpu, machine, irq) == ExitReason::Kick)
}

/// Handles an acknowledged interrupt and returns the exit reason. The priority drops first, so that
/// the next interrupt can be acknowledged while this one is still active (EOImode 1).
pub(crate) fn handle(cpu: &mut Cpu, machine: &Machine, irq: Acknowledged) -> ExitReason {
    Gic::drop_priority(irq);
    match Gic::intid(irq) {
        gic::VIRTUAL_TIMER => {
            virtual_timer(cpu, machine);
            ExitReason::Timer
        }
        gic::KICK => {
            kicked(cpu, irq);
            ExitReason::Kick
        }
        gic::HYP_TIMER => {
            timer::expired(cpu, machine);
            Gic::end(irq);
            ExitReason::Deadline
        }
        gic::MAINTENANCE => {
            maintain(cpu, machine, irq);
            ExitReason::Maintenance
        }
        intid => external(cpu, machine, intid),
    }
}

/// Another CPU has something for this one: a request to a vCPU, an event for the loop, or the halt
/// of the machine, which a real-time VM's CPU does not take part in (G1-RT-008).
#[inline(always)]
fn kicked(cpu: &Cpu, irq: Acknowledged) {
    Gic::end(irq);
    if cpu.data.real_time == RealTime::No {
        stop::obey();
    }
}

/// The loaded vCPU's list registers have room again, or the guest ended an interrupt that is in
/// none. The flush removes the cause before the end: the interrupt is level-sensitive.
#[inline(always)]
fn maintain(cpu: &Cpu, machine: &Machine, irq: Acknowledged) {
    if let Some(loaded) = cpu.data.loaded {
        vgic::flush_gic(cpu, machine, loaded);
    }
    Gic::end(irq);
}

/// The loaded vCPU's virtual timer: stays active until the guest ends it.
fn virtual_timer(cpu: &Cpu, machine: &Machine) {
    let Some(loaded) = cpu.data.loaded else {
        // A timer without an owner was left running by firmware or the boot loader.
        CNTV_CTL_EL0.set(0);
        Gic::deactivate(gic::VIRTUAL_TIMER);
        return;
    };
    vgic::inject_timer(cpu, machine, loaded);
    if loaded.shared.state() == VcpuState::Wfi && loaded.shared.wake_up() {
        kick::wake(cpu, machine, loaded.id);
    }
}

/// The virtual timer of the loaded vCPU, which is Running: the interrupt goes into a list register,
/// most often into that of the last time.
#[inline(always)]
pub(crate) fn timer_of_running(cpu: &Cpu, loaded: &Loaded, irq: Acknowledged) {
    Gic::drop_priority(irq);
    if !vgic::replay(cpu, loaded.shared, cpu.data.timer_interrupt.get()) {
        vgic::inject_timer(cpu, loaded.machine, loaded);
    }
}

/// A device's interrupt, to its owner. Tells whether the loaded vCPU got it at once.
fn external(cpu: &mut Cpu, machine: &Machine, intid: u32) -> ExitReason {
    if intid == PMU_INTID
        && let Some(loaded) = &cpu.data.loaded
    {
        // The PMU interrupts only for the loaded vCPU, which has it.
        vgic::change_gic(cpu, machine, loaded, |gic, index, _| {
            gic.inject_hw(index, PMU_IRQ)
        });
        return ExitReason::IrqDirect;
    }
    let owner = owner_of(machine.boot, intid);
    if owner == IrqOwner::GEAR2 {
        cpu.data.add_gear2_irq(intid);
        return ExitReason::IrqOther;
    }
    let vm = owner.vm_index().and_then(VmId::new).zip(IntId::new(intid));
    if let Some((vm, virtual_id)) = vm {
        // The interrupt stays active until the guest ends it. A stopped VM's stays active until the
        // VM is loaded again, so that a level which nobody serves does not fire again and again.
        return match vgic::inject_external(cpu, machine, vm, virtual_id) {
            true => ExitReason::IrqDirect,
            false => ExitReason::IrqOther,
        };
    }
    discard(cpu, intid);
    ExitReason::IrqOther
}

/// Returns the owner of an interrupt; an LPI, whose INTID the table does not reach, has none.
#[inline(always)]
fn owner_of(boot: &BootInfo, intid: u32) -> IrqOwner {
    let owner = boot.irq_owner.get(intid as usize).copied();
    owner.unwrap_or(IrqOwner::NONE)
}

/// Ends an interrupt that nobody owns: firmware or the boot loader left it enabled. LPIs have no
/// active state.
#[inline(always)]
fn discard(cpu: &Cpu, intid: u32) {
    if intid < FIRST_LPI {
        Gic::deactivate(intid);
    }
    log::log(cpu.index(), RecordId::SpuriousIrq, [u64::from(intid), 0, 0]);
}

/// Routes the interrupts to this CPU whose owners live here.
pub(crate) fn enable(boot: &BootInfo, cpu: LocalCpu<'_>) {
    boot.for_each_owned(|intid, owner| {
        let here = machine::irq_cpu(boot, owner) == cpu.index().index();
        if intid >= FIRST_SPI && here && !machine::is_passed_through(boot, owner) {
            Gic::enable_spi(cpu, intid);
        }
    });
}
