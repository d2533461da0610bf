//! Loops of functions given as words, and names.

use super::super::code::Function;
use super::{body, is_retry, returns, short};

const NOP: u32 = 0xd503_201f;
const RET: u32 = 0xd65f_03c0;
const STXR: u32 = 0xc800_7c20;
const BL: u32 = 0x9400_0100;

/// Returns `CBNZ X0` with an offset of `by` instructions.
fn back(by: i32) -> u32 {
    0xb500_0000 | (by as u32 & 0x7_ffff) << 5
}

fn function(words: &[u32]) -> Function {
    let words = (0..).step_by(4).zip(words.iter().copied());
    Function::new("f".to_owned(), true, words)
}

#[test]
fn nested_loops_are_two_and_a_way_forward_is_none() {
    let nested = function(&[NOP, NOP, back(-1), back(-3), RET]);
    let found = returns(0, &nested);
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [0, 4]);
    assert_eq!(
        body(&nested, 4, &found[&4]).into_iter().collect::<Vec<_>>(),
        [4, 8]
    );
    assert!(returns(0, &function(&[back(2), NOP, RET])).is_empty());
}

#[test]
fn an_exclusive_store_in_a_loop_that_calls_is_no_retry() {
    let retry = function(&[NOP, STXR, back(-2), RET]);
    assert!(is_retry(&retry, &[0, 4, 8].into()));
    let calls = function(&[BL, STXR, back(-2), RET]);
    assert!(!is_retry(&calls, &[0, 4, 8].into()));
}

#[test]
fn names_are_cut_to_the_function() {
    for (name, expected) in [
        (
            "gear1_core::vgic::lists::<impl gear1_core::vgic::VmGic>::fill",
            "fill",
        ),
        (
            "<gear1_arch::gicv3::GicV3 as gear1_arch::gic::HostGic>::init_cpu",
            "init_cpu",
        ),
        ("gear1_runtime::next::idle::{{closure}}", "idle"),
        ("gear1_core::ring::Ring::push::h0123456789abcdef", "push"),
        ("memcpy", "memcpy"),
    ] {
        assert_eq!(short(name), expected);
    }
}
