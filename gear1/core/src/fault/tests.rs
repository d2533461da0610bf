use super::{NESTED_LIMIT, Nesting, walk_level};
use crate::syndrome::Entry;

const VBAR: u64 = 0x4000_0800;
const EL1H: u64 = 0x3c5;

fn entry(pstate: u64) -> Entry {
    Entry::synchronous(pstate, 0, false)
}

/// G1-FLT-004: a handler that cannot be fetched is entered again and again by nothing but itself.
#[test]
fn a_handler_that_is_not_there_is_noticed_at_once() {
    let mut nesting = Nesting::NONE;
    assert!(!nesting.note(0x1000, VBAR, entry(EL1H), true), "elsewhere");
    assert!(nesting.note(VBAR + 0x200, VBAR, entry(EL1H), true));
}

/// G1-FLT-004: from EL0, and with SP_EL0, another vector is entered: that one may be there.
#[test]
fn another_vector_may_be_there() {
    let mut nesting = Nesting::NONE;
    for _ in 0..2 * NESTED_LIMIT {
        assert!(
            !nesting.note(VBAR + 0x200, VBAR, entry(0x3c4), true),
            "EL1t"
        );
        assert!(!nesting.note(VBAR + 0x400, VBAR, entry(0), true), "EL0");
    }
}

/// G1-FLT-004: the handler's own instruction faults.
#[test]
fn a_handler_that_faults_by_itself_is_noticed_after_some_rounds() {
    let mut nesting = Nesting::NONE;
    let pc = VBAR + 0x204;
    for round in 1..NESTED_LIMIT {
        assert!(!nesting.note(pc, VBAR, entry(EL1H), false), "round {round}");
        assert!(!nesting.is_stuck(pc));
    }
    assert!(nesting.note(pc, VBAR, entry(EL1H), false));
    assert!(nesting.is_stuck(pc) && !nesting.is_stuck(pc + 4));
}

/// G1-FLT-004: anything in between begins the count anew.
#[test]
fn a_handler_that_gets_further_is_left_alone() {
    let mut nesting = Nesting::NONE;
    let (pc, other) = (VBAR + 0x204, VBAR + 0x208);
    for _ in 0..4 * NESTED_LIMIT {
        assert!(!nesting.note(pc, VBAR, entry(EL1H), false));
        assert!(!nesting.note(other, VBAR, entry(EL1H), false));
        assert!(!nesting.note(pc, VBAR, entry(EL1H), false));
        assert!(!nesting.note(0x1000, VBAR, entry(EL1H), false));
    }
}

/// G1-FLT-002.
#[test]
fn the_first_table_has_the_level_that_tcr_gives_it() {
    let root = 0x9_8000_0000;
    let level = |tcr, va, ipa| walk_level(tcr, [root | 7 << 48 | 1, root << 1], va, ipa);
    // T0SZ, TG0: 48 bits of 4, 16 and 64 KiB; 39 bits of 4 KiB; 42 bits of 64 KiB.
    for (tcr, first) in [
        (16, 0),
        (16 | 2 << 14, 0),
        (16 | 1 << 14, 1),
        (25, 1),
        (22 | 1 << 14, 2),
        (39, 2),
    ] {
        assert_eq!(level(tcr, 0x1000, root + 0x40), first, "{tcr:#x}");
        assert_eq!(level(tcr, 0x1000, root + (1 << 20)), first + 1, "{tcr:#x}");
    }
    // T1SZ, TG1: 48 bits of 16, 4 and 64 KiB.
    let high = 0xffff << 48;
    for (granule, first) in [(1, 0), (2, 0), (3, 1)] {
        let tcr = 16 << 16 | granule << 30;
        assert_eq!(level(tcr, high, (root << 1) + 8), first, "{granule}");
    }
}

/// G1-FLT-002: whatever a guest writes into its registers.
#[test]
fn a_level_is_one_that_exists() {
    for size in 0..64 {
        for granule in 0..4 {
            for va in [0, u64::MAX] {
                let tcr = size | size << 16 | granule << 14 | granule << 30;
                assert!(walk_level(tcr, [0, u64::MAX], va, 0) <= 3);
            }
        }
    }
}
