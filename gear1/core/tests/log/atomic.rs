//! Atomics of release and acquire, without sequential consistency (C++20, 6.9.2.2): stores of a
//! variable have an order, and a thread has a *view*, for each variable the oldest store that its
//! loads may return still. A load takes any store from there on, and if the two synchronize the
//! storing thread's view with it. [`Choices`] says which, and counts through all of them.

use std::cell::RefCell;
use std::collections::BTreeMap;

pub(crate) use std::sync::atomic::Ordering;

/// For each variable, by its address, the first store that may be seen.
type View = BTreeMap<usize, usize>;

/// Store that each load returned, of those that were allowed: its index, and their number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choices {
    made: Vec<(usize, usize)>,
    next: usize,
}

#[derive(Default)]
struct Thread {
    view: View,
    /// View at the last release fence, which later relaxed stores pass on.
    released: View,
    /// View that relaxed loads have found, which the next acquire fence takes over.
    found: View,
    choices: Choices,
}

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::default();
}

/// An atomic variable: its stores with the views that they pass on.
pub(crate) struct AtomicU64 {
    first: u64,
    stores: RefCell<Vec<(u64, View)>>,
}

impl Choices {
    /// Each load returns the oldest store that it may.
    pub(crate) fn first() -> Self {
        Self::default()
    }

    fn choose(&mut self, count: usize) -> usize {
        if self.next == self.made.len() {
            self.made.push((0, count));
        }
        let (choice, before) = self.made[self.next];
        assert_eq!(before, count, "the test does not repeat");
        self.next += 1;
        choice
    }
}

/// Forgets what the thread before saw; its loads were made from its own view.
pub(crate) fn become_another_thread(mut choices: Choices) {
    choices.next = 0;
    THREAD.set(Thread {
        choices,
        ..Thread::default()
    });
}

/// Returns the choices that come after those that were made, and starts again with no view.
pub(crate) fn next_choices() -> Option<Choices> {
    let mut choices = THREAD.take().choices;
    while let Some((choice, count)) = choices.made.pop() {
        if choice + 1 < count {
            choices.made.push((choice + 1, count));
            return Some(choices);
        }
    }
    None
}

fn join(view: &mut View, other: &View) {
    for (variable, store) in other {
        let oldest = view.entry(*variable).or_default();
        *oldest = (*oldest).max(*store);
    }
}

/// A fence of the thread.
pub(crate) fn fence(order: Ordering) {
    THREAD.with_borrow_mut(|thread| match order {
        Ordering::Release => thread.released = thread.view.clone(),
        Ordering::Acquire => {
            let found = std::mem::take(&mut thread.found);
            join(&mut thread.view, &found);
        }
        _ => unimplemented!("{order:?}"),
    });
}

impl AtomicU64 {
    pub(crate) const fn new(first: u64) -> Self {
        let stores = RefCell::new(Vec::new());
        Self { first, stores }
    }

    fn variable(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub(crate) fn store(&self, value: u64, order: Ordering) {
        let mut stores = self.stores.borrow_mut();
        THREAD.with_borrow_mut(|thread| {
            thread.view.insert(self.variable(), stores.len() + 1);
            let passed_on = match order {
                Ordering::Relaxed => &thread.released,
                Ordering::Release => &thread.view,
                _ => unimplemented!("{order:?}"),
            };
            stores.push((value, passed_on.clone()));
        });
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        let stores = self.stores.borrow();
        THREAD.with_borrow_mut(|thread| {
            let oldest = thread.view.get(&self.variable()).copied().unwrap_or(0);
            let chosen = oldest + thread.choices.choose(stores.len() + 1 - oldest);
            thread.view.insert(self.variable(), chosen);
            let Some((value, passed_on)) = chosen.checked_sub(1).map(|place| &stores[place]) else {
                return self.first;
            };
            match order {
                Ordering::Relaxed => join(&mut thread.found, passed_on),
                Ordering::Acquire => join(&mut thread.view, passed_on),
                _ => unimplemented!("{order:?}"),
            }
            *value
        })
    }
}
