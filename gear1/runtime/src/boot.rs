//! From init's hand-over to the first entry of Gear2, on every CPU.
//!
//! The boot CPU fills what all CPUs read, [`machine`], before it starts another
//! CPU. From then on that state is constant, and no lock covers it.
//!
//! Requirements: G1-BOOT-009, G1-BOOT-011, G1-CPU-004, G1-CPU-012, G1-CPU-017.

use core::sync::atomic::Ordering;

use gear1_abi::boot::{BootCpu, BootInfo, BootVm, IrqOwner, RealTime};
use gear1_abi::call::VmState;
use gear1_abi::id::{CpuIndex, MAX_CPUS, MAX_VCPUS, VcpuId, VmId};
use gear1_abi::record::RecordId;
use gear1_abi::regs::NO_DEADLINE;
use gear1_arch::cpu::hcr;
use gear1_arch::fp::FpOwner;
use gear1_arch::handover::Handover;
use gear1_arch::regs::{
    CNTV_CTL_EL0, MDSCR_EL1, MIDR_EL1, Readable as _, VPIDR_EL2, Writeable as _,
};
use gear1_arch::window::wipe_init;
use gear1_arch::world::{World, vttbr_of};
use gear1_arch::{cpu, entry, firmware, pointer_auth, start, sve};
use gear1_core::mitigations::Mitigations;
use gear1_core::monitors::ALL as ALL_MONITORS;
use gear1_core::psci;
use gear1_core::stage2::Geometry;
use gear1_core::sve::Lengths;
use gear1_core::vgic::{GicVersion, VcpuIndex};

use crate::gic::{Gic, HostGic, KICK};
use crate::halt::{HaltReason, halt_early};
use crate::machine::{self, CPUS, Cpu, FIRST_SPI, GUEST_SPIS, Machine};
use crate::smmu_driver::Streams;
use crate::{board_watchdog, ffa, irq, log, monitors, realtime, supervise, timer};

/// Every CPU's first function, on its own stack.
#[unsafe(no_mangle)]
extern "C" fn gear1_main(index: u64) -> ! {
    entry::install_vectors();
    let Some(index) = CpuIndex::from_reg(index) else {
        halt_early(HaltReason::Inconsistent)
    };
    if index.index() == 0 {
        start_machine();
    }
    let Some(machine) = machine::get() else {
        halt_early(HaltReason::Inconsistent)
    };
    // SAFETY: the entry of the image, or the boot page, has given this CPU the stack of `index`.
    let Some(cpu) = (unsafe { CPUS.attach(index) }) else {
        halt_early(HaltReason::Inconsistent)
    };
    start_cpu(cpu, machine);
    // SAFETY: `start_cpu` has made Gear2's loop or a real-time VM's vCPU what runs next.
    unsafe { entry::enter(cpu) }
}

/// Initializes the machine. Called by the boot CPU only.
fn start_machine() {
    // SAFETY: this is the runtime's image, which init has entered.
    let Ok(handover) = (unsafe { Handover::receive() }) else {
        halt_early(HaltReason::BootInfo)
    };
    let boot = handover.info();
    // Bound: MAX_VCPUS (32).
    let mut machine = Machine {
        handover,
        boot,
        vcpus: [(VmId::FIRST, VcpuIndex::FIRST); MAX_VCPUS],
        kicks: kicks(boot),
        pa_range: Geometry::from_vtcr(boot.vtcr_el2).pa_range(),
        soc_id: firmware::soc_id(boot.enable_method),
        // Bound: MAX_VMS (16).
        firmware_trng: boot.vms.iter().any(|vm| vm.firmware_trng)
            && firmware::has_trng(boot.enable_method),
    };
    // Bound: MAX_VMS (16).
    for (number, vm) in (0..boot.vm_count as usize).zip(&boot.vms) {
        if let Some(id) = VmId::new(number) {
            name_vcpus(&mut machine.vcpus, id, vm);
            start_vm(handover, id, vm);
        }
    }
    ffa::init(boot);
    #[cfg(feature = "check-ghost")]
    crate::ghost::init(boot);
    machine::init(machine);
    Gic::init_distributor();
}

