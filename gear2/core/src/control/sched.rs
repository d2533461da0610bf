//! Operations on scheduling: where vCPUs are, pins, and CPUs that take none.
//!
//! A move is begun here. Loops go on with it, and the caller asks for the place until no move is
//! under way.

use gear1_abi::id::{CpuIndex, VcpuId};
use gear2_protocol::{cpu_flag, outcome, share as parameter};

use super::{Answer, NOTHING, Task, done, name_words};
use crate::config::VmConfig;
use crate::gear1::Gear1;
use crate::machine::{Machine, Parameter, Platform, Stage, Stays};
use crate::scheduler::Budget;

/// Returns the CPU with a loop that an argument names.
pub(super) fn find_cpu<P: Platform>(machine: &Machine<P>, cpu: u64) -> Result<CpuIndex, u32> {
    let cpu = CpuIndex::from_reg(cpu).filter(|cpu| machine.config.cpus.contains(*cpu));
    cpu.ok_or(outcome::NOT_FOUND)
}

/// Returns the vCPU that an argument names, if Gear2 schedules it.
pub(super) fn find_vcpu<P: Platform>(machine: &Machine<P>, vcpu: u64) -> Result<VcpuId, u32> {
    let vcpu = VcpuId::from_reg(vcpu).filter(|vcpu| machine.config.vcpu(*vcpu).is_some());
    vcpu.ok_or(outcome::NOT_FOUND)
}

/// Returns a pool by its place among those that have CPUs: its name, or how its CPUs are scheduled
/// and which VMs are in it.
pub(super) fn pool<P: Platform>(machine: &Machine<P>, place: u64, half: u64) -> Answer {
    let config = &machine.config;
    let place = usize::try_from(place).unwrap_or(usize::MAX);
    let pool = config.pools().nth(place).ok_or(outcome::NOT_FOUND)?;
    // An answer has six words, which the name alone fills: the caller asks twice.
    if half == 0 {
        return done(name_words(&pool.name));
    }
    let [first, second, ..] = name_words(pool.policy.name);
    let [balancer, ..] = name_words(pool.balancer.name());
    let here = config.vms.iter().filter(|vm| vm.scheduled);
    let here = here.filter(|vm| machine.pools.place(vm.id) == place);
    let vms = here.fold(0, |vms, vm| vms | 1 << vm.id.index());
    let slice = machine.us(pool.plan.slice);
    // Masks, as an answer has no room for lists: eight CPUs and the VMs fit into a word each.
    done([first, second, balancer, pool.cpus.mask(), vms, slice])
}

/// Returns how a CPU is scheduled.
pub(super) fn cpu<P: Platform>(machine: &Machine<P>, cpu: CpuIndex) -> Answer {
    let config = &machine.config;
    let [first, second, ..] = name_words(config.pool(cpu).policy.name);
    let [balancer, ..] = name_words(config.pool(cpu).balancer.name());
    let flags = if machine.is_closed(cpu) {
        cpu_flag::CLOSED
    } else {
        0
    };
    let cluster = u64::from(config.clusters[cpu.index()]) << cpu_flag::CLUSTER;
    let vcpus = machine.placement.counts()[cpu.index()];
    // In microseconds, as the manifest gives the slice.
    let slice = config.pool(cpu).plan.slice.saturating_mul(1_000_000) / config.counter_hz.max(1);
    done([
        first,
        second,
        balancer,
        flags | cluster,
        vcpus.into(),
        slice,
    ])
}

/// Returns where a vCPU is.
pub(super) fn vcpu<P: Platform>(machine: &Machine<P>, vcpu: VcpuId) -> Answer {
    let place = machine.placement.of(vcpu);
    let reason = match place.stage {
        Stage::Refused(why) => why.number().into(),
        Stage::Home | Stage::Ready | Stage::Wanted | Stage::Offered(_) | Stage::Taken => 0,
    };
    // CPUs are counted from 1: 0 is no pin.
    let pin = machine.pin(vcpu).map_or(0, |cpu| cpu.reg() + 1);
    // Of the whole machine: no operation is about that alone, and a reader of places wants it.
    let moves = machine.placement.moves();
    done([
        place.cpu.reg(),
        u64::from(!place.stage.rests()),
        reason,
        pin,
        machine.affinity(vcpu),
        moves,
    ])
}

