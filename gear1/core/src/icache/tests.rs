use super::{IcacheTry, MARK};

/// The guest's own ELR_EL1, and that after an exception at the instruction.
const OWN: u64 = 0xffff_8000_1234_5678;
const HERE: u64 = 0xffff_8000_0008_1000;

/// G1-CPU-011: an instruction that is complete at once leaves no trace.
#[test]
fn complete_at_once_changes_nothing() {
    let mut state = IcacheTry::NONE;
    assert_eq!(state.repeated(OWN), None);
    assert_eq!(state.tried(1, OWN, true), OWN);
    assert_eq!(state, IcacheTry::NONE);
}

/// G1-CPU-011: each repetition belongs to the first try, and the last one restores ELR_EL1.
#[test]
fn repetitions_keep_the_request() {
    let mut state = IcacheTry::NONE;
    assert_eq!(state.tried(7, OWN, false), MARK);
    for _ in 0..3 {
        assert_eq!(state.repeated(MARK), Some(7));
        assert_eq!(state.tried(7, MARK, false), MARK);
    }
    assert_eq!(state.repeated(MARK), Some(7));
    assert_eq!(state.tried(7, MARK, true), OWN);
    assert_eq!(state, IcacheTry::NONE);
}

/// G1-CPU-011: an exception between two tries ends the first instruction's claim, wherever the
/// handler executes its own, and whether that one is complete at once or not.
#[test]
fn an_exception_in_between_begins_another_request() {
    for at_once in [false, true] {
        let mut state = IcacheTry::NONE;
        assert_eq!(state.tried(7, OWN, false), MARK);
        // The handler, which was entered with ELR_EL1 at the instruction.
        assert_eq!(state.repeated(HERE), None);
        let mut elr = state.tried(8, HERE, at_once);
        if !at_once {
            assert_eq!(state.repeated(elr), Some(8));
            elr = state.tried(8, elr, true);
        }
        assert_eq!(elr, HERE);
        // The interrupted instruction begins anew.
        assert_eq!(state.repeated(HERE), None);
        assert_eq!(state.tried(9, HERE, true), HERE);
    }
}

/// The mark is nothing to a vCPU with no instruction under way.
#[test]
fn the_mark_alone_is_no_repetition() {
    let mut state = IcacheTry::NONE;
    assert_eq!(state.repeated(MARK), None);
    assert_eq!(state.tried(1, MARK, true), MARK);
}
