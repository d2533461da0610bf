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
    assert_eq!(
        figures.into_iter().collect::<Vec<_>>(),
        [("timer".to_owned(), timer)]
    );
}

#[test]
fn what_is_saved_is_read_back() {
    let results = Results {
        guest: "abc".to_owned(),
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
