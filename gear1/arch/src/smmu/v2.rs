//! Registers of an SMMUv2, where init has mapped them.
//!
//! Requirements: G1-DMA-002, G1-DMA-003.

use gear1_abi::layout::el2;
use gear1_core::smmu::event::Event;
use gear1_core::smmu::host::HostSmmu;
use gear1_core::smmu::v2::{self, fault};

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

/// An SMMUv2 has no queue: whoever asks waits for all that anybody has told it.
impl HostSmmu for SmmuV2 {
    type Queue = ();
    type Ticket = ();
    const EMPTY: () = ();

    fn switch(&mut self, vmid: u16, opens: bool) {
        v2::switch(&mut self.registers, vmid, opens);
    }

    fn forget(&mut self, _queue: &mut (), vmid: u16, _has_switched: bool) -> Option<()> {
        // One synchronization at a time: what becomes of a second is not for this driver to know.
        v2::is_done(&self.registers).then(|| v2::forget(&mut self.registers, vmid))
    }

    fn is_done(&mut self, _queue: &mut (), _ticket: ()) -> bool {
        v2::is_done(&self.registers)
    }

    fn take_event(&mut self, is_owned: impl Fn(u32) -> bool) -> Option<Event> {
        fault::take(&mut self.registers, self.banks, is_owned)
    }

    fn shut(&mut self) {
        v2::shut(&mut self.registers);
    }
}
