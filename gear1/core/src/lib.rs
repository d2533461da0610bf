//! Gear1's policy-free logic: what can be said without touching hardware.
//!
//! Owns: decoding of syndromes, the CPU a guest is shown, PSCI, the virtual
//! GIC, stage-2 tables, vCPU and VM state, the log ring. Everything here is
//! safe code that also builds, and is tested, on the host.
//!
//! Must not: allocate, recurse, loop without a bound the reader sees, or hold a
//! path that can panic; the runtime image links it, and its linker proves it.
//!
//! Requirements: G1-RUN-001.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::wildcard_enum_match_arm,
        clippy::float_arithmetic
    )
)]

#[cfg(test)]
extern crate std;

pub mod addr;
pub mod address_filter;
mod atomic;
pub mod board_watchdog;
pub mod context;
pub mod doorbell;
pub mod fault;
pub mod ffa;
pub mod guest_memory;
pub mod heartbeat;
pub mod icache;
pub mod idregs;
pub mod lifecycle;
pub mod log;
pub mod mitigations;
pub mod monitors;
pub mod ownership;
pub mod pci;
pub mod physical;
pub mod pl061;
pub mod pointer_auth;
pub mod psci;
pub mod residents;
pub mod seed;
pub mod set_way;
pub mod smmu;
pub mod stage1;
pub mod stage2;
pub mod supervise;
pub mod sve;
pub mod syndrome;
pub mod table;
pub mod timer;
pub mod trng;
pub mod vcpu;
pub mod vgic;
