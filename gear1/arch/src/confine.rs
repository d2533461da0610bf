//! Locks that a CPU may take, in the checking build (feature `check-locks`) only. A real-time VM's
//! CPU may take only the lock of that VM, and no other CPU may take that lock while the VM runs
//! (G1-RT-001), except to stop the VM. Any other lock halts Gear1, with a dump that names the
//! caller; but for the one that all CPUs share.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::barrier::YieldRelax;
use crate::regs::{Readable as _, TPIDR_EL2};

/// CPUs that are confined, as TPIDR_EL2 names them, the one lock of each, and the number of the close
/// by which it is closed to all others; 0: it is open.
static CONFINED: [[AtomicUsize; 3]; gear1_abi::id::MAX_CPUS] =
    [const { [const { AtomicUsize::new(0) }; 3] }; gear1_abi::id::MAX_CPUS];

/// The lock that every CPU may take, or 0.
static SHARED: AtomicUsize = AtomicUsize::new(0);

/// CPUs that have looked whether a VM runs, as TPIDR_EL2 names them, and how many closes there had
/// been before the last look, plus 1; 0: the look was used for a lock.
static LOOKS: [[AtomicUsize; 2]; gear1_abi::id::MAX_CPUS] =
    [const { [const { AtomicUsize::new(0) }; 2] }; gear1_abi::id::MAX_CPUS];

/// Number of closes so far.
static CLOSES: AtomicUsize = AtomicUsize::new(0);

/// [`spin::mutex::TicketMutex`] that knows who may take it.
pub struct TicketLock<T>(spin::mutex::TicketMutex<T, YieldRelax>);

impl<T> TicketLock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self(spin::mutex::TicketMutex::new(value))
    }

    /// Takes the lock.
    pub fn lock(&self) -> spin::mutex::TicketMutexGuard<'_, T, YieldRelax> {
        check(self.place());
        self.0.lock()
    }

    fn place(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }
}

/// Lets every CPU take this lock, whose holds are short and bounded.
pub fn share<T>(lock: &TicketLock<T>) {
    SHARED.store(lock.place(), Ordering::SeqCst);
}

/// Lets this CPU take this lock only, from now on, beside the one that all share.
pub fn confine<T>(lock: &TicketLock<T>) {
    let me = TPIDR_EL2.get() as usize;
    for [cpu, own, _] in &CONFINED {
        let taken = cpu.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst);
        if taken.is_ok() {
            own.store(lock.place(), Ordering::SeqCst);
            return;
        }
    }
}

/// Closes a lock to all CPUs that are not confined to it: its VM runs.
pub fn close<T>(lock: &TicketLock<T>) {
    let number = CLOSES.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
    set_closed(lock.place(), number);
}

/// Opens a lock again: its VM is about to be stopped, or has ended.
pub fn open<T>(lock: &TicketLock<T>) {
    set_closed(lock.place(), 0);
}

fn set_closed(lock: usize, value: usize) {
    for [_, own, closed] in &CONFINED {
        if own.load(Ordering::SeqCst) == lock {
            closed.store(value, Ordering::SeqCst);
        }
    }
}

/// Notes that this CPU looks whether a VM runs. The next lock that it takes may have been closed
/// since: the VM has started between the look and the lock, and waits for one hold.
pub fn look() {
    let before = CLOSES.load(Ordering::SeqCst).wrapping_add(1);
    if let Some(looked) = look_of(TPIDR_EL2.get() as usize) {
        looked.store(before, Ordering::SeqCst);
    }
}

/// Returns the look of a CPU, which gets a place at the first one.
fn look_of(me: usize) -> Option<&'static AtomicUsize> {
    for [cpu, looked] in &LOOKS {
        let taken = cpu.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst);
        if taken.is_ok() || taken == Err(me) {
            return Some(looked);
        }
    }
    None
}

#[inline(never)]
fn check(lock: usize) {
    if lock == SHARED.load(Ordering::SeqCst) {
        return;
    }
    let me = TPIDR_EL2.get() as usize;
    let looked = look_of(me).map_or(0, |looked| looked.swap(0, Ordering::SeqCst));
    let (mut is_own, mut is_closed) = (false, false);
    for [cpu, own, closed] in &CONFINED {
        let is_this = own.load(Ordering::SeqCst) == lock;
        if me != 0 && cpu.load(Ordering::SeqCst) == me {
            is_own = is_this;
            is_closed |= !is_this;
        }
        let closed = closed.load(Ordering::SeqCst);
        is_closed |= is_this && closed != 0 && (looked == 0 || closed < looked);
    }
    if is_closed && !is_own {
        // SAFETY: undefined on purpose: the vector halts the machine.
        unsafe { core::arch::asm!("udf #0", options(noreturn, nostack)) };
    }
}
