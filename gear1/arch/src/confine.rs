//! Which locks a CPU may take, in the checking build (feature `check-locks`) and in no other: a
//! real-time VM's CPU only that VM's (G1-RT-001). Another one ends in a halt, whose dump says who took it.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::regs::{Readable as _, TPIDR_EL2};
use crate::sync::YieldRelax;

/// CPUs that are confined, as TPIDR_EL2 names them, and the one lock of each.
static CONFINED: [[AtomicUsize; 2]; gear1_abi::id::MAX_CPUS] =
    [const { [const { AtomicUsize::new(0) }; 2] }; gear1_abi::id::MAX_CPUS];

/// [`spin::mutex::TicketMutex`] that knows who may take it.
pub struct TicketLock<T>(spin::mutex::TicketMutex<T, YieldRelax>);

impl<T> TicketLock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self(spin::mutex::TicketMutex::new(value))
    }

    /// Takes it.
    pub fn lock(&self) -> spin::mutex::TicketMutexGuard<'_, T, YieldRelax> {
        check(self.place());
        self.0.lock()
    }

    fn place(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }
}

/// Lets this CPU take this lock only, from now on.
pub fn confine<T>(lock: &TicketLock<T>) {
    let me = TPIDR_EL2.get() as usize;
    for [cpu, own] in &CONFINED {
        let taken = cpu.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst);
        if taken.is_ok() {
            own.store(lock.place(), Ordering::SeqCst);
            return;
        }
    }
}

#[inline(never)]
fn check(lock: usize) {
    let me = TPIDR_EL2.get() as usize;
    for [cpu, own] in &CONFINED {
        if me != 0 && cpu.load(Ordering::SeqCst) == me && own.load(Ordering::SeqCst) != lock {
            // SAFETY: undefined on purpose: the vector halts the machine.
            unsafe { core::arch::asm!("udf #0", options(noreturn, nostack)) };
        }
    }
}
