use super::*;

#[test]
fn figures_and_samples_are_parsed_behind_any_label() {
    let figures = parse(
        "[b] BENCH timer 1 2 3 4 5\n[b] RAW timer 2x900 5x100\nBENCH short 1 2\nRAW other 1x1\n",
    );
    let timer = Figure {
        min: 1,
        median: 2,
        mean: 3,
        p99: 4,
        max: 5,
        samples: vec![(2, 900), (5, 100)],
    };
    assert_eq!(figures["timer"], timer);
    assert!(!figures.contains_key("short"));
}

#[test]
fn samples_without_a_line_of_figures_give_the_figures() {
    let figures = parse("RAW latency 5x98\nnoise\nRAW latency 9x1 4x1\nRAW none\n");
    let latency = Figure {
        min: 4,
        median: 5,
        mean: 5,
        p99: 5,
        max: 9,
        samples: vec![(5, 98), (9, 1), (4, 1)],
    };
    assert_eq!(figures["latency"], latency);
    assert_eq!(figures["latency"].count(), 100);
    assert!(!figures.contains_key("none"));
}

#[test]
fn what_is_saved_is_read_back() {
    let results = Results {
        counts: Default::default(),
        guest: "abc".to_owned(),
        conditions: [("cpu".to_owned(), "max".to_owned())].into(),
        columns: vec![
            ("b".to_owned(), parse("BENCH x 1 2 3 4 5\nRAW x 1x10 2x20")),
            ("a".to_owned(), parse("BENCH y 5 5 5 5 5")),
        ],
    };
    let json = results.to_json();
    assert_eq!(Results::from_json(&json), Some(results));
    assert_eq!(
        Results::from_json(&serde_json::json!({"columns": []})),
        None
    );
}