/// Returns the SGI that kicks each CPU. A real-time VM's CPU has none: an SGI would be an interrupt
/// of its guest's (G1-RT-007).
fn kicks(boot: &BootInfo) -> [u64; MAX_CPUS] {
    let mut kicks = [0; MAX_CPUS];
    let cpus = (0..boot.cpu_count as usize).zip(&boot.cpus);
    // Bound: MAX_CPUS (8).
    for ((number, cpu), kick) in cpus.zip(&mut kicks) {
        if let (Some(index), false) = (CpuIndex::new(number), cpu.real_time) {
            *kick = Gic::sgi(index, cpu.mpidr, KICK);
        }
    }
    kicks
}

/// Notes for each vCPU of a VM its VM and its index there, where a load looks them up by the
/// `VcpuId` that Gear2 names.
fn name_vcpus(vcpus: &mut [(VmId, VcpuIndex); MAX_VCPUS], id: VmId, vm: &BootVm) {
    let first = usize::from(vm.first_vcpu);
    // Bound: MAX_VCPUS_PER_VM (8).
    for index in 0..usize::from(vm.vcpu_count) {
        if let Some(vcpu) = VcpuId::new(first.wrapping_add(index)) {
            *vcpu.select_mut(vcpus) = (id, VcpuIndex::from_low_bits(index));
        }
    }
}

/// Gives a VM its first state. Init has loaded the VMs that start at boot; the others are loaded by
/// Gear2's calls.
fn start_vm(boot: Handover, id: VmId, vm: &BootVm) {
    let count = usize::from(vm.vcpu_count);
    let mut inner = machine::vm(id).lock();
    let version = if boot.gic.version == 2 {
        GicVersion::V2
    } else {
        GicVersion::V3
    };
    inner.gic.configure(version, count, GUEST_SPIS);
    inner.state = if vm.loaded {
        VmState::Loaded
    } else {
        VmState::Stopped
    };
    inner.streams = Streams::new(vm.loaded);
    drop(inner);
    // The first life of a VM is number 1: a CPU that has run no VM stands at 0.
    machine::life(id).fetch_add(1, Ordering::Release);
    // Bound: 8 vCPUs.
    for index in 0..count {
        start_vcpu(boot, id, vm, index);
    }
}

/// Gives a vCPU what stays constant of its context, and its owner CPU by the manifest, which only
/// VCPU_ASSIGN changes. No other CPU is up, so the claim cannot fail.
fn start_vcpu(boot: Handover, id: VmId, vm: &BootVm, index: usize) {
    let Some(vcpu) = VcpuId::new(usize::from(vm.first_vcpu).wrapping_add(index)) else {
        return;
    };
    if let Some(mut context) = machine::claim_context(vcpu) {
        context.hcr = guest_hcr(&boot, id);
        context.vttbr = vttbr_of(boot, id);
        context.vmpidr = psci::vmpidr(index);
        context.features = machine::features(vm);
        context.monitors.has = context.features & ALL_MONITORS;
    }
    let owner_cpu = *vcpu.select(&boot.owner_cpu);
    machine::vcpu(vcpu).set_owner_cpu(CpuIndex::new(usize::from(owner_cpu)).unwrap_or_default());
}

/// Returns HCR_EL2 for a guest. A real-time one waits on its own CPU, and with pass-through takes
/// its IRQs itself; FMO alone traps its SGIs (Arm IHI 0069, 12.2.17). Its vCPUs never move, so a
/// barrier that is for its own CPU waits for no other (BSU).
///
/// IC IALLUIS traps where another VM is real-time, whose instruction caches it would empty
/// (G1-RT-010). A real-time VM of several vCPUs keeps it: its CPUs cannot be kicked to carry it
/// out.
fn guest_hcr(boot: &BootInfo, id: VmId) -> u64 {
    let vm = id.select(&boot.vms);
    let (real_time, has_siblings) = (vm.real_time, vm.vcpu_count > 1);
    let mut others = (0..boot.vm_count as usize).zip(&boot.vms);
    // Bound: MAX_VMS (16).
    let beside_real_time =
        others.any(|(number, vm)| number != id.index() && vm.real_time != RealTime::No);
    // planted: a guest's IC IALLUIS reaches real-time CPUs
    let can_be_done = real_time == RealTime::No || !has_siblings;
    let invalidation = if cpu::has_evt() && beside_real_time && can_be_done {
        hcr::TICAB
    } else {
        0
    };
    let base = match real_time {
        RealTime::No => hcr::GUEST,
        RealTime::Emulated => hcr::GUEST & !hcr::TWI & !hcr::BSU_INNER,
        // planted: no longer: its interrupts do not go to Gear1
        RealTime::PassThrough => hcr::GUEST & !hcr::TWI & !hcr::BSU_INNER & !hcr::IMO,
    };
    let authentication = match vm.pointer_auth {
        true => hcr::POINTER_AUTH,
        false => 0,
    };
    base | invalidation | authentication | cache_traps(real_time)
}

