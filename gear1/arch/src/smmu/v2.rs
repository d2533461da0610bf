//! Registers of an SMMUv2, where init has mapped them.
//!
//! Requirements: G1-DMA-002, G1-DMA-003.

use gear1_abi::layout::el2;
use gear1_core::smmu::event::Event;
use gear1_core::smmu::host::HostSmmu;
use gear1_core::smmu::v2::{self, Device, fault};

use crate::barrier;
use crate::handover::Handover;
use crate::mmio::Mmio;

/// The SMMUv2 that init has started. Which stage 2 a context bank has is as init left it: nothing
/// here writes an address.
#[derive(Debug)]
pub struct SmmuV2 {
    registers: Mmio,
    /// Context banks in use.
    banks: u32,
}

impl SmmuV2 {
    /// Names the SMMU's registers, if init has handed over one.
    #[must_use]
    pub fn of(boot: Handover) -> Option<Self> {
        let smmu = &boot.info().smmu;
        if smmu.registers == 0 {
            return None;
        }
        // SAFETY: init maps so many bytes of registers here for good, and checks that no VM has
        // them. What the runtime calls writes no register with an address of memory: SMMU_CBn_TTBR0
        // is written by `v2::start` alone, which init calls.
        let registers = unsafe { Mmio::new(el2::SMMU, smmu.size) };
        Some(Self {
            registers,
            banks: smmu.banks,
        })
    }
}

impl Device for SmmuV2 {
    fn read32(&self, offset: usize) -> u32 {
        self.registers.read32(offset)
    }

    fn write32(&mut self, offset: usize, value: u32) {
        self.registers.write32(offset, value);
    }

    fn order(&self) {
        barrier::dsb_sy();
    }
}

/// An SMMUv2 has no queue: whoever asks waits for all that anybody has told it.
impl HostSmmu for SmmuV2 {
    type Queue = ();
    type Ticket = ();
    const EMPTY: () = ();

    fn switch(&mut self, vmid: u16, opens: bool) {
        v2::switch(self, vmid, opens);
    }

    fn forget(&mut self, _queue: &mut (), vmid: u16, _has_switched: bool) -> Option<()> {
        // One synchronization at a time: what becomes of a second is not for this driver to know.
        v2::is_done(self).then(|| v2::forget(self, vmid))
    }

    fn is_done(&mut self, _queue: &mut (), _ticket: ()) -> bool {
        v2::is_done(self)
    }

    fn take_event(&mut self, is_owned: impl Fn(u32) -> bool) -> Option<Event> {
        fault::take(self, self.banks, is_owned)
    }

    fn shut(&mut self) {
        v2::shut(self);
    }
}
