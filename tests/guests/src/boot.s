// Entry of the boot CPU and of the others, and the exception vectors.
//
// The image is linked at 0 and runs wherever it was loaded, on a multiple of 4 KiB: code addresses
// everything by PC, and `_entry` adds the load address to every pointer in data before Rust runs.
// Both callers come with the MMU off, at EL1, with x0 = device tree (boot CPU) or = CPU index
// (PSCI CPU_ON's context).

// X18 = all bits that are set in X19 to X29: none at a CPU's start.
    .macro LEFT_OVER
    orr     x18, x19, x20
    .irp    number, 21, 22, 23, 24, 25, 26, 27, 28, 29
    orr     x18, x18, x\number
    .endr
    .endm

    .section .head, "ax"
    .global _head
_head:                                  // Linux arm64 Image header: QEMU's -kernel wants it
    b       _entry
    .word   0
    .quad   0                           // text offset
    .quad   _image_size - _head
    .quad   0xa                         // little endian, 4 KiB pages, anywhere in memory
    .quad   0, 0, 0
    .ascii  "ARM\x64"
    .word   0

_entry:
    mrs     x17, cntpct_el0             // the second instruction of all
    isb
    mrs     x16, cntvct_el0
    isb
    mrs     x15, cntpct_el0
    LEFT_OVER
    adr     x20, _head                  // where 0 came to lie
    adrp    x1, _rela_start
    add     x1, x1, :lo12:_rela_start
    adrp    x2, _rela_end
    add     x2, x2, :lo12:_rela_end
1:  cmp     x1, x2
    b.hs    2f
    ldp     x3, x4, [x1], #16           // offset, type
    ldr     x5, [x1], #8                // addend
    cmp     x4, #0x403                  // R_AARCH64_RELATIVE
    b.ne    .                           // the linker made a relocation nobody expected
    add     x5, x5, x20
    str     x5, [x20, x3]
    b       1b
2:  adrp    x1, _bss_start
    add     x1, x1, :lo12:_bss_start
    adrp    x2, _bss_end
    add     x2, x2, :lo12:_bss_end
