//! Information that init hands to the runtime: the machine first, then each VM.
//!
//! The runtime takes all of this as true: no pointer, index or size is checked again there. What is
//! wrong has to be refused before, by the rules on manifests and by the check of the partition.
//!
//! Requirements: G1-BOOT-009.

use alloc::boxed::Box;

use gear1_abi::boot::{
    BOOT_MAGIC, BootChannel, BootCpu, BootInfo, BootMaster, BootVm, IrqOwner, MAX_CHANNELS,
    MAX_INTIDS, MAX_MASTERS, RealTime,
};
use gear1_abi::id::{MAX_CPUS, MAX_VCPUS, MAX_VMS};
use gear1_abi::{ABI_VERSION, info::uart};
use gear1_core::{seed, stage1};
use gearv_manifest::{CpuIndex, GicMode, Manifest, Restart, Vm, VmKind};

use super::system::System;
use crate::board_watchdog;
use crate::device_vm::DeviceVm;
use crate::doorbells;
use crate::el2::Runtime;
use crate::fdt::{Board, Uart};
use crate::sve;

/// VMID of the empty stage 2, which no VM has: there are fewer VMs than VMIDs of 8 bits.
const NULL_VMID: u16 = 0xff;

/// Returns what the runtime is to know of the machine, and of no VM. Fields of VMs, channels and
/// masters stay empty until what they describe is loaded. `gear2_uart` is the boot UART
/// if Gear2 owns it.
pub(super) fn of_machine(
    system: &System<'_, '_>,
    gear2_uart: Option<Uart>,
    runtime: &Runtime,
) -> Box<BootInfo> {
    let (given, board) = (system.given, system.given.board);
    // One literal, so that the compiler finds a field that is not set. On the heap: the structure
    // is larger than init's stack should hold.
    let mut info = Box::new(BootInfo {
        magic: BOOT_MAGIC,
        abi_version: ABI_VERSION,
        cpu_count: board.cpus.len() as u32,
        cpus: [BootCpu::default(); MAX_CPUS],
        enable_method: board.enable_method,
        ttbr0_el2: runtime.root.get(),
        mair_el2: stage1::MAIR,
        tcr_el2: stage1::tcr(given.pa_range),
        vtcr_el2: system.geometry.vtcr(),
        root_size: system.geometry.root_size(),
        null_root: 0,
        null_vmid: NULL_VMID,
        boot_page: runtime.boot_page.get(),
        image: runtime.image.get(),
        pool: runtime.pool.start,
        pool_size: runtime.pool.bytes(),
        pool_used: 0,
        init: given.init.start,
        init_size: given.init.bytes(),
        gic: board.gic,
        // Gear1 prints the reason of a halt on this UART, whoever owns it.
        uart_kind: board.uart.map_or(uart::NONE, |uart| uart.kind),
        uart_intid: gear2_uart.map_or(0, |uart| uart.intid),
        vm_count: 0,
        vcpu_count: 0,
        vms: [BootVm::default(); MAX_VMS],
        owner_cpu: [0; MAX_VCPUS],
        gear2: Default::default(),
        irq_owner: [IrqOwner::NONE; MAX_INTIDS],
        irq_edge: [0; 32],
        channels: [BootChannel::default(); MAX_CHANNELS],
        doorbells: Default::default(),
        pl061: Default::default(),
        masters: [BootMaster::default(); MAX_MASTERS],
        functions: Default::default(),
        smmu: Default::default(),
        watchdogs: Default::default(),
        feed_period: 0,
        settle_ticks: 0,
        trace_size: system.manifest.gear2.trace_bytes(),
        trace_from_boot: system.manifest.gear2.trace_from_boot,
        vector_lengths: system.vector_lengths.bits(),
        seed_key: seed::key(&board.seed),
    });
    fill_cpus(&mut info, board, system.manifest);
    board_watchdog::fill(&mut info, &system.owners.fed, given.counter_hz);
    let owner = gear2_uart.and_then(|uart| info.irq_owner.get_mut(uart.intid as usize));
    if let Some(owner) = owner {
        *owner = IrqOwner::GEAR2;
    }
    info
}

/// Tells the runtime of the CPUs, and which of them run Gear2's loop or belong to a real-time VM. A
/// CPU that is neither is turned off, or never turned on.
fn fill_cpus(info: &mut BootInfo, board: &Board, manifest: &Manifest<'_>) {
    let gear2_cpus = manifest.gear2_cpus(board.cpus.len());
    let real_time = manifest.real_time_cpus();
    for (index, (slot, cpu)) in info.cpus.iter_mut().zip(&board.cpus).enumerate() {
        let number = CpuIndex::new(index);
        *slot = BootCpu {
            mpidr: cpu.mpidr,
            release_addr: cpu.release_addr,
            gear2: number.is_some_and(|cpu| gear2_cpus.contains(cpu)),
            real_time: number.is_some_and(|cpu| real_time.contains(cpu)),
            sve_bits: number.map_or(0, |cpu| sve::longest(manifest, gear2_cpus, cpu)),
        };
    }
}

