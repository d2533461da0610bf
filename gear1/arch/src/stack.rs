//! Reads a stack for the dump of a halt.
//!
//! Requirements: G1-RUN-002.

use gear1_abi::id::MAX_CPUS;
use gear1_abi::layout::el2::{STACK_SIZE, STACK_STRIDE, STACKS};

/// Returns up to `count` words from `sp` on, none where `sp` is in no stack.
///
/// # Safety
///
/// `sp` was the stack pointer of a CPU that is up.
pub unsafe fn words(sp: u64, count: usize) -> impl Iterator<Item = u64> {
    let offset = sp.wrapping_sub(STACKS);
    let slot_end = (offset / STACK_STRIDE)
        .wrapping_add(1)
        .wrapping_mul(STACK_STRIDE);
    let mapped = offset % STACK_STRIDE >= STACK_STRIDE - STACK_SIZE;
    let in_use = offset < STACK_STRIDE * MAX_CPUS as u64 && mapped && sp.is_multiple_of(8);
    let available = if in_use {
        slot_end.wrapping_sub(offset) / 8
    } else {
        0
    };
    (0..available.min(count as u64)).map(move |index| {
        let address = sp.wrapping_add(index.wrapping_mul(8)) as *const u64;
        // SAFETY: the address is aligned and in the mapped part of a CPU's stack slot. CPUs that
        // are up, such as the caller's, have theirs mapped.
        unsafe { address.read_volatile() }
    })
}
