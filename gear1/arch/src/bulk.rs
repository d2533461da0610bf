//! Zeroing and cleaning of memory by the CPU's blocks, and copying, many bytes a round: the
//! compiler's own loops take a word a round, and how long a piece takes is how long interrupts
//! wait.
//!
//! Requirements: G1-BOOT-004, G1-MEM-015, G1-RUN-011.

use core::arch::asm;
use core::ptr;

#[cfg(feature = "boot")]
use crate::regs::ID_AA64ISAR2_EL1;
use crate::regs::{DCZID_EL0, Readable as _};
use crate::{barrier, cache};

/// Bytes of a round of loads and stores.
const PAIRS: usize = 64;

/// Executes instructions that take an address, for `count` blocks of `size` bytes from `start` on;
/// returns the address behind the last. `log2` is the binary logarithm of the blocks of a round: a
/// loop of one block a round would take as many instructions for its end as for the block.
macro_rules! for_each_block {
    ([$($instruction:literal),+], $log2:literal, $start:expr, $size:expr, $count:expr) => {{
        let (size, count): (usize, usize) = ($size, $count);
        let mut at: *mut u8 = $start;
        if count.wrapping_shr($log2) != 0 {
            // Bound: the range's blocks / those of a round.
            asm!(
                "2:",
                ".rept {round}",
                $(concat!($instruction, ", {at}"),)+
                "add {at}, {at}, {size}",
                ".endr",
                "subs {left}, {left}, #1",
                "b.ne 2b",
                at = inout(reg) at,
                size = in(reg) size,
                left = inout(reg) count.wrapping_shr($log2) => _,
                round = const 1 << $log2,
                options(nostack),
            );
        }
        // Bound: a round's blocks.
        for _ in 0..count % (1 << $log2) {
            asm!(
                $(concat!($instruction, ", {at}"),)+
                at = in(reg) at,
                options(nostack, preserves_flags),
            );
            at = at.wrapping_add(size);
        }
        at
    }};
}

/// Whole blocks in a range of memory.
struct Blocks {
    /// Bytes before the first.
    head: usize,
    count: usize,
    /// Bytes behind the last.
    tail: usize,
}

impl Blocks {
    /// Returns the blocks of `block` bytes, a power of two, in `size` bytes from `start`.
    fn new(start: *mut u8, size: usize, block: usize) -> Self {
        let mask = block.wrapping_sub(1);
        let head = (start.addr().wrapping_neg() & mask).min(size);
        let rest = size.wrapping_sub(head);
        Self {
            head,
            count: rest.wrapping_shr(block.trailing_zeros()),
            tail: rest & mask,
        }
    }
}

/// Returns the bytes that `DC ZVA` zeroes (DCZID_EL0.BS, in words), `None` if it is not to be used
/// (DCZID_EL0.DZP).
fn zva_block() -> Option<usize> {
    let id = DCZID_EL0.get();
    (id & 0x10 == 0).then(|| 4_usize.wrapping_shl(id as u32 & 0xf))
}

/// Tells whether the CPU has instructions that set and copy memory of any size (FEAT_MOPS,
/// ID_AA64ISAR2_EL1.MOPS). Init alone uses them: how long the runtime masks interrupts is bounded
/// by the count of its instructions, each of which has to be short.
#[cfg(feature = "boot")]
fn has_memory_instructions() -> bool {
    ID_AA64ISAR2_EL1.get() >> 16 & 0xf != 0
}

/// Fills `size` bytes from `start` with zeroes.
///
/// # Safety
///
/// As for [`zero`], and the CPU has [`has_memory_instructions`].
#[cfg(feature = "boot")]
unsafe fn zero_at_once(start: *mut u8, size: usize) {
    // SAFETY: stores to the caller's bytes. The three belong together (Arm ARM C3.2.14).
    unsafe {
        asm!(
            ".arch_extension mops",
            "setp [{to}]!, {left}!, xzr",
            "setm [{to}]!, {left}!, xzr",
            "sete [{to}]!, {left}!, xzr",
            ".arch_extension nomops",
            to = inout(reg) start => _,
            left = inout(reg) size => _,
            options(nostack),
        );
    }
}

/// Copies `size` bytes.
///
/// # Safety
///
/// As for [`copy`], and the CPU has [`has_memory_instructions`].
#[cfg(feature = "boot")]
unsafe fn copy_at_once(from: *const u8, to: *mut u8, size: usize) {
    // SAFETY: loads from and stores to the caller's bytes, from the first on.
    unsafe {
        asm!(
            ".arch_extension mops",
            "cpyfp [{to}]!, [{from}]!, {left}!",
            "cpyfm [{to}]!, [{from}]!, {left}!",
            "cpyfe [{to}]!, [{from}]!, {left}!",
            ".arch_extension nomops",
            to = inout(reg) to => _,
            from = inout(reg) from => _,
            left = inout(reg) size => _,
            options(nostack),
        );
    }
}

