//! Facts and steps of a VM's life that calls of guests, of Gear2 and of FF-A have in common: which
//! vCPUs are on, whether a stop is complete, a real-time VM's memory and restarts.
//!
//! A VM is not stopped before its bus masters are: what they were told to read and write would else
//! go on in memory that is somebody's next. Masters that have a register for it are stopped by it,
//! PCI functions by their bridge, and what is behind the SMMU reaches nothing until the VM is loaded
//! again. The VM's lock is held for some stores to and loads from each of at most
//! [`MAX_MASTERS`](gear1_abi::boot::MAX_MASTERS), less than for a piece of loading.
//!
//! Requirements: G1-RT-005, G1-RT-006, G1-DMA-002.

use gear1_abi::boot::{IrqOwner, RealTime};
use gear1_abi::call::{Status, VcpuState, VmState};
use gear1_abi::event::Ended;
use gear1_abi::id::VmId;
use gear1_arch::this_cpu::LocalCpu;
use gear1_arch::window::stop_masters;
use gear1_arch::{root, world};
use gear1_core::lifecycle;

use crate::gic::{Gic, HostGic};
use crate::machine::{self, Cpu, FIRST_SPI, Machine, VmInner};
use crate::{kick, smmu};

/// Counts the VM's vCPUs that are not off.
pub(crate) fn alive(machine: &Machine, vm: VmId) -> u64 {
    let count = usize::from(machine::boot_vm(machine, vm).vcpu_count);
    let ids = (0..count).filter_map(|index| machine::vcpu_of(machine, vm, index));
    // Bound: MAX_VCPUS_PER_VM (8).
    ids.filter(|id| machine::vcpu(*id).state() != VcpuState::Off)
        .fold(0, |count: u64, _| count.wrapping_add(1))
}

/// Ends the stop when the last vCPU has left and no bus master of the VM accesses memory any
/// longer. The VM's lock is held.
pub(crate) fn complete_stop(cpu: LocalCpu<'_>, machine: &Machine, id: VmId, vm: &mut VmInner) {
    let masters = &mut vm.masters;
    let mut masters_stop = || {
        // SAFETY: `lifecycle::complete_stop` asks only while the VM is stopping. FF-A unmaps a
        // guest's page before it looks at VMs' states.
        unsafe { stop_masters(cpu, machine.handover, id, masters.tell()) }
    };
    let streams = &mut vm.streams;
    let still =
        || alive(machine, id) != 0 || !masters_stop() || !smmu::turn(machine, id, streams, false);
    vm.state = lifecycle::complete_stop(vm.state, still);
}

/// Returns the VM's state.
pub(crate) fn current(cpu: LocalCpu<'_>, machine: &Machine, id: VmId) -> VmState {
    if machine::running(id).runs() {
        return VmState::Running;
    }
    let mut vm = machine::lock_vm(id);
    complete_stop(cpu, machine, id, &mut vm);
    vm.state
}

/// Tells whether Gear1 starts a VM anew that ended so, without Gear2 (G1-RT-006).
pub(crate) fn restarts(machine: &Machine, vm: VmId, end: Ended) -> bool {
    let boot = machine::boot_vm(machine, vm);
    boot.real_time != RealTime::No
        && match end {
            Ended::No => false,
            // planted: a real-time VM that resets itself stays off
            Ended::Reset => true,
            Ended::Off => boot.restarts_after_off,
            Ended::Fault => boot.restarts_after_fault,
        }
}

/// Refuses what would let Gear2 reach into a real-time VM while it runs.
pub(crate) fn refuse(machine: &Machine, vm: VmId) -> Result<(), Status> {
    match machine::boot_vm(machine, vm).real_time {
        RealTime::No => Ok(()),
        RealTime::Emulated | RealTime::PassThrough => Err(Status::WrongState),
    }
}

/// Takes the memory of a VM with pass-through away, so that its vCPUs fault into Gear1, and wakes
/// those that wait. The VM's lock is held; its vCPUs have been asked to stop (G1-RT-005).
pub(crate) fn freeze(cpu: &Cpu, machine: &Machine, vm: VmId) {
    let boot = machine::boot_vm(machine, vm);
    if boot.real_time != RealTime::PassThrough {
        return;
    }
    // planted: a VM with pass-through that spins is not stopped
    root::freeze(machine.handover, vm);
    // Whatever runs here goes on: Gear2, or a guest that the look at a heartbeat has interrupted.
    world::invalidate_other_vmid(machine.handover, vm);
    // Bound: MAX_VCPUS_PER_VM (8).
    for index in 0..usize::from(boot.vcpu_count) {
        if let Some(id) = machine::vcpu_of(machine, vm, index)
            && machine::vcpu(id).state() == VcpuState::Running
        {
            kick::kick_cpu(cpu, machine, machine::vcpu(id).owner_cpu());
        }
    }
}

/// Maps a VM's memory again before the VM starts, and resets its interrupts.
pub(crate) fn thaw(machine: &Machine, vm: VmId) {
    let boot = machine::boot_vm(machine, vm);
    if boot.real_time != RealTime::PassThrough {
        return;
    }
    root::thaw(machine.handover, vm);
    let owner = IrqOwner::vm(vm.index());
    let owner_cpu = machine::vcpu_of(machine, vm, 0).map(|id| machine::vcpu(id).owner_cpu());
    let Some(target) = owner_cpu else {
        return;
    };
    let cpu = target.select(&machine.boot.cpus);
    machine.boot.for_each_owned(|intid, of| {
        if intid >= FIRST_SPI && Some(of) == owner {
            Gic::silence_spi(intid);
            Gic::route_spi(target, cpu.mpidr, intid);
        }
    });
}
