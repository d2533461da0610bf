//! Locks and cells for state that several CPUs reach.
//!
//! Lock order: that over shared memory, or an emulated PL061's; then a VM's; never two VMs'.
//!
//! Requirements: G1-VCPU-002.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::barrier::YieldRelax;

/// A fair lock: CPUs get it in the order they asked.
#[cfg(not(feature = "check-locks"))]
pub type TicketLock<T> = spin::mutex::TicketMutex<T, YieldRelax>;
#[cfg(feature = "check-locks")]
pub use crate::confine::TicketLock;
/// Holds a [`TicketLock`].
pub type TicketGuard<'a, T> = spin::mutex::TicketMutexGuard<'a, T, YieldRelax>;

/// A value that one owner at a time claims, without waiting.
pub struct ClaimCell<T> {
    claimed: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through the one `Claim` that `claimed` admits,
// so at most one CPU at a time; T: Send lets it move between them.
unsafe impl<T: Send> Sync for ClaimCell<T> {}

impl<T> ClaimCell<T> {
    /// An unclaimed value.
    pub const fn new(value: T) -> Self {
        Self {
            claimed: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Claims the value, or returns `None` while somebody else has it.
    pub fn claim(&self) -> Option<Claim<'_, T>> {
        (!self.claimed.swap(true, Ordering::Acquire)).then_some(Claim { cell: self })
    }

    /// Tells whether somebody has the value at this moment.
    pub fn is_claimed(&self) -> bool {
        self.claimed.load(Ordering::Relaxed)
    }
}

/// The right to a [`ClaimCell`]'s value; dropping it gives the right back.
pub struct Claim<'a, T> {
    cell: &'a ClaimCell<T>,
}

impl<T> Deref for Claim<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this claim is the only one (see `claim`), and `&self` keeps
        // `deref_mut` away.
        unsafe { &*self.cell.value.get() }
    }
}

impl<T> DerefMut for Claim<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this claim is the only one (see `claim`), and `&mut self` makes
        // the reference unique.
        unsafe { &mut *self.cell.value.get() }
    }
}

impl<T> Drop for Claim<'_, T> {
    fn drop(&mut self) {
        self.cell.claimed.store(false, Ordering::Release);
    }
}

/// A value written once, before any other CPU reads it. It is never dropped.
///
/// Without a value the memory is not initialized, so that a `static` is in `.bss`: a niche of an
/// `Option` puts all of it into the image.
pub struct Once<T> {
    begun: AtomicBool,
    set: AtomicBool,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value is written once, by the call that found `begun` false, before `set` is
// released, and read only after `set` is acquired; T: Sync lets many CPUs read it.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Once<T> {
    /// An empty cell.
    pub const fn new() -> Self {
        Self {
            begun: AtomicBool::new(false),
            set: AtomicBool::new(false),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Stores the value; a second call is ignored.
    pub fn init(&self, value: T) {
        if self.begun.swap(true, Ordering::Relaxed) {
            return;
        }
        // SAFETY: `begun` was false, so nobody else writes; `set` is false, so nobody reads.
        let place = unsafe { &mut *self.value.get() };
        place.write(value);
        self.set.store(true, Ordering::Release);
    }

    /// Returns the value, if it was stored.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        if !self.set.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: `set` was released after the only write: nobody writes any more.
        let place = unsafe { &*self.value.get() };
        // SAFETY: that write initialized the value.
        Some(unsafe { place.assume_init_ref() })
    }
}
