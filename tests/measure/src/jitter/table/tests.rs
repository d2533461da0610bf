use super::*;
use crate::jitter::configuration;
use crate::report::parse;

/// Returns results with these maxima: native, guest, emulated, pass-through.
pub(in crate::jitter) fn results(maxima: [u64; 4], load: &str, exits: [u64; 3]) -> Results {
    let names = [
        Configuration::Native,
        Configuration::Guest,
        Configuration::Emulated,
        Configuration::PassThrough,
    ];
    let columns = names.into_iter().zip(maxima).map(|(name, max)| {
        let figures = parse(&format!("RAW latency 100x999 {max}x1"));
        (name.text().to_owned(), figures)
    });
    let facts = [fact::EXITS, fact::SGIS, fact::OWN].into_iter().zip(exits);
    let facts = facts.map(|(what, count)| (what.to_owned(), count.to_string()));
    let of_pass_through = (
        Configuration::PassThrough.text().to_owned(),
        facts.collect(),
    );
    Results {
        guest: "abc".to_owned(),
        conditions: [("load".to_owned(), load.to_owned())].into(),
        columns: columns.collect(),
        facts: [of_pass_through].into(),
        ..Results::default()
    }
}

#[test]
fn maxima_exits_and_load_are_judged() {
    let good = [0, 2, 2];
    for (maxima, load, exits, faults) in [
        ([1000, 2000, 1500, 1050], "cpu", good, 0),
        ([1000, 900, 1500, 1250], "off", good, 0),
        ([1000, 900, 1500, 1251], "off", good, 1),
        ([1000, 900, 1501, 1000], "off", good, 1),
        ([1000, 1000, 1000, 1000], "off", [1, 0, 0], 1),
        ([1000, 1000, 1000, 1000], "off", [0, 3, 2], 1),
        ([1000, 1000, 1000, 1000], "cpu", good, 1),
    ] {
        let found = judge(&results(maxima, load, exits), 1.05);
        assert_eq!(found.len(), faults, "{maxima:?} {found:?}");
    }
}

/// Beside load the guest's median is native's, its maximum at most a millisecond.
#[test]
fn a_scheduled_guest_is_judged_beside_load() {
    let name = Configuration::Guest.text().to_owned();
    let found = |max, load, scheduler: &str| {
        let mut results = results([1000, max, 1000, 1000], load, [0, 2, 2]);
        let scheduler = (fact::SCHEDULER.to_owned(), scheduler.to_owned());
        results.facts.insert(name.clone(), [scheduler].into());
        judge(&results, 1.05)
    };
    for (max, load, scheduler, count) in [
        (1_000_000, "cpu", "fair", 0),
        (1_000_001, "cpu", "fair", 1),
        (5_000_000, "cpu", "round-robin", 0),
        (5_000_000, "off", "fair", 0),
        (5_000_000, "all", "fair", 0),
        (5_000_000, "disk", "bvt", 1),
    ] {
        let faults = found(max, load, scheduler);
        assert_eq!(faults.len(), count, "{max} {load} {scheduler}: {faults:?}");
    }
    let mut slow = results([1000, 2000, 1000, 1000], "cpu", [0, 2, 2]);
    let scheduler = (fact::SCHEDULER.to_owned(), "fair".to_owned());
    slow.facts.insert(name.clone(), [scheduler].into());
    for column in slow
        .columns
        .iter_mut()
        .filter(|(column, _)| *column == name)
    {
        column.1 = parse("RAW latency 301x999 2000x1");
    }
    let faults = judge(&slow, 1.05);
    assert!(
        faults[0].contains("median of 301 ns is more than 3 times"),
        "{faults:?}"
    );
}

#[test]
fn table_is_normalised_to_native() {
    let text = all(&results([1000, 2000, 1500, 1050], "off", [0, 2, 2]));
    let mut rows = text.lines();
    let row = rows.rfind(|row| row.starts_with("RTVM, pass-through GIC"));
    let cells: Vec<&str> = row.expect("it is there").split_whitespace().collect();
    assert_eq!(
        &cells[cells.len() - 5..],
        ["1.05", "|", "0", "2", "1000"],
        "{text}"
    );
}

#[test]
fn percentiles_that_need_more_samples_are_said() {
    let text = all(&results([1000, 2000, 1500, 1050], "off", [0, 2, 2]));
    let native = text.lines().find(|row| row.starts_with("native"));
    let cells: Vec<&str> = native.expect("it is there").split_whitespace().collect();
    let percentiles = ["100", "100", "100", "100", "-", "-", "1000", "101"];
    assert_eq!(&cells[2..], percentiles, "{text}");
    assert!(text.contains("p99.99 needs 10000 periods"));
    assert!(text.contains("--loops 100000; 1000 were measured"));
    assert!(!text.contains("p99.9 needs"));
}

#[test]
fn what_changed_since_is_shown() {
    let old = results([1000, 2000, 1500, 1050], "off", [0, 0, 0]);
    let new = results([1000, 2000, 1500, 2100], "cpu", [0, 0, 0]);
    let text = changes(&old, &new);
    assert!(
        text.contains("+100.0%") && text.contains("load: off, now cpu"),
        "{text}"
    );
}

#[test]
fn every_configuration_has_a_word_that_is_an_option() {
    use clap::ValueEnum as _;
    for one in configuration::ALL {
        assert_eq!(Configuration::from_str(one.word(), false), Ok(one));
    }
}

#[test]
fn a_fault_says_how_many_periods_it_is() {
    let faults = judge(&results([1000, 2000, 1500, 1251], "off", [0, 2, 2]), 1.05);
    assert!(
        faults[0].ends_with(
            "the native run, 1000 ns (1 of 1000 periods are above; chance alone puts as few all \
             into this run in one of 2 cases: measure more periods, or both again)"
        ),
        "{faults:?}"
    );
}

/// Five samples of one run and none of the other are no chance: the periods are as many.
#[test]
fn few_samples_are_told_apart_from_many() {
    for (above, count, native, said) in [
        (1, 1000, 1000, "one of 2 cases"),
        (4, 1000, 1000, "one of 16 cases"),
        (2, 1000, 2000, "one of 9 cases"),
    ] {
        let chance = chance(above, count, native);
        assert!(chance.contains(said), "{chance}");
    }
    assert_eq!(chance(5, 1000, 1000), "");
    assert_eq!(chance(60_000, 60_000, 60_000), "");
}
