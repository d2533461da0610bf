//! Accesses of a real-time VM to the physical interrupt controller, masked to the VM's own
//! interrupts.

use gear1_abi::boot::IrqOwner;
use gear1_abi::exit::ExitReason;
use gear1_abi::id::CpuIndex;
use gear1_arch::exception;
use gear1_core::monitors::PMU_INTID;
use gear1_core::syndrome::DataAbort;
use gear1_core::vgic::passthrough::{self, Behind, Fields};
use gear1_core::vgic::{GicVersion, IntId, Kicks, VcpuIndex};

use crate::gic::{Gic, HostGic};
use crate::machine::{self, Guest, Loaded, Machine};
use crate::vcpu::Handled;
use crate::vgic::GicFrame;

/// The version of the machine's interrupt controller.
const VERSION: GicVersion = if Gic::VERSION == 2 {
    GicVersion::V2
} else {
    GicVersion::V3
};

/// Carries out an access to the distributor or to a redistributor of the VM's.
pub(crate) fn access(guest: Guest<'_>, abort: DataAbort, frame: GicFrame, offset: u64) -> Handled {
    let (loaded, machine) = (guest.loaded, guest.loaded.machine);
    let size = abort.size_log2();
    let (behind, owner) = match frame {
        GicFrame::Distributor => (
            passthrough::distributor(VERSION, offset, size),
            loaded.index,
        ),
        GicFrame::Redistributor(target) => (passthrough::redistributor(offset, size), target),
        // The VM's whole CPU interface is mapped.
        GicFrame::Deactivate => (Behind::Nothing, loaded.index),
    };
    exception::skip_instruction();
    let is_sgi = behind == Behind::SendSgi;
    let reason = if is_sgi {
        ExitReason::Sgi
    } else {
        ExitReason::MmioGic
    };
    loaded.shared.count(reason);
    let access = Access {
        machine,
        loaded,
        // planted: no longer: its redistributors are its own CPUs'
        cpu: owner_cpu(machine, loaded, owner).unwrap_or(guest.cpu.index()),
    };
    if abort.is_write() {
        let value = abort.truncate(guest.cpu.frame().reg(abort.register()));
        match behind {
            Behind::Nothing => {}
            Behind::Virtual => access.write_virtual(frame, offset, size, value),
            Behind::Physical(fields) => access.write_physical(&fields, value as u32),
            Behind::SendSgi => {
                let index = loaded.index;
                let count = machine::boot_vm(machine, loaded.vm).vcpu_count;
                let (targets, sgi) = passthrough::addressed_v2(count as u8, index, value as u32);
                access.send(targets, sgi);
            }
        }
        return Handled::Same;
    }
    let value = match behind {
        Behind::Nothing | Behind::SendSgi => 0,
        Behind::Virtual => access.read_virtual(frame, offset, size),
        Behind::Physical(fields) => {
            let mask = access.mask(&fields);
            u64::from(Gic::read_own(access.cpu, &fields) & mask)
        }
    };
    guest
        .cpu
        .frame()
        .set_reg(abort.register(), abort.extend(value));
    Handled::with_register(abort.register())
}

/// Replays a write to ICC_SGI1R_EL1 on the VM's own CPUs.
pub(crate) fn sgi1r(machine: &Machine, loaded: &Loaded, value: u64) {
    let index = loaded.index;
    let count = machine::boot_vm(machine, loaded.vm).vcpu_count;
    let (targets, sgi) = passthrough::addressed(count as u8, index, value);
    send(machine, loaded, targets, sgi);
}

fn owner_cpu(machine: &Machine, loaded: &Loaded, index: VcpuIndex) -> Option<CpuIndex> {
    machine::vcpu_of(machine, loaded.vm, index.index()).map(|id| machine::vcpu(id).owner_cpu())
}

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

/// An access: the vCPU that makes it, and the CPU whose private interrupts are meant.
struct Access<'a> {
    machine: &'a Machine,
    loaded: &'a Loaded,
    cpu: CpuIndex,
}

impl Access<'_> {
    /// G1-RT-003: of the fields, those of the VM's own interrupts.
    fn mask(&self, fields: &Fields) -> u32 {
        let owner = IrqOwner::vm(self.loaded.vm.index());
        let owners = &self.machine.boot.irq_owner;
        let has_pmu = machine::boot_vm(self.machine, self.loaded.vm).pmu;
        fields.mask(|intid| {
            owners.get(intid as usize).copied() == owner || has_pmu && intid == PMU_INTID
        })
    }

    fn write_physical(&self, fields: &Fields, value: u32) {
        if fields.writable {
            Gic::write_own(self.cpu, fields, value, self.mask(fields));
        }
    }

    fn read_virtual(&self, frame: GicFrame, offset: u64, size: u8) -> u64 {
        let vm = machine::lock_vm(self.loaded.vm);
        match frame {
            GicFrame::Distributor => {
                let index = self.loaded.index;
                vm.gic.distributor_read(index, offset, size)
            }
            GicFrame::Redistributor(target) => vm.gic.redistributor_read(target, offset, size),
            GicFrame::Deactivate => 0,
        }
    }

    /// No kick is needed: no virtual interrupt is ever pending.
    fn write_virtual(&self, frame: GicFrame, offset: u64, size: u8, value: u64) {
        let mut vm = machine::lock_vm(self.loaded.vm);
        let _nobody = match frame {
            GicFrame::Distributor => {
                let index = self.loaded.index;
                vm.gic.distributor_write(index, offset, size, value)
            }
            GicFrame::Redistributor(target) => {
                vm.gic.redistributor_write(target, offset, size, value)
            }
            GicFrame::Deactivate => return,
        };
        let routed = passthrough::routed(VERSION, offset, size);
        let (first, count) = match (frame, routed) {
            (GicFrame::Distributor, Some(routed)) => routed,
            (GicFrame::Distributor | GicFrame::Redistributor(_) | GicFrame::Deactivate, _) => {
                return;
            }
        };
        // Bound: 4 fields of a word.
        for intid in first..first.wrapping_add(count) {
            let target = IntId::new(intid).and_then(|intid| vm.gic.route(intid));
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

    fn send(&self, targets: Kicks, sgi: u32) {
        send(self.machine, self.loaded, targets, sgi);
    }
}
