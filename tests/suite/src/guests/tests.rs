//! Transcripts as the console makes them: labels, and lines that another VM has torn.

use super::*;

/// A word counts at the beginning of a line only: guests print such words in other lines too.
#[test]
fn verdicts_are_counted_with_and_without_labels() {
    let mut tally = Tally::default();
    let transcript = "PASS a\n[x] PASS b\n[y] FAIL c: because\nnot PASS d\n[x] DONE\n";
    assert_eq!(count_verdicts(transcript, &mut tally), 2);
    assert_eq!(tally.failures, ["c: because"]);
}

/// A table of kills begins behind a line of Gear2's and is none of the guest's last line.
#[test]
fn a_table_behind_another_vms_line_is_not_torn() {
    let lines = whole_lines("[x] PASS a\ngear2: y restarted\n[x] KILLS guest crash 1 2 3 4\n");
    assert_eq!(
        lines,
        ["PASS a", "gear2: y restarted", "KILLS guest crash 1 2 3 4"]
    );
}

/// Lines are torn in the middle of words, the last line too. Gear2's own line between the pieces
/// has no label, and a line behind a guest's last one continues nothing.
#[test]
fn a_line_that_another_guest_tore_is_whole_again() {
    let transcript = "[x] PA\n[y] PASS b\n[x] SS a\n[x] FAI\n[y] DO\ngear2: y stopped\n[y] NE\n\
                      [x] L c: why\n[x] DONE\n[y] noise\n";
    let lines = whole_lines(transcript);
    assert_eq!(
        lines,
        [
            "PASS a",
            "PASS b",
            "FAIL c: why",
            "DONE",
            "gear2: y stopped",
            "DONE",
            "noise"
        ]
    );
}