3:  stp     xzr, xzr, [x1], #16
    cmp     x1, x2
    b.lo    3b
    adrp    x1, FIRST_COUNTS
    add     x1, x1, :lo12:FIRST_COUNTS
    stp     x17, x16, [x1]
    str     x15, [x1, #16]
    adrp    x1, LEFT_OVER_REGISTERS
    str     x18, [x1, :lo12:LEFT_OVER_REGISTERS]
    mov     x19, x0
    mov     x20, #0
    bl      cpu_setup
    mov     x0, x19
    b       boot_cpu_main

    .global _secondary
_secondary:
    LEFT_OVER
    adrp    x1, LEFT_OVER_REGISTERS
    add     x1, x1, :lo12:LEFT_OVER_REGISTERS
    ldr     x2, [x1]
    orr     x18, x18, x2
    str     x18, [x1]
    mov     x20, x0
    bl      cpu_setup
    mov     x0, x20
    b       other_cpu_main

// In: x20 = CPU index. Sets the stack, the vectors and the identity map. Clobbers x1, x2.
cpu_setup:
    adrp    x1, STACKS
    add     x1, x1, :lo12:STACKS
    add     x2, x20, #1
    add     x1, x1, x2, lsl #15         // 32 KiB each
    mov     sp, x1
    msr     tpidr_el1, x20
    adrp    x1, vectors
    add     x1, x1, :lo12:vectors
    msr     vbar_el1, x1
    adrp    x1, IDENTITY_MAP
    add     x1, x1, :lo12:IDENTITY_MAP
    msr     ttbr0_el1, x1
    ldr     x1, =0xff04                 // attribute 0 Device-nGnRE, 1 Normal write-back
    msr     mair_el1, x1
    ldr     x1, =0x200803519            // 39 bits, 4 KiB, write-back, inner shareable, no TTBR1
    msr     tcr_el1, x1
    tlbi    vmalle1
    ic      iallu
    dsb     nsh
    isb
    ldr     x1, =0x30d01805             // M, C, I and the bits that are one
    msr     sctlr_el1, x1
    isb
    ret
    .ltorg

// One vector: room for `Frame`, and the vector's number in x0.
    .macro vector number
    .balign 128
    sub     sp, sp, #288
    stp     x0, x1, [sp]
    mov     x0, #\number
    b       exception_common
    .endm

    .section .text.vectors, "ax"
    .balign 2048
    .global vectors
vectors:
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    vector  \number
    .endr

exception_common:
    stp     x2, x3, [sp, #16]
    stp     x4, x5, [sp, #32]
    stp     x6, x7, [sp, #48]
    stp     x8, x9, [sp, #64]
    stp     x10, x11, [sp, #80]
    stp     x12, x13, [sp, #96]
    stp     x14, x15, [sp, #112]
    stp     x16, x17, [sp, #128]
    stp     x18, x19, [sp, #144]
    stp     x20, x21, [sp, #160]
    stp     x22, x23, [sp, #176]
    stp     x24, x25, [sp, #192]
    stp     x26, x27, [sp, #208]
    stp     x28, x29, [sp, #224]
    mrs     x1, elr_el1
    mrs     x2, spsr_el1
    stp     x30, x1, [sp, #240]
    mrs     x1, esr_el1
    stp     x2, x1, [sp, #256]
    mrs     x1, far_el1
    str     x1, [sp, #272]
    mov     x1, sp
    bl      exception
    ldp     x30, x1, [sp, #240]
    ldr     x2, [sp, #256]
    msr     elr_el1, x1
    msr     spsr_el1, x2
    ldp     x2, x3, [sp, #16]
    ldp     x4, x5, [sp, #32]
    ldp     x6, x7, [sp, #48]
    ldp     x8, x9, [sp, #64]
    ldp     x10, x11, [sp, #80]
    ldp     x12, x13, [sp, #96]
    ldp     x14, x15, [sp, #112]
    ldp     x16, x17, [sp, #128]
    ldp     x18, x19, [sp, #144]
    ldp     x20, x21, [sp, #160]
    ldp     x22, x23, [sp, #176]
    ldp     x24, x25, [sp, #192]
    ldp     x26, x27, [sp, #208]
    ldp     x28, x29, [sp, #224]
    ldp     x0, x1, [sp]
    add     sp, sp, #288
    eret

// Turns the MMU and the data cache off: what the cache holds of the image goes to memory first,
// and nothing is written between that and the switch. Clobbers x0 to x2.
    .section .text.mmu, "ax"
    .global mmu_off
mmu_off:
    adrp    x0, _head
    adrp    x1, _bss_end
1:  dc      civac, x0
    add     x0, x0, #16                 // no cache line is shorter
    cmp     x0, x1
    b.lo    1b
    dsb     sy
    mrs     x2, sctlr_el1
    and     x2, x2, #~4                 // C
    and     x2, x2, #~1                 // M
    msr     sctlr_el1, x2
    isb
    ret

    .global mmu_on
mmu_on:
    mrs     x2, sctlr_el1
    orr     x2, x2, #4                  // C
    orr     x2, x2, #1                  // M
    msr     sctlr_el1, x2
    isb
    ret

// Identity map of 512 GiB in blocks of 1 GiB: devices below 1 GiB, Normal memory above, as on
// QEMU's `virt`. What the VM does not own is mapped too: that stage 2 stops it is under test.
    .section .rodata.map, "a"
    .balign 4096
IDENTITY_MAP:
    .quad   0x60000000000401            // Device, execute-never
    .set    address, 0x40000000
    .rept   511
    .quad   address + 0x705             // Normal write-back, inner shareable, executable
    .set    address, address + 0x40000000
    .endr

    .bss
    .balign 8
    .global LEFT_OVER_REGISTERS
LEFT_OVER_REGISTERS:
    .quad   0
    .balign 4096
STACKS:
    .space  8 * 32768
