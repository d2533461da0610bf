//! The log ring: the newest records of one CPU, written by that CPU, read by any.
//!
//! Requirements: G1-RUN-008.

mod shared;

pub use shared::{LogRing, RING_RECORDS};

#[cfg(test)]
mod tests;
