//! Registers that carry a call's or an event's values, X0 first.
//!
//! Requirements: G1-RUN-005.

/// X0 to X7 at the boundary between Gear1 and Gear2.
pub type Regs = [u64; 8];

/// Value of a vCPU register that names no vCPU.
pub const NO_VCPU: u64 = u64::MAX;
/// Deadline that never comes.
pub const NO_DEADLINE: u64 = u64::MAX;
