//! Init's heap: a fixed range of its own image.
//!
//! Requirements: G1-BOOT-008.

use buddy_system_allocator::LockedHeap;

#[global_allocator]
static HEAP: LockedHeap<32> = LockedHeap::empty();

unsafe extern "C" {
    static __heap_start: u8;
    static __heap_end: u8;
}

/// Gives the heap its memory. Called once, before anything is allocated.
pub(super) fn set_up() {
    let start = (&raw const __heap_start).expose_provenance();
    let end = (&raw const __heap_end).expose_provenance();
    // SAFETY: the linker script keeps this range for the heap alone; init's entry calls this once.
    unsafe { HEAP.lock().init(start, end - start) };
}
