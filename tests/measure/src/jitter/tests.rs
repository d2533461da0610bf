//! Tests of what becomes of the figures when a configuration fails.

use anyhow::anyhow;

use super::*;
use crate::report::parse;

/// Takes in a configuration that was measured with this latency.
fn measured(results: &mut Results, one: Configuration, ns: u64) -> Result<String> {
    let figures = parse(&format!("RAW latency {ns}x10"));
    results.replace(one.text(), figures, Default::default());
    Ok(String::new())
}

#[test]
fn a_ratio_is_above_0() {
    assert_eq!(ratio("1.25"), Ok(1.25));
    for text in ["0", "-1", "nan", "inf", "", "5%"] {
        assert!(ratio(text).is_err(), "{text:?}");
    }
}

#[test]
fn a_failure_costs_its_own_figures_alone() {
    let mut results = Results::default();
    for (one, ns) in [
        (Configuration::PassThrough, Some(5)),
        (Configuration::Guest, None),
        (Configuration::Native, Some(4)),
    ] {
        measure_into(&mut results, one, |results| match ns {
            Some(ns) => measured(results, one, ns),
            None => Err(anyhow!("it was killed")),
        });
    }
    let names: Vec<&str> = results
        .columns
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["native", "RTVM, pass-through GIC"]);
    assert_eq!(
        failures(&results),
        ["GearV guest was not measured: it was killed"]
    );
    // What failed is measured later, beside what is there.
    measure_into(&mut results, Configuration::Guest, |results| {
        measured(results, Configuration::Guest, 7)
    });
    assert_eq!(results.columns.len(), 3);
    assert!(failures(&results).is_empty());
}

#[test]
fn the_run_before_is_kept() {
    let json = workspace::scratch("before").join("jitter.json");
    keep_before(&json).expect("there is none");
    fs::write(&json, "then").expect("it can be written");
    keep_before(&json).expect("it can be renamed");
    assert!(!json.exists());
    let before = fs::read_to_string(json.with_file_name("jitter-before.json"));
    assert_eq!(before.expect("it is there"), "then");
}

#[test]
fn the_number_of_periods_is_that_of_the_earlier_run() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }
    let options = |words: &[&str]| {
        let line = <Line as clap::Parser>::try_parse_from(words);
        line.map(|line| line.options)
    };
    let mut earlier = Results::default();
    assert_eq!(
        options(&["x"]).expect("it is right").loops(&earlier),
        60_000
    );
    earlier
        .conditions
        .insert("loops".to_owned(), "500".to_owned());
    assert_eq!(options(&["x"]).expect("it is right").loops(&earlier), 500);
    let given = options(&["x", "--loops", "1990"]).expect("it is right");
    assert_eq!(given.loops(&earlier), 1990);
    for refused in ["9", "1000001"] {
        let error = options(&["x", "--loops", refused]).expect_err("it does not fit");
        let says = "no whole number from 10 to 1000000";
        assert!(error.to_string().contains(says), "{error}");
    }
}