/// Tells the runtime of the VMs what the manifest says, beside what loading them has told. vCPUs of
/// one VM have consecutive identifiers, in the manifest's order of VMs. Every VM has its interrupt
/// controller where the machine has its own, so that the device VM's tree needs no change there.
pub(super) fn fill_vms(
    info: &mut BootInfo,
    board: &Board,
    manifest: &Manifest<'_>,
    counter_hz: u64,
) {
    let mut first_vcpu = 0_u16;
    info.vm_count = manifest.vms.len() as u32;
    for (slot, vm) in info.vms.iter_mut().zip(manifest.vms.iter()) {
        slot.first_vcpu = first_vcpu;
        slot.gicd_ipa = board.gic.gicd;
        slot.gicr_ipa = board.gic.gicr;
        slot.heartbeat = heartbeat(vm, counter_hz);
        slot.peers = peers(manifest, vm);
        fill_switches(slot, vm);
        first_vcpu += vm.vcpu_count as u16;
    }
    info.vcpu_count = first_vcpu.into();
    fill_owner_cpus(info, board, manifest);
}

/// Tells the runtime what the manifest switches on or off for a VM.
fn fill_switches(slot: &mut BootVm, vm: &Vm<'_>) {
    slot.powers_machine = vm.may_power_off;
    // Of a VM that Gear2 schedules, Gear2 decides the restarts; these are for real-time VMs.
    slot.restarts_after_fault = vm.restart != Restart::Never;
    slot.restarts_after_off = vm.restart == Restart::Always;
    slot.real_time = real_time(vm);
    slot.debug = vm.debug;
    slot.pmu = vm.pmu;
    slot.pointer_auth = vm.pointer_auth;
    slot.sve_bits = vm.sve_bits;
    slot.firmware_trng = vm.firmware_trng;
    slot.last_words = vm.last_words;
    slot.dump = vm.dump;
}

/// Tells the runtime of the stores that are channels. Those of a VM stand together, so that the
/// runtime searches those of the storing VM alone.
pub(super) fn fill_channels(
    info: &mut BootInfo,
    manifest: &Manifest<'_>,
    device_vm: Option<&DeviceVm<'_, '_>>,
) {
    let mut next = 0_u16;
    for (vm, boot) in manifest.vms.iter().zip(&mut info.vms) {
        let of_devices = device_vm.map(|device_vm| device_vm.channels(vm));
        let mut channels = of_devices.unwrap_or_default();
        channels.extend(doorbells::channels(manifest, vm));
        // The rules on manifests bound devices and channels, so that all of them have room.
        boot.first_channel = next;
        boot.channel_count = channels.len() as u16;
        let free = info.channels.iter_mut().skip(next.into());
        free.zip(&channels)
            .for_each(|(slot, channel)| *slot = *channel);
        next += channels.len() as u16;
    }
}

/// Returns the VMs that a VM may share memory with, a bit each: the runtime compares a bit, and
/// reads no name.
fn peers(manifest: &Manifest<'_>, vm: &Vm<'_>) -> u16 {
    let peers = manifest.peers(vm);
    peers.fold(0, |peers, peer| peers | 1 << peer.id.index())
}

/// Tells the runtime where each vCPU runs at first. A real-time vCPU stays there; Gear2 may give
/// the others to another of its CPUs.
fn fill_owner_cpus(info: &mut BootInfo, board: &Board, manifest: &Manifest<'_>) {
    let vcpus = manifest.vms.iter();
    let vcpus = vcpus.flat_map(|vm| (0..vm.vcpu_count).map(move |vcpu| (vm, vcpu)));
    for (slot, (vm, vcpu)) in info.owner_cpu.iter_mut().zip(vcpus) {
        if let Some(cpu) = manifest.start_cpu(vm, vcpu, board.cpus.len()) {
            *slot = cpu.index() as u16;
        }
    }
}

/// Returns the longest time between two changes of a real-time VM's heartbeat, in ticks; 0: it has
/// none.
fn heartbeat(vm: &Vm<'_>, counter_hz: u64) -> u64 {
    let ms = vm.heartbeat().map_or(0, |_| u64::from(vm.watchdog_ms));
    ms * counter_hz / 1_000
}

/// Returns how Gear1 is to run a VM. Only a real-time VM may have the GIC passed through: the rules
/// on manifests refuse it for others, which share their CPUs.
fn real_time(vm: &Vm<'_>) -> RealTime {
    match (vm.kind, vm.gic) {
        (VmKind::RealTime, GicMode::PassThrough) => RealTime::PassThrough,
        (VmKind::RealTime, GicMode::Emulated) => RealTime::Emulated,
        (VmKind::Guest | VmKind::Device, GicMode::PassThrough | GicMode::Emulated) => RealTime::No,
    }
}
