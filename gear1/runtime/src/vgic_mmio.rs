//! Accesses of guests to the registers of their virtual GIC that a data abort brings here.
//!
//! The instruction is skipped before the access is carried out: an access that wakes a vCPU may end
//! in Gear2, and the guest continues behind the instruction then as well.
//!
//! Requirements: G1-GIC-002, G1-GIC-011, G1-GIC-012.

use gear1_abi::boot::RealTime;
use gear1_abi::exit::ExitReason;
use gear1_arch::entry::Resume;
use gear1_arch::exception;
use gear1_core::syndrome::DataAbort;
use gear1_core::vgic::{Kicks, SGIR, shows_list_registers};

use crate::gic::{Gic, HostGic};
use crate::machine::{Cpu, Guest, Loaded, Machine};
use crate::vgic::{self, GicFrame};
use crate::{passthrough, vcpu};

/// Size of a register, log2 of its bytes.
const WORD: u8 = 2;
/// INTID in GICC_DIR.
const GICC_DIR_INTID: u32 = 0x3ff;

/// Emulates an access to the virtual GIC.
#[inline]
pub(crate) fn access(
    mut guest: Guest<'_>,
    abort: DataAbort,
    frame: GicFrame,
    offset: u64,
) -> Resume {
    if guest.cpu.data.real_time == RealTime::PassThrough {
        return passthrough::access(guest.reborrow(), abort, frame, offset);
    }
    let size = abort.size_log2();
    let register = abort.register();
    exception::skip_instruction();
    if abort.is_write() {
        let value = abort.truncate(guest.cpu.frame().reg(register));
        return write(guest.reborrow(), frame, offset, size, value);
    }
    let loaded = guest.loaded;
    loaded.shared.count(ExitReason::MmioGic);
    let value = read(guest.cpu, loaded, frame, offset, size);
    guest.cpu.frame().set_reg(register, abort.extend(value));
    let resume = Resume::with_register(register);
    if shows_list_registers(offset) {
        return vcpu::woke_somebody_or(guest.reborrow(), ExitReason::MmioGic, resume);
    }
    resume
}

/// Returns the value of a register. Pending and active bits of the loaded vCPU's interrupts are in
/// its list registers, so the virtual GIC takes them over before a register that shows them is
/// read.
#[inline(always)]
fn read(cpu: &Cpu, loaded: &Loaded, frame: GicFrame, offset: u64, size: u8) -> u64 {
    if shows_list_registers(offset) {
        sync_from_hw(cpu, loaded.machine, loaded, frame);
    }
    loaded.read_gic(|gic, index| match frame {
        GicFrame::Distributor => gic.distributor_read(index, offset, size),
        GicFrame::Redistributor(target) => gic.redistributor_read(target, offset, size),
        GicFrame::Deactivate => 0,
    })
}

/// Takes over what the access may show: the list registers, the timer's line, and the posted SGIs
/// of the vCPU whose redistributor, or own registers in a GICv2's distributor, are accessed.
#[inline(never)]
fn sync_from_hw(cpu: &Cpu, machine: &Machine, loaded: &Loaded, frame: GicFrame) {
    vgic::change_gic(cpu, machine, loaded, |gic, index, lrs| {
        let seen = gic.sync(index, lrs).union(vgic::sample_timer(gic, index));
        match frame {
            GicFrame::Redistributor(target) => {
                seen.union(vgic::drain_posted(machine, loaded, gic, target))
            }
            // The registers that show SGIs are the vCPU's own ones there.
            GicFrame::Distributor if Gic::VERSION == 2 => {
                seen.union(vgic::drain_posted(machine, loaded, gic, index))
            }
            GicFrame::Distributor | GicFrame::Deactivate => seen,
        }
    });
}

/// Carries out a store. The timer's line is sampled with every store, because the store may enable
/// or end an interrupt whose line went low without an exit.
#[inline(never)]
fn write(mut guest: Guest<'_>, frame: GicFrame, offset: u64, size: u8, value: u64) -> Resume {
    let (loaded, machine) = (guest.loaded, guest.loaded.machine);
    loaded.shared.count(ExitReason::MmioGic);
    if Gic::VERSION == 2
        && let (GicFrame::Distributor, SGIR, WORD) = (frame, offset, size)
    {
        vgic::send_sgi(guest.cpu, machine, loaded, value);
        return vcpu::woke_somebody(guest.reborrow(), ExitReason::MmioGic);
    }
    if let (GicFrame::Deactivate, 0) = (frame, offset) {
        vgic::deactivate(guest.cpu, machine, loaded, value as u32 & GICC_DIR_INTID);
    }
    if shows_list_registers(offset) {
        sync_from_hw(guest.cpu, machine, loaded, frame);
    }
    vgic::change_gic(guest.cpu, machine, loaded, |gic, index, _| {
        vgic::sample_timer(gic, index).union(match frame {
            GicFrame::Distributor => gic.distributor_write(index, offset, size, value),
            GicFrame::Redistributor(target) => gic.redistributor_write(target, offset, size, value),
            GicFrame::Deactivate => Kicks::NONE,
        })
    });
    vcpu::woke_somebody(guest.reborrow(), ExitReason::MmioGic)
}
