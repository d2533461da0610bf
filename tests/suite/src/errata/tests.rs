use super::*;

const NOP: u32 = 0xd503_201f;
/// LDR X1, [X2, #8]
const LDR: u32 = 0xf940_0441;
/// STP X1, X2, [SP, #16]
const STP: u32 = 0xa901_0be1;
/// LDR Q0, [X0]
const LDR_Q: u32 = 0x3dc0_0000;
/// MADD X0, X1, X2, X3
const MADD: u32 = 0x9b02_0c20;
/// UMADDL X0, W1, W2, X3
const UMADDL: u32 = 0x9ba2_0c20;
/// MUL X0, X1, X2
const MUL: u32 = 0x9b02_7c20;
/// MADD W0, W1, W2, W3
const MADD_W: u32 = 0x1b02_0c20;
/// UMULH X0, X1, X2
const UMULH: u32 = 0x9bc2_7c20;
/// ADRP X8, 0
const ADRP: u32 = 0x9000_0008;
/// LDR X0, [X8, #16]
const LDR_X8: u32 = 0xf940_0900;
/// B .
const B: u32 = 0x1400_0000;

#[test]
fn an_accumulation_behind_an_access_is_found() {
    for access in [LDR, STP, LDR_Q] {
        for accumulate in [MADD, UMADDL] {
            let code = [NOP, access, accumulate, NOP];
            assert_eq!(affected(0x1000, &code), [(0x1004, "835769")]);
        }
    }
}

#[test]
fn what_835769_does_not_name_is_left_alone() {
    for code in [
        [LDR, NOP, MADD],
        [LDR, MUL, NOP],
        [LDR, MADD_W, NOP],
        [LDR, UMULH, NOP],
        [MADD, LDR, NOP],
        [NOP, NOP, LDR],
    ] {
        assert_eq!(affected(0, &code), []);
    }
}

#[test]
fn an_adrp_at_the_end_of_a_page_is_found() {
    for code in [[ADRP, LDR, LDR_X8, NOP], [ADRP, LDR, NOP, LDR_X8]] {
        assert_eq!(affected(0x1ff8, &code), [(0x1ff8, "843419")]);
        assert_eq!(affected(0x1ffc, &code), [(0x1ffc, "843419")]);
        assert_eq!(affected(0x1ff4, &code), []);
    }
}

#[test]
fn what_843419_does_not_name_is_left_alone() {
    for code in [
        [ADRP, NOP, LDR_X8, NOP],
        [ADRP, LDR, B, LDR_X8],
        [ADRP, LDR, NOP, LDR],
        [ADRP, LDR, NOP, NOP],
    ] {
        assert_eq!(affected(0xffc, &code), []);
    }
}
