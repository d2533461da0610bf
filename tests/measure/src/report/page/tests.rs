use super::super::parse;
use super::*;

fn results() -> Results {
    Results {
        guest: "abc".to_owned(),
        conditions: [("load".to_owned(), "cpu & <disk>".to_owned())].into(),
        columns: vec![
            ("native".to_owned(), parse("RAW latency 100x5 900x1")),
            ("other".to_owned(), parse("RAW latency 150x5 160x1")),
            ("empty".to_owned(), parse("")),
        ],
        ..Results::default()
    }
}

const ROWS: [Row<'_>; 3] = [
    Row {
        name: "b",
        what: "a <call>",
        goal: Some(7),
    },
    Row {
        name: "missing",
        what: "not measured",
        goal: Some(1),
    },
    Row {
        name: "a",
        what: "a trap",
        goal: Some(4),
    },
];

fn of<'a>(notes: &'a [&'a str], old: Option<&'a Results>) -> Page<'a> {
    Page {
        title: "t",
        notes,
        rows: &ROWS,
        judged: "native",
        old,
    }
}

/// Returns results with two rows that have goals.
fn with_goals() -> Results {
    let mut results = results();
    results.columns[0].1 = parse("RAW a 5x3\nRAW b 7x3");
    results.counts.insert("bytes <kept>".to_owned(), 98304);
    results
}

#[test]
fn all_medians_are_in_one_table_in_the_order_of_the_rows() {
    let results = with_goals();
    let mut old = results.clone();
    old.columns[0].1 = parse("RAW a 5x3\nRAW b 6x3");
    let html = page(&of(&[], Some(&old)), &results).expect("it can be drawn");
    let b = html.find(">b</td><td class=\"better\">7 met</td><td class=\"worse\">7<small>was 6</small></td><td>-</td>");
    let a = html.find(">a</td><td class=\"worse\">4 over</td><td>5</td>");
    assert!(b.is_some() && b < a, "{html}");
    assert!(html.contains("<td>bytes &lt;kept&gt;</td><td>98304</td>"));
    assert!(!html.contains("missing"));
}

#[test]
fn goals_are_judged_and_each_row_says_what_it_is() {
    let html = page(&of(&[], None), &with_goals()).expect("it can be drawn");
    assert!(html.contains("1 of 2 goals are met by native; over their goals: a."));
    assert!(
        html.contains("<p>a &lt;call&gt; Goal for native: at most 7, <span class=\"better\">met")
    );
    assert!(html.contains("<p>a trap Goal for native: at most 4, <span class=\"worse\">over"));
    assert!(html.contains("<title>goal: 7</title>"));
    let other = Page {
        judged: "not there",
        ..of(&[], None)
    };
    let html = page(&other, &with_goals()).expect("it can be drawn");
    assert!(html.contains("not there, was not measured"));
}

#[test]
fn page_holds_figures_conditions_and_two_plots_a_configuration() {
    let html = page(&of(&["a note"], None), &results()).expect("it can be drawn");
    // Bars, and two plots of each of both configurations.
    assert_eq!(html.matches("<svg").count(), 5);
    assert_eq!(html.matches("</svg>").count(), 5);
    assert!(
        html.contains(
            "<td>native</td><td>100</td><td>100</td><td>233</td><td>900</td><td>900</td>"
        )
    );
    assert!(html.contains("<td>1.50</td><td>0.65</td><td>0.18</td>"));
    assert!(html.contains("cpu &amp; &lt;disk&gt;"));
    // The page needs no other file.
    assert!(!html.contains("src=") && !html.contains("href="));
}

#[test]
fn page_shows_what_was_there_before() {
    let mut old = results();
    old.columns[0].1 = parse("RAW latency 7777x1");
    let html = page(&of(&[], Some(&old)), &results()).expect("it can be drawn");
    assert!(html.contains("<td>7777</td>"));
}

#[test]
fn an_axis_names_some_values() {
    let ticks = |text: &str| {
        let figure = parse(text).remove("latency").expect("it is there");
        let scale = Scale::of([&figure].into_iter());
        scale.expect("there is something").ticks()
    };
    assert_eq!(
        ticks("RAW latency 4560 9424"),
        [5000.0, 6000.0, 7000.0, 8000.0, 9000.0, 10_000.0]
    );
    assert_eq!(
        ticks("RAW latency 4560 30000"),
        [5000.0, 10_000.0, 20_000.0]
    );
}

#[test]
fn a_plot_of_equal_samples_has_a_scale() {
    let figure = parse("RAW latency 5x1000")
        .remove("latency")
        .expect("it is there");
    let scale = Scale::of([&figure].into_iter()).expect("there is something");
    let svg = plot::histogram(&figure, scale).expect("it can be drawn");
    assert!(svg.contains("<rect"));
    assert!(plot::series(&figure, scale).is_ok());
}
