//! Doorbells between VMs: a ring becomes an interrupt of the receiver's virtual GIC, or of the
//! machine's GIC if the receiver has that.
//!
//! The receiver may stop, or be loaded anew, at the same moment: a ring that comes too late is lost
//! with its life. A ring that the manifest's interval holds back outlives the sender.
//!
//! Lock order: the receiver's VM lock alone; none for a VM with pass-through, whose CPUs a ring
//! must not delay.
//!
//! Requirements: G1-CHN-004, G1-CHN-005, G1-CHN-006, G1-CHN-007.

use gear1_abi::boot::{BootDoorbell, MAX_DOORBELLS, RealTime};
use gear1_abi::id::VmId;
use gear1_arch::{barrier, cpu as this_cpu};
use gear1_core::doorbell::{Doorbell, Ring};

use super::pulse;
use crate::gic::{Gic, HostGic};
use crate::machine::{self, Cpu, Machine};

static DOORBELLS: [Doorbell; MAX_DOORBELLS] = [const { Doorbell::new() }; MAX_DOORBELLS];

/// Rings a doorbell of the hand-over. Returns the time at which the caller's CPU has to
/// [`expire`] it, if the interrupt has to wait.
pub(crate) fn ring(cpu: &Cpu, machine: &Machine, number: usize) -> Option<u64> {
    let (boot, state) = (machine.boot.doorbells.get(number)?, DOORBELLS.get(number)?);
    let ring = state.ring(this_cpu::now(), boot.interval);
    follow(cpu, machine, boot, ring)
}

/// Ends the wait of a doorbell that this CPU holds. Returns the time at which to call again, if the
/// wait is not over.
pub(crate) fn expire(cpu: &Cpu, machine: &Machine, number: usize) -> Option<u64> {
    let (boot, state) = (machine.boot.doorbells.get(number)?, DOORBELLS.get(number)?);
    let ring = state.expire(this_cpu::now(), boot.interval);
    follow(cpu, machine, boot, ring)
}

/// Does what the doorbell's state asks for.
fn follow(cpu: &Cpu, machine: &Machine, boot: &BootDoorbell, ring: Ring) -> Option<u64> {
    match ring {
        Ring::Deliver => deliver(cpu, machine, boot),
        Ring::Wait(due) => return Some(due),
        Ring::Joined => {}
    }
    None
}

/// Interrupts the receiver, if it runs.
fn deliver(cpu: &Cpu, machine: &Machine, boot: &BootDoorbell) {
    let Some(vm) = VmId::from_reg(u64::from(boot.vm)) else {
        return;
    };
    if machine::boot_vm(machine, vm).real_time != RealTime::PassThrough {
        // planted: a doorbell interrupts no ordinary VM
        pulse(cpu, machine, boot.vm, boot.intid);
    } else if machine::running(vm).runs() {
        // The receiver sees what the sender has stored before its ring.
        barrier::dsb_sy();
        // planted: a doorbell into a VM with pass-through is another interrupt
        Gic::pend_spi(boot.intid);
    }
}
