//! The atomics that words shared by CPUs are made of. `tests/protocol` has others in this place.
//!
//! Requirements: G1-VCPU-001.

pub(crate) use core::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence,
};
