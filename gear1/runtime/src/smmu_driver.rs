//! Choice of the SMMU that this image drives: an SMMUv2 or an IPMMU beside a GICv2, and an SMMUv3
//! beside a GICv3. Boards have them so.
//!
//! Requirements: G1-DMA-002.

#[cfg(not(feature = "gicv2"))]
pub(crate) use gear1_arch::smmu::SmmuV3 as Smmu;
#[cfg(feature = "gicv2")]
pub(crate) use gear1_arch::smmu::beside_gicv2::BesideGicV2 as Smmu;
use gear1_core::smmu::host;

pub(crate) use gear1_core::smmu::host::HostSmmu;

/// What all users of the SMMU know together.
pub(crate) type Queue = <Smmu as HostSmmu>::Queue;

/// Whether a VM's devices reach its memory.
pub(crate) type Streams = host::Streams<<Smmu as HostSmmu>::Ticket>;
