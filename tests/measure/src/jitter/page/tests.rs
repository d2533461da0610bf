use super::super::table::tests::results;
use super::*;

/// Returns the page of these results, judged as `jitter` does.
fn page_of(results: &Results, old: Option<&Results>) -> String {
    let mut faults = super::super::failures(results);
    faults.extend(table::judge(results, 1.05));
    let verdict = Verdict::of(results, &faults);
    page(results, old, &verdict, &["a <note>"]).expect("it can be drawn")
}

#[test]
fn page_has_all_that_a_real_time_engineer_asks_for() {
    let mut results = results([1000, 2000, 1500, 1050], "off", [0, 2, 2]);
    let facts = results.facts.entry("native".to_owned()).or_default();
    for (name, value) in [
        ("commit", "0123abc"),
        ("date", "2026-01-01 12:00 UTC"),
        ("command", "cargo xtask jitter --loops 1000"),
    ] {
        facts.insert(name.to_owned(), value.to_owned());
    }
    let html = page_of(&results, None);
    for expected in [
        "<p class=\"good\">Good: the real-time VM",
        "<th>p99.999</th>",
        "p99.99 needs 10000 periods for one beyond it",
        "<h2>Cumulative distribution</h2>",
        "<h2>Each beside native</h2>",
        "table 10: Xenomai",
        "table 11: PREEMPT_RT",
        "<th>exits</th>",
        "<td class=\"group\">1000</td><td>0</td><td>2</td><td>2</td>",
        "0123abc",
        "2026-01-01 12:00 UTC",
        "cargo xtask jitter --loops 1000",
        "a &lt;note&gt;",
    ] {
        assert!(html.contains(expected), "{expected} is missing in {html}");
    }
    // One distribution, three beside native, four orders.
    assert_eq!(html.matches("<svg").count(), 8);
    assert_eq!(html.matches("</svg>").count(), 8);
    // The page needs no other file.
    assert!(!html.contains("src=") && !html.contains("href="));
}

#[test]
fn a_configuration_that_failed_is_on_the_page_with_its_reason() {
    let mut results = results([1000, 2000, 1500, 1050], "off", [0, 2, 2]);
    let facts = results.facts.entry("KVM guest".to_owned()).or_default();
    facts.insert(
        fact::FAILURE.to_owned(),
        "it ended (signal: 9)\nlast words".to_owned(),
    );
    let html = page_of(&results, None);
    assert!(
        html.contains(
            "<p class=\"bad\">Not good: KVM guest was not measured: it ended (signal: 9)"
        )
    );
    assert!(html.contains("<pre>it ended (signal: 9)\nlast words</pre>"));
    // What was measured is there as ever.
    assert_eq!(html.matches("<svg").count(), 8);
}

#[test]
fn a_page_without_figures_is_a_page() {
    let mut nothing = Results::default();
    let facts = nothing.facts.entry("native".to_owned()).or_default();
    facts.insert(fact::FAILURE.to_owned(), "it ended".to_owned());
    let html = page_of(&nothing, None);
    assert!(html.contains("native was not measured"));
}

#[test]
fn an_older_run_is_a_column() {
    let old = results([7777, 2000, 1500, 1050], "off", [0, 2, 2]);
    let html = page_of(
        &results([1000, 2000, 1500, 1050], "off", [0, 2, 2]),
        Some(&old),
    );
    assert!(html.contains("<td class=\"group\">7777</td>"));
}
