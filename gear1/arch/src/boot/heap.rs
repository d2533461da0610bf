//! Init's heap: a fixed range of its own image.
//!
//! Blocks have sizes of powers of two. A block that is given back goes into the list of its size,
//! from which the next one of the size comes; the rest of the range has never been given out. A
//! boot allocates hundreds of small blocks, which live shortly, and ends: no block is joined with
//! its neighbour again. A list that is empty while the range is used up takes a part of a larger
//! block.
//!
//! Requirements: G1-BOOT-008.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::ptr;

/// Least size, and alignment, of a block: the link of a list fits, and each type of Rust's that
/// asks for no more.
const LEAST: usize = 16;
/// Lists, by the binary logarithm of the size: the largest block has 2 MiB, more than all of init.
const LISTS: usize = 22;

#[global_allocator]
static HEAP: Heap = Heap::empty();

unsafe extern "C" {
    static __heap_start: u8;
    static __heap_end: u8;
}

/// The range that has never been given out, and the lists of free blocks.
struct Heap {
    start: Cell<usize>,
    end: Cell<usize>,
    /// Address of the first block of each list; 0: there is none. A block's first word is the
    /// address of the next.
    free: [Cell<usize>; LISTS],
}

// SAFETY: init runs on one CPU, with interrupts masked, and an exception does not return.
unsafe impl Sync for Heap {}

/// Gives the heap its memory. Called once, before anything is allocated.
pub(super) fn set_up() {
    let start = (&raw const __heap_start).expose_provenance();
    let end = (&raw const __heap_end).expose_provenance();
    HEAP.start.set(start.next_multiple_of(LEAST));
    HEAP.end.set(end);
}

impl Heap {
    /// Returns a heap without memory.
    const fn empty() -> Self {
        Self {
            start: Cell::new(0),
            end: Cell::new(0),
            free: [const { Cell::new(0) }; LISTS],
        }
    }

    /// Returns the binary logarithm of the size of a block for `size` bytes.
    const fn list_of(size: usize) -> usize {
        let size = if size < LEAST { LEAST } else { size };
        size.next_power_of_two().trailing_zeros() as usize
    }

    /// Takes the first block of a list; 0: there is none.
    fn pop(&self, list: usize) -> usize {
        let Some(first) = self.free.get(list) else {
            return 0;
        };
        let block = first.get();
        if block != 0 {
            let link = ptr::with_exposed_provenance::<usize>(block);
            // SAFETY: a free block is memory of the heap's that nothing refers to, and `push` wrote
            // its first word.
            first.set(unsafe { link.read() });
        }
        block
    }

    /// Puts a block that nothing refers to into its list.
    ///
    /// # Safety
    ///
    /// The block is memory of the heap's, of the list's size and aligned to [`LEAST`].
    unsafe fn push(&self, list: usize, block: usize) {
        if let Some(first) = self.free.get(list) {
            let link = ptr::with_exposed_provenance_mut::<usize>(block);
            // SAFETY: the caller's conditions.
            unsafe { link.write(first.get()) };
            first.set(block);
        }
    }

    /// Takes `size` bytes from the range that has never been given out, unless it has no more.
    fn take(&self, size: usize, align: usize) -> Option<usize> {
        let mask = align.wrapping_sub(1);
        let block = self.start.get().saturating_add(mask) & !mask;
        let end = block.saturating_add(size);
        (end <= self.end.get()).then(|| self.start.set(end))?;
        Some(block)
    }

    /// Takes a block of a list's size out of a larger one, whose rest goes into the lists below.
    #[cold]
    fn split(&self, list: usize) -> usize {
        for larger in list + 1..LISTS {
            let block = self.pop(larger);
            if block != 0 {
                for rest in list..larger {
                    // SAFETY: the parts of a free block are free. Their sizes are the list's own and
                    // the sizes above up to half of the block's, so that they lie side by side.
                    unsafe { self.push(rest, block + (1 << rest)) };
                }
                return block;
            }
        }
        0
    }
}

// SAFETY: a block is given out once until it is given back: it leaves its list, or the range that
// has never been given out. It has as many bytes as its list says, at least those of the layout,
// and is aligned to `LEAST`, or to the layout's alignment.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let list = Self::list_of(layout.size());
        let of_list = || {
            let block = self.pop(list);
            (block != 0).then_some(block)
        };
        let block = match layout.align() {
            ..=LEAST => of_list()
                .or_else(|| self.take(1 << list, LEAST))
                .unwrap_or_else(|| self.split(list)),
            align => self.take(layout.size(), align).unwrap_or(0),
        };
        ptr::with_exposed_provenance_mut(block)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // A block of a larger alignment has no list; a boot has some of them.
        if layout.align() <= LEAST {
            // SAFETY: `alloc` gave out the block for this layout, so the list is its own, and its
            // owner gives it back.
            unsafe { self.push(Self::list_of(layout.size()), block.expose_provenance()) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let fits = layout.align() <= LEAST && Self::list_of(layout.size()) == Self::list_of(size);
        if fits {
            return block;
        }
        // SAFETY: the caller has checked the size for this alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the size is not zero, by the conditions of `realloc`.
        let new = unsafe { self.alloc(new_layout) };
        if !new.is_null() {
            // SAFETY: both blocks have so many bytes, and are two.
            unsafe { ptr::copy_nonoverlapping(block, new, layout.size().min(size)) };
            // SAFETY: the caller gives the old block back.
            unsafe { self.dealloc(block, layout) };
        }
        new
    }
}
