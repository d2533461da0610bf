//! Atomics under the names that `vcpu/shared.rs` and `vcpu/signals.rs` import, for two kinds of
//! machine.
//!
//! [`Order::Kept`] is the architecture's: a Store-Release comes before a later Load-Acquire of the
//! same CPU (Arm ARM B2.3, *Barrier-ordered-before*), so that all accesses have one order.
//! [`Order::LoadsOvertake`] is QEMU's on an x86 host: STLR and LDAR become a store and a load with
//! nothing between them, and the host's store buffer lets the load go first. Only an access that
//! reads and writes, and a barrier, keep them apart.
//!
//! A load that overtakes returns the value from before its CPU's first store since the last
//! barrier. The checker's orders cover all others between this one and that of a load which does
//! not overtake.

use std::cell::Cell;
use std::sync::Mutex;

use shuttle::thread::{self, ThreadId};

pub(crate) use shuttle::sync::atomic::Ordering;

/// Order of a load behind a store of the same CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Kept,
    LoadsOvertake,
}

// The checker runs all CPUs of a test on the test's own thread.
std::thread_local! {
    static ORDER: Cell<Order> = const { Cell::new(Order::Kept) };
    /// Number of the last store of any CPU.
    static STORES: Cell<u64> = const { Cell::new(0) };
}

shuttle::thread_local! {
    /// Number of the last store before this CPU's first one since its last barrier.
    static OVERTAKEN: Cell<Option<u64>> = Cell::new(None);
}

/// Runs `test` on a machine of this kind.
pub(crate) fn on<R>(order: Order, test: impl FnOnce() -> R) -> R {
    ORDER.set(order);
    STORES.set(0);
    let result = test();
    ORDER.set(Order::Kept);
    result
}

/// Makes the calling CPU's stores visible before its later loads.
pub(crate) fn barrier() {
    OVERTAKEN.with(|number| number.set(None));
}

/// Store to a variable: its number, the CPU, and the value.
type Store<T> = (u64, ThreadId, T);

/// Takes the number of a new store.
fn next_store() -> u64 {
    let number = STORES.get() + 1;
    STORES.set(number);
    number
}

macro_rules! atomics {
    ($($name:ident: $value:ty),+) => { $(
        /// An atomic variable that knows its earlier values.
        pub(crate) struct $name {
            now: shuttle::sync::atomic::$name,
            first: $value,
            stores: Mutex<Vec<Store<$value>>>,
        }

        #[allow(dead_code, reason = "not every width is used in every way")]
        impl $name {
            pub(crate) const fn new(first: $value) -> Self {
                Self {
                    now: shuttle::sync::atomic::$name::new(first),
                    first,
                    stores: Mutex::new(Vec::new()),
                }
            }

            /// Notes a store that the variable holds now.
            fn note(&self, value: $value) {
                if ORDER.get() == Order::Kept {
                    return;
                }
                let store = (next_store(), thread::current().id(), value);
                self.stores.lock().unwrap().push(store);
            }

            /// Notes what an access left that reads and writes: it is a barrier on both machines.
            fn exchanged(&self, before: $value, after: $value) -> $value {
                barrier();
                if before != after {
                    self.note(after);
                }
                before
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                let now = self.now.load(order);
                if ORDER.get() == Order::Kept {
                    return now;
                }
                let Some(until) = OVERTAKEN.with(Cell::get) else {
                    return now;
                };
                let stores = self.stores.lock().unwrap();
                let me = thread::current().id();
                let (before, behind): (Vec<_>, Vec<_>) =
                    stores.iter().partition(|(number, ..)| *number <= until);
                if behind.iter().any(|(_, cpu, _)| *cpu == me) {
                    // A CPU sees its own stores.
                    return now;
                }
                before.last().map_or(self.first, |(.., value)| *value)
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.now.store(value, order);
                OVERTAKEN.with(|first| first.set(first.get().or(Some(STORES.get()))));
                self.note(value);
            }

            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                self.exchanged(self.now.swap(value, order), value)
            }

            pub(crate) fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                done: Ordering,
                failed: Ordering,
            ) -> Result<$value, $value> {
                let result = self.now.compare_exchange(from, to, done, failed);
                match result {
                    Ok(before) => self.exchanged(before, to),
                    Err(now) => self.exchanged(now, now),
                };
                result
            }

            pub(crate) fn fetch_or(&self, bits: $value, order: Ordering) -> $value {
                let before = self.now.fetch_or(bits, order);
                self.exchanged(before, before | bits)
            }

            pub(crate) fn fetch_and(&self, bits: $value, order: Ordering) -> $value {
                let before = self.now.fetch_and(bits, order);
                self.exchanged(before, before & bits)
            }

            pub(crate) fn fetch_add(&self, more: $value, order: Ordering) -> $value {
                let before = self.now.fetch_add(more, order);
                self.exchanged(before, before.wrapping_add(more))
            }
        }
    )+ };
}

atomics! { AtomicU8: u8, AtomicU16: u16, AtomicU32: u32, AtomicU64: u64 }
