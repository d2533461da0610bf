//! GDM, the GearV device model: a userspace program of the device VM that serves
//! the virtio devices and consoles of all guests, and `gearctl`, which controls VMs. A process a
//! guest serves that guest's devices, without rights; GDM itself holds what needs rights.
//!
//! Owns: the virtio-mmio transport, the backends, the consoles' sockets, the users
//! of the control mailbox. One thread a device, so that a guest which keeps its own
//! device busy, or breaks it, costs nobody else anything.
//!
//! Invariants: whatever a guest says (a register, a ring, a descriptor) is an
//! allegation: it is copied once, checked, and bounded; no path from it panics or
//! reaches memory outside that guest's. What a restarted GDM needs stands in the
//! device's page of the shared region before the guest can see its effect.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::indexing_slicing)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "tests fail by panicking"
    )
)]

// First of all: what follows prints by its macro.
#[macro_use]
pub mod output;

pub mod address;
mod allowance;
mod atomic;
pub mod backend;
pub mod board;
pub mod buffers;
mod choices;
pub mod client;
pub mod command;
pub mod control;
pub mod core_file;
pub mod error;
pub mod frame;
pub mod gpio;
mod guest;
pub mod hardware;
pub mod hub;
mod in_flight;
pub mod json;
mod link;
pub mod mapping;
pub mod measure;
pub mod memory;
pub mod options;
pub mod order;
pub mod orders;
mod overlap;
mod progress;
mod rate;
mod rtc;
pub mod sandbox;
pub mod serial;
pub mod socket;
pub mod start;
pub mod state;
mod sys;
mod terminal;
#[cfg(test)]
mod testing;
pub mod transport;
pub mod uio;
pub mod vring;
pub mod wire;
pub mod worker;
