//! Gear2's calls: `SVC #number`. See `docs/abi.md`.
//!
//! Gear2 is not trusted with more than its calls give: each argument is an identifier that is
//! looked up, or a number that is checked, and no argument is an address. Every CPU's loop may make
//! every call at any time, so a call that changes a VM or a vCPU takes the VM's lock, or is refused
//! to all but the vCPU's owner CPU.
//!
//! Requirements: G1-RUN-005, G1-RUN-010, G1-TIM-010.

use gear1_abi::ABI_VERSION;
use gear1_abi::call::{Failure, Reply, Status, VcpuState, number};
use gear1_abi::exit::ExitReason;
use gear1_abi::id::{CpuIndex, VcpuId};
use gear1_abi::record::CURSOR_CPU_SHIFT;
use gear1_arch::cpu;
#[cfg(feature = "trace")]
use gear1_arch::entry;
use gear1_arch::entry::Resume;
use gear1_core::vgic::{IntId, VcpuIndex, VmGic};

use crate::exit_timing::ExitTiming;
use crate::gic::{Gic, HostGic};
use crate::machine::{self, Cpu, GUEST_SPIS, LOG_RINGS, Machine};
use crate::{channel, kick, last_words, lifecycle, reply, smmu, supervise, vcpu, vgic, vm_state};

/// Outcome of a call and what X1 to X6 hold beside it.
type Answer = Result<[u64; 6], Status>;

/// Results of a call that returns its status alone.
const NOTHING: [u64; 6] = [0; 6];

/// Handles `SVC #immediate` of Gear2, but for NEXT.
///
/// # Safety
///
/// Gear2 has trapped on this CPU.
#[inline(never)]
pub(crate) unsafe fn dispatch(cpu: &mut Cpu, machine: &'static Machine, immediate: u16) -> Resume {
    if immediate == number::FATAL {
        return supervise::failed(cpu, machine, Failure::Fatal);
    }
    // No call has more arguments.
    let [a, b, c, ..] = cpu.gear2().x;
    let answer = call(cpu, machine, immediate, (a, b, c));
    let (status, [a, b, c, d, e, f]) = match answer {
        Ok(values) => (Status::Ok, values),
        Err(status) => (status, NOTHING),
    };
    let [x0, x1, x2, x3, x4, x5, x6, ..] = &mut cpu.gear2().x;
    (*x0, *x1, *x2, *x3, *x4, *x5, *x6) = (status as u64, a, b, c, d, e, f);
    Resume::Same
}

/// Carries out a call that returns to its caller.
#[inline(never)]
fn call(cpu: &mut Cpu, machine: &Machine, immediate: u16, arguments: (u64, u64, u64)) -> Answer {
    let (a, b, c) = arguments;
    let vm = || machine::vm_from_reg(machine, a).ok_or(Status::NotFound);
    let id = || machine::vcpu_from_reg(machine, a).ok_or(Status::NotFound);
    match immediate {
        number::VERSION => Ok(version()),
        number::VCPU_STATE => vcpu_state(id()?),
        number::VCPU_ASSIGN => assign(cpu, machine, id()?, b),
        number::VCPU_REPLY => {
            let reply = Reply::from_reg(c).ok_or(Status::Invalid)?;
            reply::complete_and_wake(cpu, machine, id()?, reply, b).map(|()| NOTHING)
        }
        number::VCPU_WAITS => vcpu_waits(id()?),
        number::VCPU_REGS => {
            let id = id()?;
            // SAFETY: Gear2 has trapped, as for `dispatch`.
            unsafe { last_words::answer(cpu, machine, id, b) }
        }
        number::VM_STATE => lifecycle::state(cpu, machine, vm()?),
        number::VM_STOP => lifecycle::stop(cpu, machine, vm()?),
        number::VM_LOAD => lifecycle::load(cpu, machine, vm()?),
        number::VM_START => lifecycle::start(cpu, machine, vm()?),
        number::IRQ_SET => irq_set(cpu, machine, arguments),
        number::IRQ_DONE => irq_done(machine, a),
        number::POKE => poke(cpu, machine, a),
        number::PL061_RAISE => raise(cpu, machine, a, b),
        number::CHANNEL_RING => {
            let rung = channel::ring_for_gear2(cpu, machine, a);
            rung.map(|()| NOTHING).ok_or(Status::NotFound)
        }
        number::DMA_EVENT => smmu::take_event(machine).ok_or(Status::NotFound),
        number::EXIT_STATS => exit_stats(id()?, b),
        number::LOG_READ => log_read(machine, a),
        #[cfg(feature = "trace")]
        number::TRACE if entry::set_tracing(cpu, a != 0) => Ok(NOTHING),
        #[cfg(feature = "trace")]
        number::TRACE => Err(Status::NotFound),
        number::SYSTEM => lifecycle::system(cpu, machine, a != 0),
        _ => Err(Status::NoSuchCall),
    }
}

