//! A second CPU that reads a word over and over, to see until when it can.
//!
//! Its translations stay in its TLB: it does nothing that would leave the guest, and does not stop
//! by itself. So a page that was taken away from it is lost only if somebody invalidates them
//! there.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::exception::catch;
use crate::mmio::read64;
use crate::{cpu, psci};

/// Reads before a page is called watched.
const WARM: u64 = 1_000;
/// Reads behind the loss that are enough to be sure.
const ENOUGH: u64 = 20_000;

/// Address of the watched page, or 0.
static PAGE: AtomicU64 = AtomicU64::new(0);
/// Whether the page was given away.
static GONE: AtomicBool = AtomicBool::new(false);
/// Reads that gave a value: all, and those begun after the page was gone.
static READS: AtomicU64 = AtomicU64::new(0);
static LATE: AtomicU64 = AtomicU64::new(0);
/// Whether a read aborted.
static ABORTED: AtomicBool = AtomicBool::new(false);

/// Requests of the `tlb` guest to the `tlb_taker`, in X3 of a direct message.
pub mod task {
    /// Returns the number of these requests, this one included.
    pub const COUNT: u64 = 1;
    /// Retrieves the transaction X4.
    pub const RETRIEVE: u64 = 2;
    /// Has the page at X4 watched.
    pub const WATCH: u64 = 3;
    /// Returns whether the watched page is lost, and the late reads.
    pub const GONE: u64 = 4;
    /// Relinquishes the transaction X4, and returns the same as [`GONE`].
    pub const RELINQUISH: u64 = 5;
    /// Ends the taker.
    pub const LEAVE: u64 = 6;
}

/// Turns CPU 1 on, whose `other_cpu` is [`watcher`].
pub fn start() -> i32 {
    psci::cpu_on(1)
}

/// Entry point of CPU 1: reads the page until a read aborts.
pub fn watcher(_cpu: usize) {
    loop {
        cpu::wait_until(|| !is_over());
        read_until_lost(PAGE.load(Ordering::Acquire));
        PAGE.store(0, Ordering::Release);
    }
}

/// Reads a page until a read aborts, or until the page was given away long ago.
fn read_until_lost(page: u64) {
    loop {
        let gone = GONE.load(Ordering::Acquire);
        let read = || {
            let _value = read64(page);
        };
        if catch(read).is_some() {
            ABORTED.store(true, Ordering::Release);
            return;
        }
        READS.fetch_add(1, Ordering::Release);
        if gone && LATE.fetch_add(1, Ordering::Release) >= ENOUGH {
            return;
        }
        cpu::relax();
    }
}

/// Has `page` watched from now on.
pub fn watch(page: u64) {
    GONE.store(false, Ordering::Release);
    ABORTED.store(false, Ordering::Release);
    READS.store(0, Ordering::Release);
    LATE.store(0, Ordering::Release);
    PAGE.store(page, Ordering::Release);
    cpu::wait_until(|| READS.load(Ordering::Acquire) >= WARM || is_over());
}

/// Says that the page is gone. Returns whether the watcher lost it, and how often it has read it
/// since.
pub fn gone() -> (bool, u64) {
    GONE.store(true, Ordering::Release);
    cpu::wait_until(is_over);
    (
        ABORTED.load(Ordering::Acquire),
        LATE.load(Ordering::Acquire),
    )
}

fn is_over() -> bool {
    PAGE.load(Ordering::Acquire) == 0
}
