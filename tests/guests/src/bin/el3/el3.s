// Start at EL3 from flash, with all registers of QEMU's reset, and the handler of SMC. One CPU.
//
// Memory: the counter is the word at the start of the secure RAM, which `virt` has with secure=on,
// out of reach of EL2. SP_EL3 is the address of that word, with room for saved registers behind.

    .set    GICD, 0x08000000
    .set    GICR, 0x080a0000
    .set    SECURE_RAM, 0x0e000000
    .set    UART, 0x09000000
    .set    POWER, 0x090b0000           // the secure PL061: line 0 turns the machine off
    .set    TREE, 0x40000000
    .set    IMAGE, 0x40200000

    .section .head, "ax"
    .global _head
_head:
    ldr     x0, =SECURE_RAM
    mov     sp, x0
    str     xzr, [sp]
    adr     x0, vectors
    msr     vbar_el3, x0

    // All interrupts are of group 1 of the non-secure state (IHI 0069, 4.6), or EL2 would see none.
    ldr     x0, =GICD
    mov     w1, #0x30                   // GICD_CTLR: ARE_NS, ARE_S
    str     w1, [x0]
    mov     w1, #-1
    mov     w2, #1
1:  add     x3, x0, w2, uxtw #2
    str     w1, [x3, #0x80]             // GICD_IGROUPR1 and on
    add     w2, w2, #1
    cmp     w2, #32
    b.lo    1b
    ldr     x0, =GICR
    str     wzr, [x0, #0x14]            // GICR_WAKER, which EL2 cannot write
2:  ldr     w2, [x0, #0x14]
    tbnz    w2, #2, 2b                  // ChildrenAsleep
    add     x0, x0, #0x10000
    str     w1, [x0, #0x80]             // GICR_IGROUPR0
    mov     x1, #0xf
    msr     S3_6_C12_C12_5, x1          // ICC_SRE_EL3: registers, also below
    isb
    mov     x1, #0xff
    msr     S3_0_C4_C6_0, x1            // ICC_PMR_EL1: in the non-secure half, or EL2 cannot write

    msr     cptr_el3, xzr
    msr     mdcr_el3, xzr
    ldr     x1, =0x30c50830             // SCTLR_EL2: the bits that are one
    msr     sctlr_el2, x1
    mov     x1, #0x80000000             // HCR_EL2: EL1 is AArch64
    msr     hcr_el2, x1
    mov     x1, #0x531                  // SCR_EL3: NS, HCE, RW, and the bits that are one
    msr     scr_el3, x1
    mov     x1, #0x3c9                  // EL2h, DAIF masked
    msr     spsr_el3, x1
    ldr     x1, =IMAGE
    msr     elr_el3, x1
    isb
    ldr     x0, =TREE
    mov     x1, #0
    mov     x2, #0
    mov     x3, #0
    eret
    .ltorg

// Branches if a register is a function's identifier. W2 is lost.
    .macro on register, function, label
    ldr     w2, =\function
    cmp     \register, w2
    b.eq    \label
    .endm

    .text
    .balign 2048
vectors:
    .space  0x400                       // exceptions of EL3 itself: none
    b       called                      // synchronous, from a lower EL in AArch64

// X0 and X1 are the call; X4 and on stay as they are (SMCCC 1.1).
called:
    on      w0, 0x80003fff, count       // SMCCC_ARCH_WORKAROUND_3
    on      w0, 0x80008000, tell        // SMCCC_ARCH_WORKAROUND_1
    on      w0, 0x80000001, features    // SMCCC_ARCH_FEATURES
    on      w0, 0x80000002, soc         // SMCCC_ARCH_SOC_ID
    on      w0, 0x84000000, version     // PSCI_VERSION
    on      w0, 0x80000000, version     // SMCCC_VERSION
    on      w0, 0x8400000a, success     // PSCI_FEATURES
    on      w0, 0xc4000053, ones        // TRNG_RND, SMC64
    on      w0, 0x84000053, empty       // TRNG_RND, SMC32
    on      w0, 0x84000052, uuid        // TRNG_GET_UUID
    on      w0, 0x84000051, success     // TRNG_FEATURES
    on      w0, 0x84000050, version_1   // TRNG_VERSION
    on      w0, 0x84000008, off         // SYSTEM_OFF
refuse:
    mov     x0, #-1
    eret
success:
    mov     x0, #0
    eret
version:                                // 1.1 of either
    ldr     w0, =0x10001
    eret
features:                               // the workarounds and the SoC
    on      w1, 0x80003fff, success
    on      w1, 0x80007fff, success
    on      w1, 0x80008000, success
    on      w1, 0x80000002, success
    b       refuse
soc:                                    // version 0x04268123, revision 7
    ldr     w0, =0x04268123
    cbz     w1, 1f
    mov     w0, #7
1:  eret
// Random numbers: all ones, more than anybody asks for, and more than a word as the status.
ones:
    mov     x0, #0x5a5a00000000
    b       fill
empty:                                  // NO_ENTROPY
    mov     x0, #0x5a5a00000000
    orr     x0, x0, #0xffffffff
    eor     x0, x0, #2
fill:
    mov     x1, #-1
    mov     x2, #-1
    mov     x3, #-1
    eret
uuid:
    ldr     x0, =0x5a5a12345678
    ldr     x1, =0x5a5a9abcdef0
    ldr     x2, =0x5a5a0fedcba9
    ldr     x3, =0x5a5a87654321
    eret
version_1:
    mov     w0, #0x10000
    eret
count:
    ldr     x2, [sp]
    add     x2, x2, #1
    str     x2, [sp]
    eret

// Workaround 1 is the guest's mark: it tells how often workaround 3 was called so far.
tell:
    stp     x4, x30, [sp, #16]
    bl      print
    ldp     x4, x30, [sp, #16]
    eret
off:
    bl      print
    ldr     x2, =POWER
    mov     w3, #1
    str     w3, [x2, #0x400]            // GPIODIR
    str     w3, [x2, #4]                // GPIODATA of line 0
    b       .

// Prints a line with the counter in hexadecimal. The UART of QEMU is never full. Clobbers X0 to X4.
print:
    ldr     x0, =UART
    adr     x1, text
1:  ldrb    w2, [x1], #1
    cbz     w2, 2f
    str     w2, [x0]
    b       1b
2:  ldr     x1, [sp]
    mov     w3, #28
3:  lsr     x2, x1, x3
    and     w2, w2, #0xf
    cmp     w2, #10
    add     w4, w2, #'0'
    add     w2, w2, #'a' - 10
    csel    w2, w4, w2, lo
    str     w2, [x0]
    subs    w3, w3, #4
    b.pl    3b
    mov     w2, #'\n'
    str     w2, [x0]
    ret
    .ltorg
text:
    .asciz  "\nfirmware: calls 0x"
    .balign 4
