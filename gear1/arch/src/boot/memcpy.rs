//! Copying, filling and comparing anywhere: the compiler calls `memcpy` for each move of a large
//! value, `memset` for each array that is filled with one byte, and `memcmp` for each comparison of
//! names.
//!
//! The compiler's own copies a word a round, and this target's may not use vector registers. A boot
//! moves hundreds of values of 64 to 1,000 bytes.
//!
//! Requirements: G1-BOOT-004.

use core::arch::naked_asm;

/// Copies `size` bytes, and returns `to`: 64 bytes a round, then the binary digits of what is left.
/// From 512 bytes on by the instructions for memory of any size, on a CPU that has them (FEAT_MOPS,
/// ID_AA64ISAR2_EL1.MOPS).
///
/// Neither address needs to be aligned, so init calls the function with the MMU on only: an access
/// to Normal memory may be unaligned while SCTLR_EL2.A is 0 (Arm ARM B2.8.2).
///
/// # Safety
///
/// As for C's `memcpy`: both ranges are mapped as Normal memory, that of `to` writable, and they do
/// not overlap.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, size: usize) -> *mut u8 {
    naked_asm!(
        ".arch_extension mops",
        "mov x3, x0",
        "lsr x4, x2, #6",
        "cbz x4, 3f",
        "cmp x4, #8",
        "b.hs 10f",
        "2: ldp x5, x6, [x1]",
        "ldp x7, x8, [x1, #16]",
        "ldp x9, x10, [x1, #32]",
        "ldp x11, x12, [x1, #48]",
        "add x1, x1, #64",
        "stp x5, x6, [x3]",
        "stp x7, x8, [x3, #16]",
        "stp x9, x10, [x3, #32]",
        "stp x11, x12, [x3, #48]",
        "add x3, x3, #64",
        "subs x4, x4, #1",
        "b.ne 2b",
        "3: tbz x2, #5, 4f",
        "ldp x5, x6, [x1]",
        "ldp x7, x8, [x1, #16]",
        "add x1, x1, #32",
        "stp x5, x6, [x3]",
        "stp x7, x8, [x3, #16]",
        "add x3, x3, #32",
        "4: tbz x2, #4, 5f",
        "ldp x5, x6, [x1], #16",
        "stp x5, x6, [x3], #16",
        "5: tbz x2, #3, 6f",
        "ldr x5, [x1], #8",
        "str x5, [x3], #8",
        "6: tbz x2, #2, 7f",
        "ldr w5, [x1], #4",
        "str w5, [x3], #4",
        "7: tbz x2, #1, 8f",
        "ldrh w5, [x1], #2",
        "strh w5, [x3], #2",
        "8: tbz x2, #0, 9f",
        "ldrb w5, [x1]",
        "strb w5, [x3]",
        "9: ret",
        "10: mrs x5, id_aa64isar2_el1",
        "ubfx x5, x5, #16, #4",
        "cbz x5, 2b",
        "cpyfp [x3]!, [x1]!, x2!",
        "cpyfm [x3]!, [x1]!, x2!",
        "cpyfe [x3]!, [x1]!, x2!",
        "ret",
        ".arch_extension nomops",
    )
}

/// Fills `size` bytes with a byte, and returns `to`: 64 bytes a round, then the binary digits of
/// what is left; from 512 bytes on as [`memcpy`]. The compiler's own function takes a word a round.
///
/// # Safety
///
/// As for C's `memset`: the range is mapped as Normal memory, writable. The MMU is on, as for
/// [`memcpy`].
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, size: usize) -> *mut u8 {
    naked_asm!(
        ".arch_extension mops",
        "mov x3, x0",
        "and x1, x1, #0xff",
        "mov x4, #0x0101010101010101",
        "mul x1, x1, x4",
        "lsr x4, x2, #6",
        "cbz x4, 3f",
        "cmp x4, #8",
        "b.hs 10f",
        "2: stp x1, x1, [x3]",
        "stp x1, x1, [x3, #16]",
        "stp x1, x1, [x3, #32]",
        "stp x1, x1, [x3, #48]",
        "add x3, x3, #64",
        "subs x4, x4, #1",
        "b.ne 2b",
        "3: tbz x2, #5, 4f",
        "stp x1, x1, [x3], #16",
        "stp x1, x1, [x3], #16",
        "4: tbz x2, #4, 5f",
        "stp x1, x1, [x3], #16",
        "5: tbz x2, #3, 6f",
        "str x1, [x3], #8",
        "6: tbz x2, #2, 7f",
        "str w1, [x3], #4",
        "7: tbz x2, #1, 8f",
        "strh w1, [x3], #2",
        "8: tbz x2, #0, 9f",
        "strb w1, [x3]",
        "9: ret",
        "10: mrs x5, id_aa64isar2_el1",
        "ubfx x5, x5, #16, #4",
        "cbz x5, 2b",
        "setp [x3]!, x2!, x1",
        "setm [x3]!, x2!, x1",
        "sete [x3]!, x2!, x1",
        "ret",
        ".arch_extension nomops",
    )
}

/// Compares the `size` bytes at `one` and at `other` as C's `memcmp` does: a word a round, then the
/// binary digits of what is left. The compiler's own function compares a byte a round, and a boot
/// compares names of ten to twenty bytes thousands of times.
///
/// # Safety
///
/// As for C's `memcmp`: both ranges are mapped as Normal memory.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, size: usize) -> i32 {
    naked_asm!(
        "subs x2, x2, #8",
        "b.lo 3f",
        "2: ldr x3, [x0], #8",
        "ldr x4, [x1], #8",
        "cmp x3, x4",
        "b.ne 8f",
        "subs x2, x2, #8",
        "b.hs 2b",
        "3: tbz x2, #2, 4f",
        "ldr w3, [x0], #4",
        "ldr w4, [x1], #4",
        "cmp w3, w4",
        "b.ne 8f",
        "4: tbz x2, #1, 5f",
        "ldrh w3, [x0], #2",
        "ldrh w4, [x1], #2",
        "cmp w3, w4",
        "b.ne 8f",
        "5: tbz x2, #0, 7f",
        "ldrb w3, [x0]",
        "ldrb w4, [x1]",
        "cmp w3, w4",
        "b.ne 8f",
        "7: mov w0, wzr",
        "ret",
        // The first byte that differs decides, which is the lowest.
        "8: rev x3, x3",
        "rev x4, x4",
        "cmp x3, x4",
        "cset w0, hi",
        "csinv w0, w0, wzr, hs",
        "ret",
    )
}
