//! The request that all CPUs stop, for a halt.
//!
//! Requirements: G1-RUN-002.

use core::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

/// Asks every CPU to stop at its next kick.
pub fn request() {
    STOP.store(true, Ordering::SeqCst);
}

/// Stops this CPU if that was asked for.
pub fn obey() {
    if STOP.load(Ordering::SeqCst) {
        crate::cpu::park();
    }
}
