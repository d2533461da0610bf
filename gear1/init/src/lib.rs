//! Gear1's *init*: from the board's device tree, the manifest and the archive to a runtime that
//! can be entered (`docs/design.md`).
//!
//! Owns the choice of who gets which memory, the first contents of all of it, and every refusal to
//! start. It may allocate, format and panic: it runs once, before any guest, and a panic stops the
//! machine. What touches hardware is `gear1_arch::boot`'s; everything here runs on the host too.
//!
//! Must not: be needed after the hand-over. The runtime wipes it.
//!
//! Way of a boot through the modules: `fdt` reads the board; `prepare` reads the manifest and leads
//! the rest; `devices` and `passthrough` find owners of devices; `layout` gives out memory; `el2`,
//! `gear2` and `vm` load images; `device_tree` and `guest_dt` finish the guests' device trees;
//! `partition` checks all mappings and builds every stage 2.
//!
//! Requirements: G1-BOOT-008.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod board_watchdog;
pub mod dax;
pub mod device_tree;
pub mod device_vm;
pub mod devices;
pub mod doorbells;
pub mod el2;
pub mod fdt;
pub mod flat;
pub mod gear2;
pub mod guest_dt;
pub mod layout;
pub mod linux;
pub mod partition;
pub mod passthrough;
pub mod prepare;
pub mod refusal;
pub mod region;
pub mod shared;
pub mod smmu;
pub mod sve;
pub mod table_memory;
pub mod trace;
pub mod vm;

#[cfg(test)]
mod testing;
#[cfg(test)]
#[path = "../../../manifests/src/testing.rs"]
mod trees;
