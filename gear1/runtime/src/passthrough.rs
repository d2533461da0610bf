//! Accesses of a real-time VM to the physical interrupt controller, masked to the VM's own
//! interrupts.
//!
//! The CPU interface is the guest's without a trap. Distributor and redistributors trap, as their
//! words hold the bits of other owners' interrupts: those bits read as zero and keep their values.
//! Registers that describe the controller come from the VM's virtual GIC, in which no interrupt is
//! ever pending.

use gear1_abi::boot::IrqOwner;
use gear1_abi::exit::ExitReason;
use gear1_abi::id::CpuIndex;
use gear1_arch::entry::Resume;
use gear1_arch::exception;
use gear1_core::monitors::PMU_INTID;
use gear1_core::syndrome::DataAbort;
use gear1_core::vgic::passthrough::{self, Behind, Fields};
use gear1_core::vgic::{GicVersion, IntId, Kicks, VcpuIndex, VmGic};

use crate::gic::{Gic, HostGic};
use crate::machine::{self, Guest, Loaded, Machine};
use crate::vgic::GicFrame;

/// The version of the machine's interrupt controller.
const VERSION: GicVersion = if Gic::VERSION == 2 {
    GicVersion::V2
} else {
    GicVersion::V3
};

/// Carries out an access to the distributor or to a redistributor of the VM's.
pub(crate) fn access(guest: Guest<'_>, abort: DataAbort, frame: GicFrame, offset: u64) -> Resume {
    let loaded = guest.loaded;
    let access = Access::new(guest.cpu.index(), loaded, frame, offset, abort.size_log2());
    exception::skip_instruction();
    loaded.shared.count(ExitReason::MmioGic);
    let register = abort.register();
    if abort.is_write() {
        let value = abort.truncate(guest.cpu.frame().reg(register));
        access.write(value);
        return Resume::Same;
    }
    let value = access.read();
    guest.cpu.frame().set_reg(register, abort.extend(value));
    Resume::with_register(register)
}

/// Replays a write to ICC_SGI1R_EL1 on the VM's own CPUs.
pub(crate) fn sgi1r(machine: &Machine, loaded: &Loaded, value: u64) {
    let index = loaded.index;
    let count = machine::boot_vm(machine, loaded.vm).vcpu_count;
    let (targets, sgi) = passthrough::addressed(count as u8, index, value);
    send(machine, loaded, targets, sgi);
}

/// Returns the CPU of one of the VM's vCPUs. A real-time VM's vCPUs never move.
fn owner_cpu(machine: &Machine, loaded: &Loaded, index: VcpuIndex) -> Option<CpuIndex> {
    machine::vcpu_of(machine, loaded.vm, index.index()).map(|id| machine::vcpu(id).owner_cpu())
}

/// Sends an SGI to the CPUs of the VM's vCPUs among the targets. An SGI needs no filter by number:
/// on these CPUs all SGIs are the guest's (G1-RT-002).
fn send(machine: &Machine, loaded: &Loaded, targets: Kicks, sgi: u32) {
    // Bound: 8 vCPUs.
    for target in targets.iter() {
        // planted: no longer: its SGIs reach its own CPUs only
        if let Some(target_cpu) = owner_cpu(machine, loaded, target) {
            let other = target_cpu.select(&machine.boot.cpus);
            Gic::send_sgi(Gic::sgi(target_cpu, other.mpidr, sgi));
        }
    }
}

/// An access: the vCPU that makes it, the registers that it reaches, and what is behind them.
struct Access<'a> {
    machine: &'a Machine,
    loaded: &'a Loaded,
    frame: GicFrame,
    /// Offset in the frame, in bytes.
    offset: u64,
    /// Base-2 logarithm of the access's size in bytes.
    size: u8,
    behind: Behind,
    /// CPU whose private interrupts are meant.
    cpu: CpuIndex,
}

impl<'a> Access<'a> {
    /// Decodes an access that the vCPU loaded on `cpu` makes.
    fn new(cpu: CpuIndex, loaded: &'a Loaded, frame: GicFrame, offset: u64, size: u8) -> Self {
        let machine = loaded.machine;
        let (behind, owner) = match frame {
            GicFrame::Distributor => (
                passthrough::distributor(VERSION, offset, size),
                loaded.index,
            ),
            GicFrame::Redistributor(target) => (passthrough::redistributor(offset, size), target),
            // The VM's whole CPU interface is mapped.
            GicFrame::Deactivate => (Behind::Nothing, loaded.index),
        };
        Self {
            machine,
            loaded,
            frame,
            offset,
            size,
            behind,
            // planted: no longer: its redistributors are its own CPUs'
            cpu: owner_cpu(machine, loaded, owner).unwrap_or(cpu),
        }
    }

