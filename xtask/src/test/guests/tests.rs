use super::*;

#[test]
fn verdicts_are_counted_with_and_without_labels() {
    let mut tally = Tally::default();
    let transcript = "PASS a\n[x] PASS b\n[y] FAIL c: because\nnot PASS d\n[x] DONE\n";
    assert_eq!(count_verdicts(transcript, &mut tally), 2);
    assert_eq!(tally.failures, ["c: because"]);
}