/// Returns the traps of registers that describe caches, so that a guest finds caches of one set and
/// one way and walks over them with one instruction (G1-CPU-010). Without FEAT_EVT these traps
/// include CTR_EL0, which is read before each maintenance by address. A real-time guest is spared
/// that, and walks over the machine's sets.
fn cache_traps(real_time: RealTime) -> u64 {
    match (cpu::has_evt(), real_time) {
        (true, _) => hcr::TID4,
        (false, RealTime::No) => hcr::TID2,
        (false, RealTime::Emulated | RealTime::PassThrough) => 0,
    }
}

/// Initializes the calling CPU and gives it its work.
fn start_cpu(cpu: &mut Cpu, machine: &'static Machine) {
    init_registers(cpu, machine);
    init_data(cpu, machine);
    #[cfg(feature = "trace")]
    begin_trace(cpu, machine.handover);
    if cpu.index().index() == 0 {
        start_others(cpu, machine);
    }
    if let Some((id, [here, needed])) = unfit(cpu, machine) {
        log::log(cpu.index(), id, [cpu.index().reg(), here, needed]);
        firmware::cpu_off(machine.boot.enable_method);
    }
    log::log(cpu.index(), RecordId::CpuUp, [cpu::affinity(), 0, 0]);
    begin_work(cpu, machine);
}

/// Returns why the calling CPU cannot run its VMs, if it is of another cluster and cannot: init chose
/// the shape of stage 2, and found the lengths of vectors, on the boot CPU.
fn unfit(cpu: &Cpu, machine: &Machine) -> Option<(RecordId, [u64; 2])> {
    let boot = machine.boot;
    if cpu::pa_range() < machine.pa_range {
        return Some((RecordId::CpuUnfit, [cpu::pa_range(), machine.pa_range]));
    }
    // Firmware may keep SVE from EL2: only a CPU that needs it looks.
    let length = cpu.index().select(&boot.cpus).sve_bits;
    if length == 0 {
        return None;
    }
    let (own, booted) = (sve::lengths(), Lengths::from_bits(boot.vector_lengths));
    let values = [own.bits().into(), booted.bits().into()];
    (!own.agree(booted, length)).then_some((RecordId::CpuVectors, values))
}

/// Sets the registers of the calling CPU that its first guest must not find as firmware left them.
fn init_registers(cpu: &Cpu, machine: &Machine) {
    cpu::init_traps(machine.handover);
    VPIDR_EL2.set(MIDR_EL1.get());
    CNTV_CTL_EL0.set(0);
    // Not 0 only while a guest runs that has debug, so no debug exception ever fires in Gear2.
    MDSCR_EL1.set(0);
    Gic::init_cpu(cpu.local());
}

