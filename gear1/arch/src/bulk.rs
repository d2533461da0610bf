//! Zeroing of windows, and copying of windows and of what init loads, 64 bytes a round: the
//! compiler's own take a word a round, three times as long, and how long a piece takes is how long
//! interrupts wait.
//!
//! Requirements: G1-MEM-015, G1-RUN-011.

use core::arch::asm;
use core::ptr;

/// Bytes of a round.
const BLOCK: usize = 64;

/// Fills `size` bytes from `start` with zeroes.
///
/// # Safety
///
/// They are mapped as Normal memory, writable, and nothing else refers to them.
pub(crate) unsafe fn zero(start: *mut u8, size: usize) {
    let blocks = size / BLOCK;
    if blocks != 0 {
        // SAFETY: stores to `blocks` blocks from `start`, which are the caller's.
        unsafe {
            // Bound: bytes of a window (64 KiB) / 64.
            asm!(
                "2: stp xzr, xzr, [{to}]",
                "stp xzr, xzr, [{to}, #16]",
                "stp xzr, xzr, [{to}, #32]",
                "stp xzr, xzr, [{to}, #48]",
                "add {to}, {to}, #64",
                "subs {left}, {left}, #1",
                "b.ne 2b",
                to = inout(reg) start => _,
                left = inout(reg) blocks => _,
                options(nostack),
            );
        }
    }
    let rest = start.wrapping_add(blocks.wrapping_mul(BLOCK));
    // SAFETY: the bytes behind the last block, as above.
    unsafe { ptr::write_bytes(rest, 0, size % BLOCK) };
}

/// Copies `size` bytes. Neither address needs to be aligned.
///
/// # Safety
///
/// Both ranges are mapped as Normal memory, that of `to` writable; they do not overlap, and nothing
/// else refers to that of `to`.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, size: usize) {
    let blocks = size / BLOCK;
    if blocks != 0 {
        // SAFETY: loads from and stores to `blocks` blocks, which are the caller's.
        unsafe {
            // Bound: bytes of a piece (32 KiB) / 64; init's copies are as long as its files.
            asm!(
                "2: ldp {a}, {b}, [{from}]",
                "ldp {c}, {d}, [{from}, #16]",
                "stp {a}, {b}, [{to}]",
                "stp {c}, {d}, [{to}, #16]",
                "ldp {a}, {b}, [{from}, #32]",
                "ldp {c}, {d}, [{from}, #48]",
                "add {from}, {from}, #64",
                "stp {a}, {b}, [{to}, #32]",
                "stp {c}, {d}, [{to}, #48]",
                "add {to}, {to}, #64",
                "subs {left}, {left}, #1",
                "b.ne 2b",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                left = inout(reg) blocks => _,
                a = out(reg) _,
                b = out(reg) _,
                c = out(reg) _,
                d = out(reg) _,
                options(nostack),
            );
        }
    }
    let done = blocks.wrapping_mul(BLOCK);
    let (from, to) = (from.wrapping_add(done), to.wrapping_add(done));
    // SAFETY: the bytes behind the last block, as above.
    unsafe { ptr::copy_nonoverlapping(from, to, size % BLOCK) };
}