/// VERSION. The last restart is here, so that a loop that begins anew can report why.
fn version() -> [u64; 6] {
    let [count, failure, pc, index] = machine::gear2_restarts();
    [
        u64::from(ABI_VERSION),
        cpu::now(),
        count,
        failure,
        pc,
        index,
    ]
}

/// VCPU_STATE. The awaited access outlives a restart of Gear2, which then completes it or has it
/// made again; state and access are read one after the other, but only the owner CPU changes them
/// while the vCPU waits.
fn vcpu_state(id: VcpuId) -> Answer {
    let shared = machine::vcpu(id);
    let (ipa, access) = shared.awaited();
    Ok([
        shared.state() as u64,
        ipa,
        access,
        shared.owner_cpu().reg(),
        u64::from(gear1_core::vcpu::is_powered_down(shared)),
        0,
    ])
}

/// VCPU_WAITS. A vCPU that some CPU has loaded does not wait, even if it was woken while loaded.
fn vcpu_waits(id: VcpuId) -> Answer {
    let (shared, now) = (machine::vcpu(id), cpu::now());
    let is_loaded = machine::is_context_claimed(id);
    let waits = if is_loaded { 0 } else { shared.waits_for(now) };
    let stolen = shared.stolen();
    let waited = stolen.wrapping_add(waits);
    let (all, lasts) = machine::cpu_shared(shared.owner_cpu()).waits(now);
    // A CPU waits with the vCPU that it has loaded.
    let here = lasts && is_loaded && shared.is(VcpuState::Wfi);
    Ok([stolen, waited, shared.preemptions(), all, here.into(), 0])
}

/// Gives a vCPU of this CPU's to another CPU: its registers leave this one. Only the owner CPU may,
/// because no other CPU can take registers out of it.
fn assign(cpu: &mut Cpu, machine: &Machine, id: VcpuId, target: u64) -> Answer {
    let target = gear2_cpu(machine, target)?;
    let shared = machine::vcpu(id);
    // planted: Gear2 takes another CPU's vCPU
    if shared.owner_cpu() != cpu.index() {
        return Err(Status::WrongState);
    }
    vcpu::release_fp(cpu, id);
    if cpu.data.is_loaded(id) {
        // SAFETY: Gear2 has trapped, as for `dispatch`.
        unsafe { vcpu::unload(cpu, machine) };
    }
    // The ticks until the vCPU is entered again, perhaps here, are not those of this exit.
    if cpu.data.exit.is_of(shared) {
        cpu.data.exit = ExitTiming::NONE;
    }
    shared.set_owner_cpu(target);
    // The new owner CPU watches a running timer only from its next load on. Until then the timer
    // counts as due, so that it is not forgotten.
    crate::timer::hand_over(cpu, machine, id);
    Ok(NOTHING)
}

