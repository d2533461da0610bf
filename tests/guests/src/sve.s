// Loads and stores all SVE state but ZCR_EL1. In: x0 = vectors, predicates, FFR. Clobbers x1.
    .arch_extension sve

    .macro each_vector instruction
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    \instruction z\n, [x0, #\n, mul vl]
    .endr
    .endm

    .macro each_predicate instruction
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    \instruction p\n, [x0, #\n, mul vl]
    .endr
    .endm

    .section .text.sve, "ax"
sve_load:
    each_vector ldr
    rdvl    x1, #16
    add     x0, x0, x1, lsl #1
    ldr     p0, [x0, #16, mul vl]
    wrffr   p0.b
    each_predicate ldr
    ret
sve_store:
    each_vector str
    rdvl    x1, #16
    add     x0, x0, x1, lsl #1
    each_predicate str
    rdffr   p0.b
    str     p0, [x0, #16, mul vl]
    ldr     p0, [x0]
    ret
