//! The SMMU of a board with a GICv2: an SMMUv2, or an IPMMU. Which one there is tells init.
//!
//! Requirements: G1-DMA-002, G1-DMA-003.

use gear1_core::smmu::event::Event;
use gear1_core::smmu::host::HostSmmu;
use gear1_core::smmu::ipmmu::flush::{Flushes, Ticket};
use gear1_core::smmu::v2::Device;

use super::ipmmu::Ipmmu;
use super::v2::SmmuV2;
use crate::barrier;
use crate::handover::Handover;
use crate::mmio::Mmio;

/// Both drivers use their registers as they are mapped.
impl Device for Mmio {
    fn read32(&self, offset: usize) -> u32 {
        Mmio::read32(*self, offset)
    }

    fn write32(&mut self, offset: usize, value: u32) {
        Mmio::write32(*self, offset, value);
    }

    fn order(&self) {
        barrier::dsb_sy();
    }
}

/// The one that init has started.
#[derive(Debug)]
pub enum BesideGicV2 {
    /// An SMMUv2.
    V2(SmmuV2),
    /// An IPMMU.
    Ipmmu(Ipmmu),
}

impl BesideGicV2 {
    /// Names the registers, if init has handed over any.
    #[must_use]
    pub fn of(boot: Handover) -> Option<Self> {
        if boot.info().smmu.units != 0 {
            return Some(Self::Ipmmu(Ipmmu::new(boot)));
        }
        SmmuV2::of(boot).map(Self::V2)
    }
}

/// An SMMUv2 has neither queue nor tickets: its tickets say nothing. An `Option` of them would have
/// the table of VMs begin as something else than zeroes, which an image has no bytes of.
impl HostSmmu for BesideGicV2 {
    type Queue = Flushes;
    type Ticket = Ticket;
    const EMPTY: Flushes = Flushes::new();

    fn switch(&mut self, vmid: u16, opens: bool) {
        match self {
            Self::V2(v2) => v2.switch(vmid, opens),
            Self::Ipmmu(ipmmu) => ipmmu.switch(vmid, opens),
        }
    }

    fn forget(&mut self, queue: &mut Flushes, vmid: u16, has_switched: bool) -> Option<Ticket> {
        match self {
            Self::V2(v2) => {
                let told = v2.forget(&mut (), vmid, has_switched);
                told.map(|()| Ticket::default())
            }
            Self::Ipmmu(ipmmu) => ipmmu.forget(queue, vmid, has_switched),
        }
    }

    fn is_done(&mut self, queue: &mut Flushes, ticket: Ticket) -> bool {
        match self {
            Self::V2(v2) => HostSmmu::is_done(v2, &mut (), ()),
            Self::Ipmmu(ipmmu) => ipmmu.is_done(queue, ticket),
        }
    }

    fn take_event(&mut self, is_owned: impl Fn(u32) -> bool) -> Option<Event> {
        match self {
            Self::V2(v2) => v2.take_event(is_owned),
            Self::Ipmmu(ipmmu) => ipmmu.take_event(is_owned),
        }
    }

    fn shut(&mut self) {
        match self {
            Self::V2(v2) => v2.shut(),
            Self::Ipmmu(ipmmu) => ipmmu.shut(),
        }
    }
}
