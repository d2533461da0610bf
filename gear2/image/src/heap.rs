//! The heap, at the address that the ABI fixes, as large as the manifest says. Its first page is
//! not part of it: what outlives a restart of Gear2 is there (`inputs::kept`).

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};

use buddy_system_allocator::Heap;
use gear1_abi::layout::gear2::HEAP;
use gear2_core::Kept;
use spin::mutex::TicketMutex;

use crate::svc::Yield;

/// Blocks of up to `2^(ORDERS - 1)` bytes.
const ORDERS: usize = 32;

struct SharedHeap(TicketMutex<Heap<ORDERS>, Yield>);

#[global_allocator]
static ALLOCATOR: SharedHeap = SharedHeap(TicketMutex::new(Heap::new()));

/// Gives the allocator its memory. Called once, before anything is allocated.
pub(crate) fn give(size: u64) {
    let kept = size_of::<Kept>();
    let (start, size) = (HEAP as usize + kept, size as usize - kept);
    // SAFETY: Gear1 maps `heap_size` bytes at `HEAP` read-write for Gear2 alone, and what is behind
    // the first page is used here only; it is called from the one `try_call_once` of `main`.
    unsafe { ALLOCATOR.0.lock().init(start, size) }
}

/// Returns the bytes that are allocated, with what the allocator rounds them up by.
#[cfg(feature = "fault-injection")]
pub(crate) fn used() -> usize {
    ALLOCATOR.0.lock().stats_alloc_actual()
}

// SAFETY: `Heap` returns blocks that are aligned, large enough and disjoint until deallocated; the
// lock makes its use exclusive.
unsafe impl GlobalAlloc for SharedHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0
            .lock()
            .alloc(layout)
            .map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(block) = NonNull::new(block) else {
            return;
        };
        // SAFETY: the caller of `dealloc` vouches that `alloc` returned the block for this layout
        // and that nobody uses it any more.
        unsafe { self.0.lock().dealloc(block, layout) }
    }
}
