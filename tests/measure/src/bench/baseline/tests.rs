use super::*;
use crate::report::parse as figures;

fn worse_than(baseline: &str, printed: &str) -> Vec<String> {
    worse(&parse(baseline).unwrap(), "c", &figures(printed))
}

#[test]
fn a_figure_may_grow_a_little() {
    assert!(worse_than("c: x 50\n", "BENCH x 0 53 0 0 0").is_empty());
    assert!(worse_than("c: x 1000\n", "BENCH x 0 1020 0 0 0").is_empty());
    assert!(worse_than("c: x 50\n", "BENCH x 0 40 0 0 0").is_empty());
}

#[test]
fn what_grows_by_more_is_named() {
    let lines = worse_than("c: x 50\nd: x 1\n", "BENCH x 0 54 0 0 0");
    assert!(lines[0].starts_with("x: 54 instructions, 50"), "{lines:?}");
    assert_eq!(worse_than("c: x 1000\n", "BENCH x 0 1021 0 0 0").len(), 1);
}

#[test]
fn what_is_missing_is_named() {
    assert_eq!(worse_than("c: x 50\n", ""), ["x: was not measured"]);
    assert_eq!(worse_than("d: x 50\n", ""), ["c: not in the baseline"]);
}

#[test]
fn a_damaged_baseline_is_an_error() {
    for line in ["x", "c: x", "c: x y", "c x 5"] {
        assert!(parse(line).is_err(), "{line}");
    }
}
