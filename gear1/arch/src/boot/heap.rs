//! Init's heap: a fixed range of its own image.
//!
//! A boot allocates and frees some thousand small values, and then the heap is gone. So blocks have
//! fixed sizes ([`SizeClass`]), freed ones are listed by size, and new ones come from what was never
//! used. Blocks are not joined again, except for one at the front of what is unused, which also
//! grows in place: a vector that grows alone is not copied.
//!
//! Requirements: G1-BOOT-008.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr;

use gear1_core::size_class::{CLASSES, SizeClass, UNIT};

#[global_allocator]
static HEAP: Heap = Heap(UnsafeCell::new(State {
    free: [0; CLASSES],
    unused: 0,
    end: 0,
}));

unsafe extern "C" {
    static __heap_start: u8;
    static __heap_end: u8;
}

/// The heap of the whole of init.
struct Heap(UnsafeCell<State>);

/// Addresses of what is free.
struct State {
    /// The first free block of each size, whose first word is the address of the next one; 0: there
    /// is none.
    free: [usize; CLASSES],
    /// What was never given out, up to `end`.
    unused: usize,
    end: usize,
}

// SAFETY: init runs on one CPU, with interrupts masked, and its exception handler does not return:
// no function of the heap begins before another one has ended.
unsafe impl Sync for Heap {}

/// Gives the heap its memory. Called once, before anything is allocated.
pub(super) fn set_up() {
    let start = (&raw const __heap_start).expose_provenance();
    let end = (&raw const __heap_end).expose_provenance();
    // SAFETY: as for `Sync`; no reference to the state outlives a function.
    let state = unsafe { &mut *HEAP.0.get() };
    (state.unused, state.end) = (start, end);
}

impl State {
    /// Takes a free block of this size, or of the smallest larger one if `or_larger`; null if there
    /// is none.
    fn take_free(&mut self, class: SizeClass, or_larger: bool) -> *mut u8 {
        let count = if or_larger { CLASSES } else { 1 };
        for head in self.free.iter_mut().skip(class.index).take(count) {
            if *head != 0 {
                let block: *mut usize = ptr::with_exposed_provenance_mut(*head);
                // SAFETY: a listed block is in the heap, aligned, and nobody's; its first word was
                // written by `list`.
                *head = unsafe { block.read() };
                return block.cast();
            }
        }
        ptr::null_mut()
    }

    /// Takes a block of what was never used; null if too little is left.
    fn take_unused(&mut self, class: SizeClass, align: usize) -> *mut u8 {
        let start = self.unused.next_multiple_of(align.max(UNIT));
        match start
            .checked_add(class.bytes)
            .filter(|end| *end <= self.end)
        {
            Some(end) => {
                self.unused = end;
                ptr::with_exposed_provenance_mut(start)
            }
            None => ptr::null_mut(),
        }
    }

    /// Moves the end of a block, which is the last before what is unused, if it is that and there is
    /// room.
    fn resize_last(&mut self, block: *mut u8, from: SizeClass, to: SizeClass) -> bool {
        let is_last = block.addr() + from.bytes == self.unused;
        let fits = is_last && self.end - block.addr() >= to.bytes;
        if fits {
            self.unused = block.addr() + to.bytes;
        }
        fits
    }

    /// Frees a block of this size.
    ///
    /// # Safety
    ///
    /// The block was taken, and nobody uses it any longer.
    unsafe fn list(&mut self, block: *mut u8, class: SizeClass) {
        if block.addr() + class.bytes == self.unused {
            self.unused = block.addr();
        } else if let Some(head) = self.free.get_mut(class.index) {
            // SAFETY: a block has at least a word, and is aligned to one.
            unsafe { block.cast::<usize>().write(*head) };
            *head = block.expose_provenance();
        }
    }
}

// SAFETY: a block is given to one caller at a time: it is cut from what is unused, or taken from a
// list of blocks that were freed. Each has the size of its class and the alignment asked for: those
// of the lists at least that of a unit.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `set_up`.
        let state = unsafe { &mut *self.0.get() };
        let (Some(class), align) = (SizeClass::of(layout.size()), layout.align()) else {
            return ptr::null_mut();
        };
        let is_plain = align <= UNIT;
        if is_plain {
            let block = state.take_free(class, false);
            if !block.is_null() {
                return block;
            }
        }
        let block = state.take_unused(class, align);
        match block.is_null() && is_plain {
            true => state.take_free(class, true),
            false => block,
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as in `set_up`.
        let state = unsafe { &mut *self.0.get() };
        if let Some(class) = SizeClass::of(layout.size()) {
            // SAFETY: the caller's conditions. A block that was taken as a larger one is freed as
            // one of the size that was asked for.
            unsafe { state.list(block, class) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `set_up`.
        let state = unsafe { &mut *self.0.get() };
        let (Some(from), Some(to)) = (SizeClass::of(layout.size()), SizeClass::of(size)) else {
            return ptr::null_mut();
        };
        if from == to || state.resize_last(block, from, to) {
            return block;
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else {
            return ptr::null_mut();
        };
        // SAFETY: `wanted` is not empty, as the caller's `size` is not.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            let count = layout.size().min(size);
            // SAFETY: both blocks have so many bytes, and are two.
            unsafe { ptr::copy_nonoverlapping(block, moved, count) };
            // SAFETY: the caller's conditions, and all is copied.
            unsafe { self.dealloc(block, layout) };
        }
        moved
    }
}
