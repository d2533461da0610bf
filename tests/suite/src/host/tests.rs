//! Output of cargo as these versions print it.

use super::*;

/// Several programs print a result line each, whose sums count; what is ignored is skipped.
#[test]
fn cargo_test_is_counted() {
    let tally = count(
        "running 3 tests\ntest a ... ok\ntest b::c ... FAILED\n\
         test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out\n\
         test result: ok. 14 passed; 0 failed; 0 ignored; 0 measured\n",
    );
    assert_eq!((tally.passed, tally.skipped), (15, 1));
    assert_eq!(tally.failures, ["b::c"]);
}

/// The output of a test that passed is not shown, although it stands under a name as well, and its
/// figures are still found.
#[test]
fn details_are_those_of_failed_tests() {
    let printed = "test b::c ... FAILED\n\nsuccesses:\n\n---- a stdout ----\nfigure: 3 states\n\nsuccesses:\n    a\n\nfailures:\n\n---- b::c stdout ----\nwhy\n\n\
                   failures:\n    b::c\n\ntest result: FAILED.\ntest d ... ok\n";
    assert_eq!(details(printed), "---- b::c stdout ----\nwhy\n");
    assert_eq!(figures(printed), ["3 states"]);
}
