//! A list of fixed capacity, so that a manifest is plain data without a heap.

/// A list of at most `N` items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List<T, const N: usize> {
    // Items are `Copy`, so a list is, too, and a manifest is moved by copying bytes.
    items: [Option<T>; N],
    count: usize,
}

impl<T: Copy, const N: usize> List<T, N> {
    /// Makes an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            items: [None; N],
            count: 0,
        }
    }

    /// Appends an item; a full list gives it back and stays as it was.
    pub fn push(&mut self, item: T) -> Result<(), T> {
        let Some(slot) = self.items.get_mut(self.count) else {
            return Err(item);
        };
        *slot = Some(item);
        self.count += 1;
        Ok(())
    }

    /// Removes the items that `keep` does not want.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        // A manifest without an error keeps its VMs, whose list is large.
        if self.iter().all(&keep) {
            return;
        }
        let all = core::mem::take(self);
        for item in all.iter().filter(|item| keep(item)) {
            // The push fits: the item was in the list before.
            let _ = self.push(*item);
        }
    }

    /// Returns the number of items.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Tells whether there is no item.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the item at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.items.get(index)?.as_ref()
    }

    /// Iterates over the items in the order in which they were pushed.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let used = self.items.get(..self.count).unwrap_or_default();
        used.iter().flatten()
    }
}

impl<T: Copy, const N: usize> Default for List<T, N> {
    fn default() -> Self {
        Self::new()
    }
}
