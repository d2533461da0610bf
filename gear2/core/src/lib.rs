//! Gear2's logic: everything but the machine layer.
//!
//! Gear2 is one run-to-completion loop per CPU ([`CpuLoop`]): an event comes
//! from Gear1, a decision goes back, and in between stands an ordinary function.
//!
//! Owns: the scheduling policies, waking and blocking of vCPUs, the lifecycle
//! of VMs, the emulated PL011 of each guest, the console multiplexer, and what Gear2
//! shares with the device model in the device VM.
//!
//! Invariants: no access to guest memory or to registers other than those in
//! events; nothing about a VM stands in code, only in the manifest; it never
//! waits inside an event, except for a lock that another loop holds for the
//! length of one event (or of one 32 KiB piece of loading, for a lifecycle).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod balancer;
pub mod cadence;
pub mod config;
pub mod console;
mod control;
mod cpu_loop;
mod device_model;
pub mod gear1;
pub mod imx_uart;
mod kept;
mod last_words;
mod lifecycle;
mod lives;
mod load;
mod machine;
pub mod mini_uart;
mod pl011;
mod platform;
mod progress;
mod report;
mod restarts;
pub mod scheduler;
pub mod scif;
#[cfg(test)]
mod simulator;
mod trace;
mod watchdog;

pub use config::{Config, StartError};
pub use console::Uart;
pub use cpu_loop::CpuLoop;
pub use gear1::{Conduit, Gear1, Times};
pub use kept::Kept;
pub use machine::{Machine, Platform, Shared};
pub use trace::Gear1Ring;
