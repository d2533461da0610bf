//! Choice of the physical GIC that this image is built for.
//!
//! Requirements: G1-GIC-006.

#[cfg(feature = "gicv2")]
pub(crate) use gear1_arch::gicv2::GicV2 as Gic;
#[cfg(not(feature = "gicv2"))]
pub(crate) use gear1_arch::gicv3::GicV3 as Gic;

pub(crate) use gear1_arch::gic::{HYP_TIMER, HostGic, KICK, MAINTENANCE, VIRTUAL_TIMER};

/// The list registers of this CPU.
pub(crate) type ListRegisters = <Gic as HostGic>::ListRegisters;
