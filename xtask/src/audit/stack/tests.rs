//! Stack use of functions given as words.

use super::super::code::{Function, Functions};
use super::Stacks;

const PUSH_32: u32 = 0xd100_83ff; // sub sp, sp, #32
const POP_32: u32 = 0x9100_83ff; // add sp, sp, #32
const MOV_SP: u32 = 0x9100_003f; // mov sp, x1
const RET: u32 = 0xd65f_03c0;
const SKIP: u32 = 0xb400_0040; // cbz x0, .+8

/// Returns `BL` or `B` with an offset of `by` instructions.
fn branch(opcode: u32, by: i32) -> u32 {
    opcode | (by as u32 & 0x3ff_ffff)
}

const BL: u32 = 0x9400_0000;
const B: u32 = 0x1400_0000;

/// Returns what `first` needs; the functions follow each other from address 0.
fn worst(functions: &[(&str, &[u32])]) -> anyhow::Result<super::Worst> {
    let mut at = 0;
    let mut all = Functions::default();
    for (name, words) in functions {
        let addressed = (at..).step_by(4).zip(words.iter().copied());
        all.0
            .insert(at, Function::new((*name).to_owned(), true, addressed));
        at += 4 * words.len() as u64;
    }
    Stacks::new(&all).worst(0)
}

#[test]
fn the_deepest_chain_counts() {
    let main = [PUSH_32, branch(BL, 3), POP_32, branch(B, 4)];
    let leaf = [PUSH_32, POP_32, RET];
    let tail = [PUSH_32, PUSH_32, PUSH_32, POP_32, POP_32, POP_32, RET];
    let worst = worst(&[("main", &main), ("leaf", &leaf), ("tail", &tail)]).unwrap();
    assert_eq!(
        (worst.bytes, worst.chain),
        (96, vec!["main".into(), "tail".into()])
    );
}

#[test]
fn recursion_is_found_however_long_the_way() {
    let one = [branch(BL, 2), RET];
    let two = [branch(BL, -2), RET];
    let error = worst(&[("one", &one), ("two", &two)]).unwrap_err();
    assert!(
        format!("{error:#}").contains("one calls itself"),
        "{error:#}"
    );
}

#[test]
fn a_stack_of_unknown_depth_is_refused() {
    let error = worst(&[("main", &[MOV_SP, RET])]).unwrap_err();
    assert!(error.to_string().contains("something unknown"), "{error}");
    let error = worst(&[("main", &[SKIP, PUSH_32, RET])]).unwrap_err();
    assert!(error.to_string().contains("two depths"), "{error}");
    let error = worst(&[("main", &[POP_32, RET])]).unwrap_err();
    assert!(error.to_string().contains("more is popped"), "{error}");
}