/// Begins to move a vCPU.
pub(super) fn begin_move<P: Platform>(
    machine: &Machine<P>,
    gear1: &mut impl Gear1,
    vcpu: u64,
    cpu: u64,
) -> Answer {
    let (vcpu, cpu) = (find_vcpu(machine, vcpu)?, find_cpu(machine, cpu)?);
    begun(machine.want(gear1, vcpu, cpu))
}

/// Pins a vCPU to the CPU where it is, counted from 1, or to none.
pub(super) fn pin<P: Platform>(machine: &Machine<P>, vcpu: u64, cpu: u64) -> Answer {
    let vcpu = find_vcpu(machine, vcpu)?;
    let cpu = cpu.checked_sub(1);
    let cpu = cpu.map(|cpu| find_cpu(machine, cpu)).transpose()?;
    let place = machine.placement.of(vcpu);
    // A pin keeps a vCPU, and never moves one: the caller moves it first.
    if cpu.is_some_and(|cpu| cpu != place.cpu || !place.stage.rests()) {
        return Err(outcome::WRONG_STATE);
    }
    machine.set_pin(vcpu, cpu);
    done(NOTHING)
}

/// Closes a CPU for vCPUs, or opens it.
pub(super) fn close<P: Platform>(
    machine: &Machine<P>,
    gear1: &mut impl Gear1,
    cpu: u64,
    closed: bool,
) -> Answer {
    let cpu = find_cpu(machine, cpu)?;
    begun(machine.set_closed(gear1, cpu, closed))
}

/// Returns the scheduling parameters of a VM: the first half or the second one.
pub(super) fn share<P: Platform>(machine: &Machine<P>, vm: &VmConfig, half: u64) -> Answer {
    if !vm.scheduled {
        return Err(outcome::WRONG_STATE);
    }
    // One look: parameters, refusal and progress are of one moment.
    let shares = machine.shares.lock();
    let (share, changing) = (*shares.of(vm.id), shares.is_changing());
    let refusal = shares.refusal(vm.id).map_or(0, |why| why.number().into());
    drop(shares);
    let us = |ticks| machine.us(ticks);
    let times = |budget: Option<Budget>| budget.map_or([0; 2], |b| [us(b.ticks), us(b.period)]);
    let ([cap, cap_period], [budget, period]) = (times(share.cap), times(share.server));
    let (priority, latency) = (share.priority.into(), us(share.latency));
    // Six words are no room for all parameters.
    match half {
        0 => done([share.weight, priority, latency, changing.into(), refusal, 0]),
        _ => done([cap, cap_period, budget, period, 0, 0]),
    }
}

/// Begins to change a parameter of a VM: its number, value and period.
pub(super) fn set<P: Platform>(
    machine: &Machine<P>,
    gear1: &mut impl Gear1,
    vm: &VmConfig,
    [number, value, period]: [u64; 3],
) -> Answer {
    if !vm.scheduled {
        return Err(outcome::WRONG_STATE);
    }
    let parameter = match number {
        parameter::WEIGHT => Parameter::Weight(value),
        parameter::CAP => Parameter::Cap(value, period),
        parameter::BUDGET => Parameter::Server(value, period),
        parameter::PRIORITY => Parameter::Priority(value),
        parameter::LATENCY => Parameter::Latency(value),
        _ => return Err(outcome::NOT_FOUND),
    };
    begun(machine.change_share(gear1, vm.id, parameter))
}

/// Begins to change the pool of a VM, which is named by its place as in [`pool`].
pub(super) fn set_pool<P: Platform>(
    machine: &Machine<P>,
    gear1: &mut impl Gear1,
    vm: &VmConfig,
    place: u64,
) -> Answer {
    if !vm.scheduled {
        return Err(outcome::WRONG_STATE);
    }
    let place = usize::try_from(place).unwrap_or(usize::MAX);
    machine
        .config
        .pools()
        .nth(place)
        .ok_or(outcome::NOT_FOUND)?;
    begun(machine.change_pool(gear1, vm.id, place))
}

/// Returns the answer to an operation that is begun, or that cannot be.
fn begun(result: Result<(), Stays>) -> Answer {
    let (outcome, why) = match result {
        Ok(()) => (outcome::STARTED, 0),
        Err(why) => (outcome::STAYS, why.number().into()),
    };
    Ok((outcome, [why, 0, 0, 0, 0, 0], Task::None))
}
