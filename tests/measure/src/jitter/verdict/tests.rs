use super::super::table::tests::results;
use super::*;
use crate::report::{Facts, parse};

#[test]
fn a_good_run_says_what_the_real_time_vm_costs() {
    let results = results([1000, 2000, 1500, 1050], "off", [0, 2, 2]);
    let verdict = Verdict::of(&results, &[]);
    assert!(verdict.is_good);
    assert_eq!(
        verdict.all,
        "the real-time VM (RTVM, pass-through GIC) is as native: 1.00 times native's average, \
         1.00 times its p99.9, 1.05 times its maximum (1.05 µs to 1 µs); no exit while it measured"
    );
    let names: Vec<&str> = verdict.each.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        [
            "native",
            "GearV guest",
            "RTVM, emulated GIC",
            "RTVM, pass-through GIC"
        ]
    );
    assert!(verdict.each[1].1.starts_with("as native"));
    assert!(
        verdict
            .text()
            .starts_with("verdict: GOOD: the real-time VM")
    );
}

#[test]
fn faults_and_failures_are_the_verdict() {
    let mut results = results([1000, 2000, 1500, 1050], "off", [3, 2, 2]);
    let facts = results.facts.entry("KVM guest".to_owned()).or_default();
    facts.insert(
        fact::FAILURE.to_owned(),
        "it ended (signal: 9)\nmany\nlines".to_owned(),
    );
    let fault = "KVM guest was not measured: it ended (signal: 9):\nmany\nlines".to_owned();
    let verdict = Verdict::of(&results, &[fault]);
    assert!(!verdict.is_good);
    assert_eq!(
        verdict.all,
        "KVM guest was not measured: it ended (signal: 9)"
    );
    let of_kvm = verdict.each.iter().find(|(name, _)| *name == "KVM guest");
    let (_, of_kvm) = of_kvm.expect("the failure is there");
    assert_eq!(of_kvm, "not measured: it ended (signal: 9)");
}

#[test]
fn figures_that_a_failure_left_are_called_earlier() {
    let mut results = results([1000, 2000, 1500, 1050], "off", [0, 2, 2]);
    let facts = results.facts.entry("GearV guest".to_owned()).or_default();
    facts.insert(fact::FAILURE.to_owned(), "killed".to_owned());
    let sentence = sentence(&results, Configuration::Guest).expect("it is known");
    assert!(sentence.ends_with("These are earlier figures: it was not measured anew: killed"));
}

#[test]
fn a_small_ratio_under_load_says_nothing() {
    let results = results([1000, 9000, 1500, 1400], "cpu", [0, 2, 2]);
    let sentence = sentence(&results, Configuration::PassThrough).expect("it is known");
    assert!(sentence.starts_with("as native, as far as a run under load can tell"));
}

#[test]
fn the_word_is_that_of_the_bulk() {
    let mut results = results([1000, 2000, 1500, 1050], "off", [0, 2, 2]);
    for (samples, word) in [
        ("100x990 104x10", "as native: 0.99 times"),
        ("100x500 200x500", "slower than native: 1.49 times"),
        ("130x1000", "close to native: 1.29 times"),
        ("2000x1000", "far from native: 19.80 times"),
    ] {
        let figures = parse(&format!("RAW latency {samples}"));
        results.replace(Configuration::Guest.text(), figures, Facts::new());
        let sentence = sentence(&results, Configuration::Guest).expect("it is known");
        assert!(sentence.starts_with(word), "{sentence}");
    }
}
