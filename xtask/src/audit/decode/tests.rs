//! Words as an assembler makes them.

use super::{Exclusive, Flow, Stack, compared, exclusive, flow, stack};

#[test]
fn branches_know_where_they_go() {
    let at = 0x8000_0000_1000;
    for (word, expected) in [
        (0x1400_0002, Flow::Jump(at + 8)),   // b .+8
        (0x17ff_ffff, Flow::Jump(at - 4)),   // b .-4
        (0x97ff_fffe, Flow::Call(at - 8)),   // bl .-8
        (0x54ff_ffe1, Flow::Branch(at - 4)), // b.ne .-4
        (0xb500_0040, Flow::Branch(at + 8)), // cbnz x0, .+8
        (0x3607_ffe0, Flow::Branch(at - 4)), // tbz w0, #0, .-4
        (0xd65f_03c0, Flow::Return),         // ret
        (0xd69f_03e0, Flow::End),            // eret
        (0xd420_0020, Flow::End),            // brk #1
        (0x0000_0000, Flow::End),            // udf #0
        (0xd63f_0100, Flow::IndirectCall),   // blr x8
        (0xd61f_0100, Flow::IndirectJump),   // br x8
        (0xd71f_0911, Flow::IndirectJump),   // braa x8, x17
        (0xd503_201f, Flow::Next),           // nop
        (0xd400_0002, Flow::Next),           // hvc #0
        (0xf940_0000, Flow::Next),           // ldr x0, [x0]
    ] {
        assert_eq!(flow(at, word), expected, "{word:#010x}");
    }
}

#[test]
fn the_stack_pointer_is_followed() {
    for (word, expected) in [
        (0xd101_03ff, Stack::Moves(-64)),  // sub sp, sp, #64
        (0x9140_07ff, Stack::Moves(4096)), // add sp, sp, #1, lsl #12
        (0xa9bf_7bfd, Stack::Moves(-16)),  // stp x29, x30, [sp, #-16]!
        (0xa8c2_7bfd, Stack::Moves(32)),   // ldp x29, x30, [sp], #32
        (0xf81e_0ffe, Stack::Moves(-32)),  // str x30, [sp, #-32]!
        (0xf842_07fe, Stack::Moves(32)),   // ldr x30, [sp], #32
        (0x9100_003f, Stack::Replaces),    // mov sp, x1
        (0xcb21_63ff, Stack::Replaces),    // sub sp, sp, x1
        (0x927c_ec1f, Stack::Replaces),    // and sp, x0, #~15
        (0xa901_7bfd, Stack::Keeps),       // stp x29, x30, [sp, #16]
        (0xf900_0bfe, Stack::Keeps),       // str x30, [sp, #16]
        (0xf860_0be0, Stack::Keeps),       // a form without write-back
        (0x9100_43fd, Stack::Keeps),       // add x29, sp, #16
        (0xf100_03ff, Stack::Keeps),       // cmp sp, #0 would write XZR
    ] {
        assert_eq!(stack(word), expected, "{word:#010x}");
    }
}

#[test]
fn uses_of_the_exclusive_monitor_are_told_from_others() {
    let store = |status| Some(Exclusive::Store { status });
    for (word, expected) in [
        (0xc800_7c20, store(0)),              // stxr w0, x0, [x1]
        (0x8809_fc20, store(9)),              // stlxr w9, w0, [x1]
        (0xc85f_fc20, Some(Exclusive::Load)), // ldaxr x0, [x1]
        (0x085f_7c20, Some(Exclusive::Load)), // ldxrb w0, [x1]
        (0xc8a0_7c41, None),                  // cas x0, x1, [x2]
        (0xc89f_fc20, None),                  // stlr x0, [x1]
        (0xf900_0020, None),                  // str x0, [x1]
    ] {
        assert_eq!(exclusive(word), expected, "{word:#010x}");
    }
}

#[test]
fn a_branch_by_a_comparison_with_zero_names_its_register() {
    let of = |word| compared(word).map(|of| (of.register, of.unless_zero));
    assert_eq!(of(0x35ff_ffa9), Some((9, true))); // cbnz w9, -12
    assert_eq!(of(0xb500_0040), Some((0, true))); // cbnz x0, 8
    assert_eq!(of(0x34ff_ffa9), Some((9, false))); // cbz w9, -12
    assert_eq!(of(0x5400_0041), None); // b.ne 8
}
