use super::super::parse;
use super::*;

fn results() -> Results {
    Results {
        counts: Default::default(),
        guest: "abc".to_owned(),
        conditions: [("load".to_owned(), "cpu & <disk>".to_owned())].into(),
        columns: vec![
            ("native".to_owned(), parse("RAW latency 100x5 900x1")),
            ("other".to_owned(), parse("RAW latency 150x5 160x1")),
            ("empty".to_owned(), parse("")),
        ],
    }
}

fn of<'a>(notes: &'a [&'a str], old: Option<&'a Results>) -> Page<'a> {
    Page {
        title: "t",
        notes,
        order: &[],
        old,
    }
}

#[test]
fn several_rows_have_a_table_of_all_medians_in_the_order_asked_for() {
    let mut results = results();
    results.columns[0].1 = parse("RAW a 5x3\nRAW b 7x3");
    results.counts.insert("bytes <kept>".to_owned(), 98304);
    let mut old = results.clone();
    old.columns[0].1 = parse("RAW a 5x3\nRAW b 6x3");
    let order = Page {
        order: &["b", "missing", "a"],
        ..of(&[], Some(&old))
    };
    let html = page(&order, &results).expect("it can be drawn");
    let b = html.find("<tr><td>b</td><td class=\"worse\">7<small>was 6</small></td><td>-</td>");
    let a = html.find("<tr><td>a</td><td>5</td>");
    assert!(b.is_some() && b < a, "{html}");
    assert!(html.contains("<td>bytes &lt;kept&gt;</td><td>98304</td>"));
    assert!(!html.contains("missing"));
}

#[test]
fn page_holds_figures_conditions_and_two_plots_a_configuration() {
    let html = page(&of(&["a note"], None), &results()).expect("it can be drawn");
    assert_eq!(html.matches("<svg").count(), 4);
    assert_eq!(html.matches("</svg>").count(), 4);
    assert!(
        html.contains(
            "<td>native</td><td>100</td><td>100</td><td>233</td><td>900</td><td>900</td>"
        )
    );
    assert!(html.contains("<td>1.50</td><td>0.65</td><td>0.18</td>"));
    assert!(html.contains("cpu &amp; &lt;disk&gt;"));
    assert!(!html.contains("empty"));
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
