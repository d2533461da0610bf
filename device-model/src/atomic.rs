//! What the device's page is made of. The tests' model of its orders has other atomics here.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(test)]
mod tests;
