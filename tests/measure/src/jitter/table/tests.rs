use super::*;
use crate::jitter::configuration;
use crate::report::parse;

/// Returns results with these maxima: native, guest, emulated, pass-through.
fn results(maxima: [u64; 4], load: &str, exits: [u64; 3]) -> Results {
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
    let counts = [EXITS, SGIS, OWN].into_iter().zip(exits);
    let counts = counts.map(|(what, count)| {
        let name = Configuration::PassThrough.text();
        (format!("{what}, {name}"), count.to_string())
    });
    Results {
        counts: Default::default(),
        guest: "abc".to_owned(),
        conditions: counts
            .chain([("load".to_owned(), load.to_owned())])
            .collect(),
        columns: columns.collect(),
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

#[test]
fn table_is_normalised_to_native() {
    let text = all(&results([1000, 2000, 1500, 1050], "off", [0, 2, 2]));
    let row = text.lines().last().expect("it has lines");
    assert!(row.starts_with("RTVM, pass-through GIC"), "{text}");
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(&cells[cells.len() - 3..], ["1.05", "0", "2"]);
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
