//! The first instructions of Gear1: the arm64 Linux image header (Linux,
//! Documentation/arch/arm64/booting.rst) and the way to init's link address with MMU and caches on.
//!
//! In: X0 = PA of the board's device tree, EL2, MMU and data cache off, image anywhere on 2 MiB.
//! A machine that cannot go on before it could say so stops at the label that says why:
//! `gear1_init_needs_el2` (QEMU: `virtualization=on`), `gear1_init_e2h_is_fixed` (a CPU without
//! nVHE), `gear1_init_misplaced` (not on 2 MiB, or in reach of the link address). Until `.bss` is
//! zero an exception goes to firmware's vectors: init's handler reads statics.
//!
//! Requirements: G1-BOOT-010.

use core::arch::global_asm;

use gear1_core::stage1;

/// RES1 bits of SCTLR_EL2, and M, C, SA and I: MMU, caches and stack alignment checks on.
const SCTLR: u64 = 0x30c5_0830 | 1 << 12 | 1 << 3 | 1 << 2 | 1;
/// A writable, executable block of Normal memory: init's image while it lives.
const BLOCK: u64 = 0x741;

global_asm!(
    r#"
    .section .init.head, "ax"
    b 10f
    .long 0
    .quad 0                 // text_offset
    .quad __image_size
    .quad 0xa               // little-endian, 4 KiB pages, anywhere in memory
    .quad 0, 0, 0
    .ascii "ARM\x64"
    .long 0

// planted: init begins at any exception level
10: msr daifset, #0xf
    mov x19, x0
    mrs x0, CurrentEL
    cmp x0, #8
    b.ne gear1_init_needs_el2
    mov x0, #(1 << 31)      // EL1 is AArch64; E2H = 0, TGE = 0
    msr hcr_el2, x0
    isb
    mrs x0, hcr_el2
    tbnz x0, #34, gear1_init_e2h_is_fixed

    // X20 = PA of the image. It and the link address each take one root entry.
    adrp x20, __image_start
    ldr x21, =__image_start
    tst x20, #0x1fffff
    b.ne gear1_init_misplaced
    lsr x22, x20, #39
    lsr x23, x21, #39
    cmp x22, x23
    b.eq gear1_init_misplaced

    // Root, then levels 1 and 2 for the link address, then for the physical address. The tables are
    // zero in the file. What was loaded is clean by the boot protocol (Linux,
    // Documentation/arch/arm64/booting.rst): no dirty line can be evicted onto the words written
    // here.
    adrp x24, __early_tables
    add x0, x24, #0x1000
    add x1, x24, #0x2000
    mov x2, #{block}
    orr x2, x20, x2
    mov x3, x21
    bl 20f
    add x0, x24, #0x3000
    add x1, x24, #0x4000
    mov x3, x20
    bl 20f

    ldr x0, ={mair}
    msr mair_el2, x0
    mrs x0, id_aa64mmfr0_el1
    and x0, x0, #0xf
    mov x1, #5
    cmp x0, x1
    csel x0, x0, x1, lo
    ldr x1, ={tcr}
    orr x1, x1, x0, lsl #16
    msr tcr_el2, x1
    msr ttbr0_el2, x24
    tlbi alle2
    ic iallu
    dsb sy
    isb
    ldr x0, ={sctlr}
    msr sctlr_el2, x0
    isb
    ldr x0, =12f
    br x0
12: ldr x0, =__stack_top
    mov sp, x0
    mov x29, #0
    mov x30, #0
    bl gear1_init_clear
    // The handler reads statics.
    ldr x0, =gear1_init_vectors
    msr vbar_el2, x0
    isb
    mov x30, #0
    mov x0, x19
    mov x1, x20
    b gear1_init_start

    // Links tables X0 (level 1) and X1 (level 2) below the root X24, and maps the 2 MiB at X3 by
    // the descriptor X2. Lines of the words that were fetched before are stale, and are
    // invalidated. Clobbers X4 to X7.
20: lsr x4, x3, #39
    add x4, x24, x4, lsl #3
    orr x7, x0, #3
    str x7, [x4]
    ubfx x5, x3, #30, #9
    add x5, x0, x5, lsl #3
    orr x7, x1, #3
    str x7, [x5]
    ubfx x6, x3, #21, #9
    add x6, x1, x6, lsl #3
    str x2, [x6]
    dmb sy
    dc civac, x4
    dc civac, x5
    dc civac, x6
    ret

gear1_init_needs_el2:
    wfe
    b gear1_init_needs_el2
gear1_init_e2h_is_fixed:
    wfe
    b gear1_init_e2h_is_fixed
gear1_init_misplaced:
    wfe
    b gear1_init_misplaced
    .ltorg

    // Nothing is expected: any exception is a fault of init's.
    .section .init.vectors, "ax"
    .balign 2048
gear1_init_vectors:
    .rept 16
    .balign 128
    mrs x0, esr_el2
    mrs x1, elr_el2
    mrs x2, far_el2
    b gear1_init_exception
    .endr
    "#,
    block = const BLOCK,
    mair = const stage1::MAIR,
    tcr = const stage1::tcr(0),
    sctlr = const SCTLR,
);