/// Fills the calling CPU's private state, which is zero in the image. CPUs of two clusters may have
/// different features, so each asks its own registers.
fn init_data(cpu: &mut Cpu, machine: &'static Machine) {
    cpu.data.machine = Some(machine);
    cpu.data.signals = Some(machine::cpu_shared(cpu.index()));
    cpu.data.fp = FpOwner::NOBODY;
    cpu.data.deadline = NO_DEADLINE;
    cpu.data.armed = NO_DEADLINE;
    cpu.data.watchdog_deadline = NO_DEADLINE;
    cpu.data.period = timer::period(machine.boot.gear2.period);
    cpu.data.early = timer::early();
    cpu.data.list_registers = (1_u32 << (Gic::list_register_count() & 31)).wrapping_sub(1);
    cpu.data.has_pointer_auth = pointer_auth::exists();
    cpu.data.has_pan = cpu::has_pan();
    cpu.data.has_ras = cpu::has_ras();
    cpu.data.misreports_stage2 = cpu::misreports_stage2_faults();
    cpu.data.world = World::of_this_cpu(machine.handover);
    monitors::set(&mut cpu.data, machine, 0);
    let firmware = firmware::workarounds(machine.boot.enable_method);
    cpu.data.mitigations = Mitigations::of(cpu::core(), firmware);
}

/// Gives the calling CPU its ring of trace records, and has it write them if it is to do so from its
/// start on. Without an order of Gear2's that is the only way for a real-time VM's CPU.
#[cfg(feature = "trace")]
fn begin_trace(cpu: &mut Cpu, boot: Handover) {
    gear1_arch::trace::attach(cpu, boot, machine::vcpus());
    if boot.trace_from_boot {
        entry::set_tracing(cpu, true);
    }
}

/// Makes what this CPU is there for run next: a real-time VM, or Gear2's loop.
fn begin_work(cpu: &mut Cpu, machine: &'static Machine) {
    let boot = machine.boot;
    let here = cpu.index().select(&boot.cpus);
    if here.real_time {
        // SAFETY: the CPU starts.
        unsafe { realtime::start(cpu, machine) };
    } else if here.gear2 {
        irq::enable(boot, cpu.local());
        board_watchdog::watch(cpu.index());
        if machine::irq_cpu(boot, IrqOwner::GEAR2) == cpu.index().index() {
            timer::begin_to_feed(&mut cpu.data, machine);
        }
        timer::watch_heartbeats(cpu, machine);
        supervise::start(cpu, machine);
    } else {
        // A boot CPU without a VM and without a loop has no more work.
        firmware::cpu_off(boot.enable_method);
    }
}

/// Says how the interrupts that have an owner trigger, turns on the other CPUs, loads Gear2, and
/// wipes init.
fn start_others(cpu: &Cpu, machine: &Machine) {
    let boot = machine.boot;
    boot.for_each_owned(|intid, _| {
        if intid >= FIRST_SPI {
            let word = boot.irq_edge.get(intid as usize / 32).copied().unwrap_or(0);
            let edge = word.wrapping_shr(intid % 32) & 1 != 0;
            Gic::configure_spi(intid, edge);
        }
    });
    // Real-time VMs start first, but for one on the boot CPU: they depend on no other VM and not on
    // Gear2, and each wipe takes longer than all that the runtime does before it. Init is in no
    // stage 2, so that a VM beside it cannot reach it.
    start_cpus(cpu, machine.handover, |other| other.real_time);
    supervise::load(cpu, machine);
    // SAFETY: the runtime starts, and no page of a guest is mapped on this CPU.
    unsafe { wipe_init(cpu.local(), machine.handover) };
    start_cpus(cpu, machine.handover, |other| other.gear2);
}

/// Starts the CPUs that `wanted` names. One that firmware does not start is logged; its vCPUs never
/// run, and the other CPUs go on.
fn start_cpus(cpu: &Cpu, boot: Handover, wanted: impl Fn(&BootCpu) -> bool) {
    // Bound: MAX_CPUS (8).
    for (number, other) in (0..boot.cpu_count as usize).zip(&boot.cpus) {
        let (Some(index), true) = (CpuIndex::new(number), number != 0 && wanted(other)) else {
            continue;
        };
        // SAFETY: the CPU is one of the hand-over's. All but the boot CPU, number 0, are off until
        // they are started here, each once: a CPU with a loop is no real-time VM's. No page of a
        // guest is mapped.
        if let Err(error) = unsafe { start::start_secondary(cpu.local(), boot, index) } {
            log::log(
                cpu.index(),
                RecordId::CpuFailed,
                [number as u64, error as u64, 0],
            );
        }
    }
}
