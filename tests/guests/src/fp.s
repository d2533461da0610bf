// Loads and stores all FP/SIMD state. In: x0 = `Registers`. Clobbers x0 to x2.
    .arch_extension fp
    .arch_extension simd

    .macro each instruction
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    \instruction q\n, [x0], #16
    .endr
    .endm

    .section .text.fp, "ax"
fp_load:
    each    ldr
    ldp     x1, x2, [x0]
    msr     fpcr, x1
    msr     fpsr, x2
    ret
fp_store:
    each    str
    mrs     x1, fpcr
    mrs     x2, fpsr
    stp     x1, x2, [x0]
    ret