/// IRQ_SET. Private interrupts of a guest come from its timers and siblings only. A real-time VM
/// has no emulated devices, and no call of Gear2's may hold its lock while it runs (G1-RT-001).
fn irq_set(cpu: &Cpu, machine: &Machine, arguments: (u64, u64, u64)) -> Answer {
    let (vm, intid, level) = arguments;
    let vm_id = machine::vm_from_reg(machine, vm).ok_or(Status::NotFound)?;
    let intid = u32::try_from(intid)
        .ok()
        .and_then(IntId::new)
        .ok_or(Status::Invalid)?;
    // planted: Gear2 raises an interrupt that guests do not have
    if !(32..32 + GUEST_SPIS as u32).contains(&intid.number()) || level > 1 {
        return Err(Status::Invalid);
    }
    vm_state::refuse(machine, vm_id)?;
    let set = |gic: &mut VmGic| gic.set_line(VcpuIndex::FIRST, intid, level != 0);
    if vgic::change_vm_gic(cpu, machine, vm_id, set) {
        Ok(NOTHING)
    } else {
        Err(Status::WrongState)
    }
}

/// PL061_RAISE. The block's VM need not run: the edge is latched until that VM is loaded anew.
fn raise(cpu: &Cpu, machine: &Machine, index: u64, line: u64) -> Answer {
    let (index, line) = (
        index as usize,
        u32::try_from(line).map_err(|_| Status::NotFound)?,
    );
    if !channel::exists(machine, index, line) {
        return Err(Status::NotFound);
    }
    channel::raise(cpu, machine, index, line);
    Ok(NOTHING)
}

/// IRQ_DONE. Only interrupts of Gear2's own: the deactivation of another owner's would let it fire
/// twice.
fn irq_done(machine: &Machine, intid: u64) -> Answer {
    let owner = machine.boot.irq_owner.get(intid as usize).copied();
    if owner != Some(gear1_abi::boot::IrqOwner::GEAR2) {
        return Err(Status::NotFound);
    }
    Gic::deactivate(intid as u32);
    Ok(NOTHING)
}

/// Reads the identifier of a CPU of Gear2's from a register.
fn gear2_cpu(machine: &Machine, reg: u64) -> Result<CpuIndex, Status> {
    let cpu = CpuIndex::from_reg(reg).ok_or(Status::NotFound)?;
    let is_gear2 = cpu.select(&machine.boot.cpus).gear2;
    is_gear2.then_some(cpu).ok_or(Status::NotFound)
}

/// POKE. Pokes are levels: several become one event.
fn poke(cpu: &Cpu, machine: &Machine, target: u64) -> Answer {
    let target = gear2_cpu(machine, target)?;
    machine::cpu_shared(target).poke();
    kick::kick_cpu(cpu, machine, target);
    Ok(NOTHING)
}

/// EXIT_STATS. Count and ticks are read one after the other, while the vCPU may run on another CPU.
fn exit_stats(id: VcpuId, reason: u64) -> Answer {
    let reason = usize::try_from(reason)
        .ok()
        .and_then(ExitReason::from_index)
        .ok_or(Status::NotFound)?;
    let (count, ticks) = machine::vcpu(id).stats(reason);
    Ok([count, ticks, 0, 0, 0, 0])
}

/// LOG_READ. The cursor holds the CPU in its upper byte and the sequence number below. Other CPUs
/// write their rings meanwhile: a record that is overwritten while it is read is skipped.
fn log_read(machine: &Machine, cursor: u64) -> Answer {
    let first = cursor >> CURSOR_CPU_SHIFT;
    // Bound: MAX_CPUS (8).
    for index in first..u64::from(machine.boot.cpu_count) {
        let sequence = if index == first {
            cursor & ((1 << CURSOR_CPU_SHIFT) - 1)
        } else {
            0
        };
        let Some(ring) = LOG_RINGS.get(index as usize) else {
            break;
        };
        if let Some((found, record)) = ring.read(sequence) {
            let next = index << CURSOR_CPU_SHIFT | found.wrapping_add(1);
            let [x, y, z] = record.values;
            return Ok([next, record.time, record.id_and_cpu, x, y, z]);
        }
    }
    Err(Status::NotFound)
}
