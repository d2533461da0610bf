//! From init's hand-over to the first entry of Gear2, on every CPU.

use gear1_abi::boot::{BootInfo, IrqOwner, MAX_INTIDS};
use gear1_abi::call::VmState;
use gear1_abi::id::{CpuIndex, MAX_VCPUS, VmId};
use gear1_abi::layout::gear2;
use gear1_abi::record::RecordId;
use gear1_abi::regs::NO_DEADLINE;
use gear1_arch::cpu::hcr;
use gear1_arch::regs::{CntvCtlEl0, CntvoffEl2, MdscrEl1, MidrEl1, VpidrEl2};
use gear1_arch::window::wipe_init;
use gear1_arch::world::World;
use gear1_arch::{cpu, entry, gicv3, start};
use gear1_core::context::PSTATE_EL0_MASKED;
use gear1_core::psci;
use gear1_core::vgic::GicVersion;

use crate::halt::{HaltReason, halt_early};
use crate::log;
use crate::machine::{self, CPUS, Cpu, MACHINE, Machine};

const VMID_SHIFT: u32 = 48;

fn vttbr(root: u64, vmid: u16) -> u64 {
    u64::from(vmid) << VMID_SHIFT | root
}

impl Machine {
    /// Returns VTTBR_EL2 of a VM.
    pub(crate) fn vttbr(&self, vm: &gear1_abi::boot::BootVm) -> u64 {
        vttbr(vm.root, vm.vmid)
    }
}

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
    let Some(machine) = MACHINE.get() else {
        halt_early(HaltReason::Inconsistent)
    };
    let Some(cpu) = CPUS.attach(index) else {
        halt_early(HaltReason::Inconsistent)
    };
    start_cpu(cpu, machine);
    entry::enter()
}

/// What the boot CPU does for all.
fn start_machine() {
    let Ok(boot) = start::boot_info() else {
        halt_early(HaltReason::BootInfo)
    };
    let mut machine = Machine {
        boot,
        vcpus: [(VmId::default(), 0); MAX_VCPUS],
        pa_range: (boot.vtcr_el2 >> 16) & 7,
    };
    for (number, vm) in (0..boot.vm_count as usize).zip(&boot.vms) {
        let (Some(id), first) = (VmId::new(number), usize::from(vm.first_vcpu)) else {
            continue;
        };
        for index in 0..usize::from(vm.vcpu_count) {
            if let Some(place) = machine.vcpus.get_mut(first.wrapping_add(index)) {
                *place = (id, index);
            }
        }
        start_vm(boot, id, vm);
    }
    MACHINE.init(machine);
    gicv3::init_distributor();
}

fn start_vm(boot: &BootInfo, id: VmId, vm: &gear1_abi::boot::BootVm) {
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
    drop(inner);
    for index in 0..count {
        let Some(vcpu) = gear1_abi::id::VcpuId::new(usize::from(vm.first_vcpu).wrapping_add(index))
        else {
            continue;
        };
        if let Some(mut context) = machine::claim_context(vcpu) {
            context.hcr = hcr::GUEST;
            context.vttbr = vttbr(vm.root, vm.vmid);
            context.vmpidr = psci::vmpidr(index);
        }
        let home = boot.home_cpu.get(vcpu.index()).copied().unwrap_or(0);
        machine::vcpu(vcpu).set_home(CpuIndex::new(usize::from(home)).unwrap_or_default());
    }
}

/// First INTID that all CPUs share.
const FIRST_SPI: u32 = 32;
/// SPIs that a guest's distributor has.
const GUEST_SPIS: usize = 256;

/// What every CPU does for itself.
fn start_cpu(cpu: &mut Cpu, machine: &'static Machine) {
    let boot = machine.boot;
    cpu::init_traps(boot.vtcr_el2);
    VpidrEl2.set(MidrEl1.get());
    CntvoffEl2.set(0);
    CntvCtlEl0.set(0);
    // No guest can change it (trapped), so no debug exception ever fires in Gear2.
    MdscrEl1.set(0);
    gicv3::init_cpu(cpu.index());
    cpu.data.machine = Some(machine);
    (cpu.data.deadline, cpu.data.armed) = (NO_DEADLINE, NO_DEADLINE);
    cpu.data.list_registers = gicv3::list_register_count();
    cpu.data.has_pan = cpu::has_pan();
    cpu.data.world = World {
        gear2_vttbr: vttbr(boot.gear2.root, boot.gear2.vmid),
        null_vttbr: vttbr(boot.null_root, boot.null_vmid),
        null_step: cpu::needs_null_stage2(),
    };
    if cpu.index().index() == 0 {
        wipe_init(boot);
        start_others(cpu, machine);
    }
    log::log(cpu.index(), RecordId::CpuUp, [cpu::affinity(), 0, 0]);
    enter_gear2(cpu, boot);
}

/// Turns on the other CPUs that Gear2 manages, and routes the interrupts that have an owner.
fn start_others(cpu: &Cpu, machine: &Machine) {
    let boot = machine.boot;
    for (number, other) in (0..boot.cpu_count as usize).zip(&boot.cpus) {
        if number != 0
            && other.gear2
            && let Some(index) = CpuIndex::new(number)
            && let Err(error) = start::start_secondary(boot, index)
        {
            log::log(
                cpu.index(),
                RecordId::CpuFailed,
                [number as u64, error as u64, 0],
            );
        }
    }
    for (intid, owner) in (0..MAX_INTIDS as u32).zip(&boot.irq_owner) {
        if intid >= FIRST_SPI && *owner != IrqOwner::NONE {
            let word = boot.irq_edge.get(intid as usize / 32).copied().unwrap_or(0);
            let edge = word.wrapping_shr(intid % 32) & 1 != 0;
            gicv3::enable_spi(intid, edge, home_affinity(boot, *owner));
        }
    }
}

/// Returns where an owner's interrupts go: a VM's to its first vCPU's home, Gear2's here.
fn home_affinity(boot: &BootInfo, owner: IrqOwner) -> u64 {
    let vm = owner.vm_index().and_then(|index| boot.vms.get(index));
    let home = vm.and_then(|vm| boot.home_cpu.get(usize::from(vm.first_vcpu)));
    let target = home.and_then(|home| boot.cpus.get(usize::from(*home)));
    target.map_or_else(cpu::affinity, |target| target.mpidr)
}

/// Makes this CPU's Gear2 loop what runs first.
fn enter_gear2(cpu: &mut Cpu, boot: &BootInfo) {
    let index = cpu.index().reg();
    let world = cpu.data.world;
    let frame = cpu.gear2();
    frame.set_reg(0, index);
    frame.pc = boot.gear2.entry;
    frame.pstate = PSTATE_EL0_MASKED;
    frame.sp_el0 =
        gear2::STACKS.wrapping_add(index.wrapping_add(1).wrapping_mul(gear2::STACK_STRIDE));
    world.start_gear2(frame);
}
