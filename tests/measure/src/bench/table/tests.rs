use super::*;
use crate::report::parse;

fn results(columns: &[(&str, &str)]) -> Results {
    Results {
        guest: "0123".to_owned(),
        conditions: [].into(),
        columns: columns
            .iter()
            .map(|(name, printed)| ((*name).to_owned(), parse(printed)))
            .collect(),
        ..Results::default()
    }
}

fn row<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().collect()
}

#[test]
fn a_row_has_all_columns_the_goal_and_the_ratios() {
    let results = results(&[
        ("native max GICv3", "BENCH hypercall 7 7 7 7 7"),
        ("GearV EL0 max GICv3", "BENCH hypercall 50 56 56 60 99"),
        ("GearV EL0 a57 GICv3", "BENCH hypercall 58 58 58 58 58"),
        ("KVM blocking a57 GICv3", "BENCH hypercall 1 580 1 1 1"),
        ("Xen waiting max GICv3", "BENCH hypercall 1 168 1 1 1"),
    ]);
    let text = all(&results);
    let expected = [
        "hypercall",
        "7",
        "56",
        "58",
        "580",
        "168",
        "|",
        "60",
        "met",
        "8.0",
        "10.0",
        "-",
        "3.0",
    ];
    assert_eq!(row(&text, "hypercall"), expected);
    assert!(row(&text, "timer_wfi").ends_with(&["70", "-", "-", "-", "-"]));
    assert!(text.contains("guest 0123"));
}

#[test]
fn only_what_has_changed_is_listed() {
    let old = results(&[("a", "BENCH x 1 100 1 1 1\nBENCH y 1 5 1 1 1"), ("b", "")]);
    let new = results(&[
        ("a", "BENCH x 1 90 1 1 1\nBENCH y 1 5 1 1 1"),
        ("c", "BENCH x 1 1 1 1 1"),
    ]);
    let text = changes(&old, &new);
    assert_eq!(text.lines().count(), 2);
    assert_eq!(row(&text, "a "), ["a", "x", "100", "90", "-10.0%"]);
}

#[test]
fn wake_compares_with_native() {
    let native = parse("BENCH wake_line 1 10 1 1 1");
    let gearv = parse("BENCH wake_line 1 25 3 4 5");
    let text = wake(&["wake_line", "wake_uio"], &native, &gearv);
    assert_eq!(
        row(&text, "wake_line"),
        ["wake_line", "10", "|", "25", "1", "3", "4", "5", "|", "2.5"]
    );
    assert_eq!(row(&text, "wake_uio")[1], "-");
}
