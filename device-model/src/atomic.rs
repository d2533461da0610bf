//! Atomics of a device's page. The model test of the page's orderings replaces them by shuttle's.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(test)]
mod tests;
