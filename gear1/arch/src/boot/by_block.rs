//! Wiping and cleaning of memory by the CPU's blocks, eight a round.
//!
//! A boot wipes and cleans megabytes before the first VM starts. A loop of one block a round takes
//! as many instructions for its end as for the block.
//!
//! Requirements: G1-BOOT-004.

use core::arch::asm;

use crate::regs::{DCZID_EL0, Readable as _};
use crate::{barrier, cache};

/// Blocks of a round.
const ROUND: usize = 8;

/// Executes an instruction that takes an address, for `count` blocks of `size` bytes from `start`
/// on; returns the address behind the last.
macro_rules! for_each_block {
    ($instruction:literal, $start:expr, $size:expr, $count:expr) => {{
        let (size, count): (usize, usize) = ($size, $count);
        let mut at: *mut u8 = $start;
        if count >= ROUND {
            asm!(
                "2:",
                ".rept {round}",
                concat!($instruction, ", {at}"),
                "add {at}, {at}, {size}",
                ".endr",
                "subs {left}, {left}, #1",
                "b.ne 2b",
                at = inout(reg) at,
                size = in(reg) size,
                left = inout(reg) count / ROUND => _,
                round = const ROUND,
                options(nostack),
            );
        }
        for _ in 0..count % ROUND {
            asm!(concat!($instruction, ", {}"), in(reg) at, options(nostack, preserves_flags));
            at = at.wrapping_add(size);
        }
        at
    }};
}

/// Fills `size` bytes with zeroes; whole blocks by `DC ZVA`, which fetches no lines.
///
/// # Safety
///
/// The bytes are mapped as Normal memory, writable, and nothing else refers to them.
pub(super) unsafe fn zero(start: *mut u8, size: usize) {
    let block = zva_block();
    let head = start.align_offset(block).min(size);
    let blocks = (size - head) / block;
    // SAFETY: the bytes before the first block are the caller's.
    unsafe { start.write_bytes(0, head) };
    // SAFETY: DC ZVA zeroes the whole block that holds the address. The first address is aligned to
    // a block, and so many blocks are the caller's.
    let rest = unsafe { for_each_block!("dc zva", start.wrapping_add(head), block, blocks) };
    // SAFETY: the bytes behind the last block are the caller's.
    unsafe { rest.write_bytes(0, size - head - blocks * block) };
}

/// Cleans and invalidates the lines of `size` bytes to the point of coherency, and waits for it
/// (Arm ARM D7.5.9).
///
/// # Safety
///
/// The bytes are mapped.
pub(super) unsafe fn clean(start: *mut u8, size: usize) {
    let line = cache::line_size() as usize;
    let before = start.addr() % line;
    let lines = match size {
        0 => 0,
        _ => (before + size).div_ceil(line),
    };
    // SAFETY: each line holds a byte of the caller's, and maintenance by address loses nothing: the
    // lines are cleaned, never only invalidated.
    unsafe { for_each_block!("dc civac", start.wrapping_sub(before), line, lines) };
    barrier::dsb_sy();
}

/// Returns the bytes that `DC ZVA` zeroes (DCZID_EL0.BS, in words); more than anything has if it is
/// not to be used (DCZID_EL0.DZP).
fn zva_block() -> usize {
    let id = DCZID_EL0.get();
    if id & 0x10 == 0 {
        4 << (id & 0xf)
    } else {
        1 << 48
    }
}
