//! Hardware behind Rust types: all raw pointers and all assembly of Gear1.
//!
//! Owns: system registers, exception entry and return, per-CPU state, the world
//! switch's register moves, physical GIC and list registers, timers, TLB and
//! cache maintenance, windows onto guest memory, firmware calls, the UART of a
//! halt.
//!
//! A safe function here cannot break memory safety, nor give a context memory, a device or a
//! privilege that is not its own, whatever its arguments: physical addresses come from
//! [`handover::Handover`], the CPU from [`this_cpu::LocalCpu`]. A function that needs more than its
//! types prove is `unsafe`, and its caller proves the rest. Which interrupts a context gets, and
//! which values of registers beside those of FP, is up to the image: no type here stands for them.
//!
//! Must not: decide. What happens after an exception is the image's, by way of
//! the functions it defines for [`entry`].
//!
//! Requirements: G1-RUN-003.
#![no_std]

#[cfg(feature = "boot")]
extern crate alloc;

#[cfg(target_arch = "aarch64")]
pub mod barrier;
#[cfg(target_arch = "aarch64")]
pub mod board_watchdog;
#[cfg(all(target_arch = "aarch64", feature = "boot"))]
pub mod boot;
mod bulk;
#[cfg(target_arch = "aarch64")]
pub mod cache;
#[cfg(all(target_arch = "aarch64", feature = "check-locks"))]
pub mod confine;
#[cfg(target_arch = "aarch64")]
pub mod cpu;
#[cfg(target_arch = "aarch64")]
pub mod el1;
#[cfg(target_arch = "aarch64")]
pub mod entry;
#[cfg(target_arch = "aarch64")]
pub mod exception;
#[cfg(target_arch = "aarch64")]
pub mod firmware;
#[cfg(target_arch = "aarch64")]
pub mod fp;
#[cfg(target_arch = "aarch64")]
pub mod gic;
#[cfg(target_arch = "aarch64")]
pub mod gicv2;
#[cfg(target_arch = "aarch64")]
pub mod gicv3;
pub mod handover;
#[cfg(target_arch = "aarch64")]
pub mod heartbeat;
#[cfg(target_arch = "aarch64")]
pub mod mmio;
#[cfg(target_arch = "aarch64")]
pub mod monitors;
#[cfg(target_arch = "aarch64")]
pub mod pointer_auth;
#[cfg(target_arch = "aarch64")]
pub mod pool;
#[cfg(target_arch = "aarch64")]
pub mod random;
#[cfg(target_arch = "aarch64")]
pub mod regs;
#[cfg(target_arch = "aarch64")]
pub mod root;
#[cfg(target_arch = "aarch64")]
pub mod serror;
#[cfg(target_arch = "aarch64")]
pub mod smmu;
#[cfg(target_arch = "aarch64")]
pub mod stack;
pub mod start;
#[cfg(target_arch = "aarch64")]
pub mod stolen_time;
#[cfg(target_arch = "aarch64")]
pub mod stop;
#[cfg(target_arch = "aarch64")]
pub mod sve;
pub mod sync;
#[cfg(target_arch = "aarch64")]
pub mod this_cpu;
#[cfg(target_arch = "aarch64")]
pub mod tlb;
#[cfg(all(target_arch = "aarch64", feature = "trace"))]
pub mod trace;
#[cfg(target_arch = "aarch64")]
pub mod translate;
#[cfg(target_arch = "aarch64")]
pub mod uart;
#[cfg(target_arch = "aarch64")]
pub mod window;
#[cfg(target_arch = "aarch64")]
pub mod world;
