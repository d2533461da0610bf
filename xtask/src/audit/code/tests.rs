//! Functions that never come back, given as words.

use super::super::decode::Flow;
use super::{Function, Functions};

const RET: u32 = 0xd65f_03c0;
const WFI: u32 = 0xd503_207f;

/// Returns `B` or `BL` with an offset of `by` instructions.
fn branch(opcode: u32, by: i32) -> u32 {
    opcode | (by as u32 & 0x3ff_ffff)
}

const B: u32 = 0x1400_0000;
const BL: u32 = 0x9400_0000;

#[test]
fn what_stands_behind_a_call_that_never_comes_back_is_not_reached_from_it() {
    let functions: [&[u32]; 5] = [
        // Calls what ends in an endless loop, and what comes back by the end of another.
        &[branch(BL, 3), branch(BL, 6), RET],
        &[branch(BL, 2), RET],
        &[WFI, branch(B, -1)],
        &[branch(B, 1)],
        &[RET],
    ];
    let mut all = Functions::default();
    let mut at = 0;
    for words in functions {
        let addressed = (at..).step_by(4).zip(words.iter().copied());
        all.0
            .insert(at, Function::new(String::new(), true, addressed));
        at += 4 * words.len() as u64;
    }
    all.find_last_calls();
    let flow = |address| {
        let holder = all.holder(address).unwrap();
        all.0[&holder].instructions[&address].flow
    };
    assert_eq!(flow(0), Flow::LastCall(12));
    assert_eq!(flow(4), Flow::Call(28));
    assert_eq!(flow(12), Flow::LastCall(20));
    assert_eq!(all.0[&0].successors(0), [0; 0]);
}
