//! Registers of an IPMMU's units, where init has mapped them.
//!
//! Requirements: G1-DMA-002, G1-DMA-003.

use gear1_abi::layout::el2;
use gear1_core::smmu::event::Event;
use gear1_core::smmu::host::HostSmmu;
use gear1_core::smmu::ipmmu::flush::{Flushes, Ticket};
use gear1_core::smmu::ipmmu::{self, fault};

use crate::handover::Handover;
use crate::mmio::Mmio;

/// The IPMMU that init has started. Which stage 2 a context has is as init left it: nothing here
/// writes an address.
#[derive(Debug)]
pub struct Ipmmu {
    registers: Mmio,
    boot: Handover,
}

impl Ipmmu {
    /// Names the units' registers, which init has handed over.
    pub(super) fn new(boot: Handover) -> Self {
        // SAFETY: init maps so many bytes of registers here for good, and checks that no VM has
        // them. What the runtime calls writes no register with an address of memory: IMTTLBR0 and
        // IMTTUBR0 are written by `ipmmu::seize` and `ipmmu::start` alone, which init calls.
        let registers = unsafe { Mmio::new(el2::SMMU, boot.info().smmu.size) };
        Self { registers, boot }
    }

    /// Returns how many units there are.
    fn units(&self) -> u32 {
        self.boot.info().smmu.units
    }

    /// Returns the number of the VM with this VMID.
    fn vm_of(&self, vmid: u16) -> Option<u32> {
        let mut vms = self.boot.info().vms.iter();
        // Bound: MAX_VMS (16).
        vms.position(|vm| vm.vmid == vmid).map(|index| index as u32)
    }
}

impl HostSmmu for Ipmmu {
    type Queue = Flushes;
    type Ticket = Ticket;
    const EMPTY: Flushes = Flushes::new();

    fn switch(&mut self, vmid: u16, opens: bool) {
        if let Some(vm) = self.vm_of(vmid) {
            let streams = &self.boot.info().smmu.streams;
            ipmmu::switch(&mut self.registers, streams, vm, opens);
        }
    }

    fn forget(&mut self, queue: &mut Flushes, vmid: u16, _has_switched: bool) -> Option<Ticket> {
        let streams = &self.boot.info().smmu.streams;
        let context = ipmmu::context_of(streams, self.vm_of(vmid)?)?;
        let units = self.units();
        queue.begin(&mut self.registers, units, context)
    }

    fn is_done(&mut self, queue: &mut Flushes, ticket: Ticket) -> bool {
        let units = self.units();
        queue.is_done(&mut self.registers, units, ticket)
    }

    fn take_event(&mut self, _is_owned: impl Fn(u32) -> bool) -> Option<Event> {
        let own = self.boot.info().smmu.banks;
        fault::take(&mut self.registers, own)
    }

    fn shut(&mut self) {
        let units = self.units();
        ipmmu::shut(&mut self.registers, units);
    }
}