    /// Carries out a store of `value`.
    fn write(&self, value: u64) {
        match self.behind {
            Behind::Nothing => {}
            Behind::Virtual => self.write_virtual(value),
            Behind::Physical(fields) => self.write_physical(&fields, value as u32),
            Behind::SendSgi => {
                let index = self.loaded.index;
                let count = machine::boot_vm(self.machine, self.loaded.vm).vcpu_count;
                let (targets, sgi) = passthrough::addressed_v2(count as u8, index, value as u32);
                send(self.machine, self.loaded, targets, sgi);
            }
        }
    }

    /// Carries out a load, and returns the value.
    fn read(&self) -> u64 {
        match self.behind {
            Behind::Nothing | Behind::SendSgi => 0,
            Behind::Virtual => self.read_virtual(),
            Behind::Physical(fields) => {
                let mask = self.mask(&fields);
                // SAFETY: an owner CPU of the VM's, or the calling CPU: of the hand-over.
                let value = unsafe { Gic::read_own(self.cpu, &fields) };
                u64::from(value & mask)
            }
        }
    }

    /// G1-RT-003: of the fields, those of the VM's own interrupts.
    fn mask(&self, fields: &Fields) -> u32 {
        let owner = IrqOwner::vm(self.loaded.vm.index());
        let owners = &self.machine.boot.irq_owner;
        let has_pmu = machine::boot_vm(self.machine, self.loaded.vm).pmu;
        fields.mask(|intid| {
            owners.get(intid as usize).copied() == owner || has_pmu && intid == PMU_INTID
        })
    }

    /// Writes the physical fields that are the VM's. The driver leaves the others as they are: an
    /// owner of theirs may change them at the same moment from another CPU.
    fn write_physical(&self, fields: &Fields, value: u32) {
        if fields.writable {
            // SAFETY: as in `read`.
            unsafe { Gic::write_own(self.cpu, fields, value, self.mask(fields)) };
        }
    }

    /// Reads a register that the virtual GIC answers.
    fn read_virtual(&self) -> u64 {
        let (index, offset, size) = (self.loaded.index, self.offset, self.size);
        let vm = machine::lock_vm(self.loaded.vm);
        match self.frame {
            GicFrame::Distributor => vm.gic.distributor_read(index, offset, size),
            GicFrame::Redistributor(target) => vm.gic.redistributor_read(target, offset, size),
            GicFrame::Deactivate => 0,
        }
    }

    /// Writes a register of the virtual GIC. No kick is needed: no virtual interrupt is ever
    /// pending.
    fn write_virtual(&self, value: u64) {
        let (index, offset, size) = (self.loaded.index, self.offset, self.size);
        let mut vm = machine::lock_vm(self.loaded.vm);
        match self.frame {
            GicFrame::Distributor => {
                let _nobody = vm.gic.distributor_write(index, offset, size, value);
                self.follow_routes(&vm.gic);
            }
            GicFrame::Redistributor(target) => {
                let _nobody = vm.gic.redistributor_write(target, offset, size, value);
            }
            GicFrame::Deactivate => {}
        }
    }

    /// Gives the physical GIC the routes that a write to the virtual distributor may have changed.
    /// The VM's lock is held, so two vCPUs' routes reach the physical GIC in the order in which the
    /// virtual one took them.
    fn follow_routes(&self, gic: &VmGic) {
        let Some((first, count)) = passthrough::routed(VERSION, self.offset, self.size) else {
            return;
        };
        // Bound: 4 fields of a word.
        for intid in first..first.wrapping_add(count) {
            let target = IntId::new(intid).and_then(|intid| gic.route(intid));
            self.route(intid, target);
        }
    }

    /// G1-RT-004: a route leads to one of the VM's own CPUs, or stays as it was.
    fn route(&self, intid: u32, target: Option<VcpuIndex>) {
        let owners = &self.machine.boot.irq_owner;
        let own = owners.get(intid as usize).copied() == IrqOwner::vm(self.loaded.vm.index());
        if own
            && let Some(target) = target
            && let Some(target_cpu) = owner_cpu(self.machine, self.loaded, target)
        {
            let cpu = target_cpu.select(&self.machine.boot.cpus);
            Gic::route_spi(target_cpu, cpu.mpidr, intid);
        }
    }
}
