use super::*;

#[test]
fn instructions_are_told_apart() {
    for (word, in_mmio, kind) in [
        (0xd53c_5200, false, Kind::Register),    // mrs x0, esr_el2
        (0xd51c_1100, false, Kind::Register),    // msr hcr_el2, x0
        (0xd51c_cc00, false, Kind::GicRegister), // msr ich_lr0_el2, x0
        (0xd538_cc00, false, Kind::GicRegister), // mrs x0, icc_iar1_el1
        (0xd503_3fdf, false, Kind::Barrier),     // isb
        (0xd503_3f9f, false, Kind::Barrier),     // dsb sy
        (0xd503_203f, false, Kind::Other),       // yield
        (0xd69f_03e0, false, Kind::Return),      // eret
        (0xb940_0000, true, Kind::GicMemory),    // ldr w0, [x0]
        (0xb940_0000, false, Kind::Other),
        (0x9100_0400, true, Kind::Other), // add x0, x0, #1
    ] {
        assert_eq!(Kind::of(word, in_mmio), kind, "{word:#x}");
    }
}
