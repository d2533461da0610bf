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
        facts: [(
            "b".to_owned(),
            [("commit".to_owned(), "abc".to_owned())].into(),
        )]
        .into(),
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

#[test]
fn percentiles_need_a_sample_beyond_them() {
    // 1 to 100,000 in a scrambled order.
    let samples: Vec<(u64, u64)> = (0..100_000).map(|i| (i * 7919 % 100_000 + 1, 1)).collect();
    let all = Figure::of(samples.clone()).expect("there are samples");
    let of = |figure: &Figure| PERCENTILES.map(|percentile| figure.percentile(percentile));
    let whole = [50_000, 90_000, 99_000, 99_900, 99_990, 99_999].map(Some);
    assert_eq!(of(&all), whole);
    let fewer = Figure::of(samples[..99_999].to_vec()).expect("there are samples");
    assert_eq!(of(&fewer)[5], None);
    assert!(of(&fewer)[4].is_some());
    let ten = Figure::of(vec![(5, 9), (700, 1)]).expect("there are samples");
    assert_eq!(of(&ten), [Some(5), Some(5), None, None, None, None]);
    let one = Figure::of(vec![(5, 1)]).expect("there is a sample");
    assert_eq!(of(&one), [None; 6]);
}

#[test]
fn percentiles_that_figures_carry_are_the_same() {
    let figure = Figure::of((1..=777).map(|i| (i * i % 1009, 3)).collect()).expect("samples");
    assert_eq!(figure.percentile(PERCENTILES[0]), Some(figure.median));
    assert_eq!(figure.percentile(PERCENTILES[2]), Some(figure.p99));
}

#[test]
fn a_column_is_replaced_with_its_facts() {
    let fact = |value: &str| Facts::from([("commit".to_owned(), value.to_owned())]);
    let mut results = Results::default();
    results.replace("a", parse("RAW x 1"), fact("old"));
    results.replace("b", parse("RAW x 2"), fact("old"));
    results.replace("a", parse("RAW x 3"), fact("new"));
    let names: Vec<&str> = results
        .columns
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(results.column("a").map(|a| a["x"].max), Some(3));
    assert_eq!(results.fact("a", "commit"), Some("new"));
    assert_eq!(results.fact("b", "commit"), Some("old"));
}