/// Fills `size` bytes from `start` with zeroes; whole blocks by `DC ZVA`, which fetches no lines.
///
/// # Safety
///
/// The bytes are mapped as Normal memory, writable, and nothing else refers to them. `DC ZVA` of
/// Device memory would be an alignment fault (Arm ARM C5.3, DC ZVA).
#[inline(never)]
pub(crate) unsafe fn zero(start: *mut u8, size: usize) {
    #[cfg(feature = "boot")]
    if has_memory_instructions() {
        // SAFETY: the caller's conditions, and the CPU has the instructions.
        return unsafe { zero_at_once(start, size) };
    }
    let Some(block) = zva_block() else {
        // SAFETY: the caller's conditions.
        return unsafe { zero_by_pairs(start, size) };
    };
    let Blocks { head, count, tail } = Blocks::new(start, size, block);
    // SAFETY: the bytes before the first block are the caller's.
    unsafe { zero_by_pairs(start, head) };
    // SAFETY: DC ZVA zeroes the whole block that holds the address. The first address is aligned to
    // a block, and so many blocks are the caller's.
    let rest = unsafe { for_each_block!(["dc zva"], 2, start.wrapping_add(head), block, count) };
    // SAFETY: the bytes behind the last block are the caller's.
    unsafe { zero_by_pairs(rest, tail) };
}

/// Fills `size` bytes from `start` with zeroes, 64 bytes a round.
///
/// # Safety
///
/// As for [`zero`].
#[inline(never)]
unsafe fn zero_by_pairs(start: *mut u8, size: usize) {
    let rounds = size / PAIRS;
    if rounds != 0 {
        // SAFETY: stores to the first bytes from `start`, which are the caller's.
        unsafe {
            // Bound: bytes of a window (64 KiB) / 64; init's ranges are as long as its VMs.
            asm!(
                "2: stp xzr, xzr, [{to}]",
                "stp xzr, xzr, [{to}, #16]",
                "stp xzr, xzr, [{to}, #32]",
                "stp xzr, xzr, [{to}, #48]",
                "add {to}, {to}, #64",
                "subs {left}, {left}, #1",
                "b.ne 2b",
                to = inout(reg) start => _,
                left = inout(reg) rounds => _,
                options(nostack),
            );
        }
    }
    let rest = start.wrapping_add(rounds.wrapping_mul(PAIRS));
    // SAFETY: the bytes behind the last round, as above.
    unsafe { ptr::write_bytes(rest, 0, size % PAIRS) };
}

/// Cleans and invalidates the lines of `size` bytes from `start` to the point of coherency, and
/// waits for it (Arm ARM D7.5.9).
///
/// # Safety
///
/// The bytes are mapped.
#[inline(never)]
pub(crate) unsafe fn clean(start: *mut u8, size: usize) {
    let line = cache::line_size() as usize;
    let before = start.addr() & line.wrapping_sub(1);
    if size != 0 {
        let first = start.wrapping_sub(before);
        let bytes = before.wrapping_add(size).wrapping_add(line.wrapping_sub(1));
        let count = bytes.wrapping_shr(line.trailing_zeros());
        // SAFETY: each line holds a byte of the caller's, and maintenance by address loses nothing:
        // the lines are cleaned, never only invalidated.
        unsafe { for_each_block!(["dc civac"], 4, first, line, count) };
    }
    barrier::dsb_sy();
}

/// Fills `size` bytes with zeroes in memory, and not only in caches: as [`zero`], then [`clean`],
/// but in one pass where both have blocks of one size. DC CIVAC of a location is in program order
/// behind stores to the location, of which DC ZVA is one (Arm ARM D7.5.9).
///
/// # Safety
///
/// As for [`zero`].
#[cfg(feature = "boot")]
pub(crate) unsafe fn wipe(start: *mut u8, size: usize) {
    let line = cache::line_size() as usize;
    if has_memory_instructions() || zva_block() != Some(line) {
        // SAFETY: the caller's conditions.
        unsafe { zero(start, size) };
        // SAFETY: as above.
        return unsafe { clean(start, size) };
    }
    let Blocks { head, count, tail } = Blocks::new(start, size, line);
    // SAFETY: the bytes before the first block are the caller's.
    unsafe { zero_by_pairs(start, head) };
    // SAFETY: as above.
    unsafe { clean(start, head) };
    let first = start.wrapping_add(head);
    // SAFETY: as in `zero` and in `clean`: so many whole blocks are the caller's.
    let rest = unsafe { for_each_block!(["dc zva", "dc civac"], 4, first, line, count) };
    // SAFETY: the bytes behind the last block are the caller's.
    unsafe { zero_by_pairs(rest, tail) };
    // SAFETY: as above. Its barrier waits for the lines before, too.
    unsafe { clean(rest, tail) };
}

/// Copies `size` bytes. Neither address needs to be aligned.
///
/// # Safety
///
/// Both ranges are mapped as Normal memory, that of `to` writable; they do not overlap, and nothing
/// else refers to that of `to`.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, size: usize) {
    #[cfg(feature = "boot")]
    if has_memory_instructions() {
        // SAFETY: the caller's conditions, and the CPU has the instructions.
        return unsafe { copy_at_once(from, to, size) };
    }
    let rounds = size / PAIRS;
    if rounds != 0 {
        // SAFETY: loads from and stores to the first bytes, which are the caller's.
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
                left = inout(reg) rounds => _,
                a = out(reg) _,
                b = out(reg) _,
                c = out(reg) _,
                d = out(reg) _,
                options(nostack),
            );
        }
    }
    let done = rounds.wrapping_mul(PAIRS);
    let (from, to) = (from.wrapping_add(done), to.wrapping_add(done));
    // SAFETY: the bytes behind the last round, as above.
    unsafe { ptr::copy_nonoverlapping(from, to, size % PAIRS) };
}
