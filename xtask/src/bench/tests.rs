use super::*;

#[test]
fn figures_are_parsed_behind_any_label() {
    let figures = parse("[b] BENCH timer 1 2 3 4 5\nBENCH short 1 2\nother\n");
    let timer = Figure {
        min: 1,
        median: 2,
        mean: 3,
        p99: 4,
        max: 5,
    };
    assert_eq!(
        figures.into_iter().collect::<Vec<_>>(),
        [("timer".to_owned(), timer)]
    );
}

#[test]
fn table_compares_with_native_and_goal() {
    let native = parse("BENCH hypercall 7 7 7 7 7");
    let gearv = parse("BENCH hypercall 50 56 56 60 99\nBENCH new 1 2 3 4 5");
    let text = table(&native, &gearv);
    let hypercall = text
        .lines()
        .find(|line| line.starts_with("hypercall"))
        .unwrap();
    let words: Vec<&str> = hypercall.split_whitespace().collect();
    assert_eq!(
        words,
        [
            "hypercall",
            "7",
            "|",
            "56",
            "50",
            "56",
            "60",
            "99",
            "|",
            "8.0",
            "60",
            "met"
        ]
    );
    assert!(text.lines().last().unwrap().starts_with("new "));
}
