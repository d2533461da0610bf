//! Pointer authentication (FEAT_PAuth, Arm ARM D8.10) of VMs that the manifest gives it to: the keys,
//! which move with the vCPU. [`idregs`](crate::idregs) has the fields that show the feature.
//!
//! Requirements: G1-CPU-015.

/// Bit of [`VcpuContext::features`](crate::context::VcpuContext::features): the VM has pointer
/// authentication. Beside it there are those of [`monitors`](crate::monitors).
pub const POINTER_AUTH: u64 = 4;

/// The low and the high half of the keys A and B of instructions, A and B of data, and of the
/// generic one, in the order of their encodings.
pub type Keys = [u64; 10];
