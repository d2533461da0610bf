use super::super::guest::tests::run;
use super::super::guest::{self, Report};
use super::*;

/// Returns the reports in these lines, of as many VMs with one vCPU.
fn reports(lines: &[&str]) -> Vec<Report> {
    let printed: String = (lines.iter().enumerate())
        .map(|(id, words)| format!("SCHED id={id} {words}\n"))
        .collect();
    guest::reports(&run(&vec![1; lines.len()]), &printed).unwrap()
}

/// Returns the values by their names, and whether all goals are met.
fn answer(question: &Question, runs: &[Vec<Report>]) -> (Vec<(&'static str, f64)>, bool) {
    let figures = question.answer(runs).unwrap();
    let met = figures
        .iter()
        .all(|figure| figure.goal.is_none_or(|goal| goal.is_met(figure.value)));
    let values = figures.iter().map(|figure| (figure.name, figure.value));
    (values.collect(), met)
}

#[test]
fn the_worse_of_both_periods_counts() {
    let runs = [
        reports(&[
            "median=1000 p99=1500 max=2400 max_settled=900 missed=0",
            "units=1 unit=1",
        ]),
        reports(&[
            "median=1100 p99=1400 max=2600 max_settled=800 missed=0",
            "units=1 unit=1",
        ]),
    ];
    let question = Question::Latency { goal_us: Some(2.5) };
    let (values, met) = answer(&question, &runs);
    let expected = [
        ("median us", 1.1),
        ("p99 us", 1.5),
        ("max us", 2.6),
        ("settled max us", 0.9),
        ("missed", 0.0),
    ];
    assert_eq!(values, expected);
    assert!(!met);
    assert!(answer(&question, &runs[..1]).1);
}

#[test]
fn a_missed_period_misses_the_goal() {
    let runs = [reports(&["median=1 p99=1 max=1 max_settled=1 missed=1"])];
    let question = Question::Latency { goal_us: Some(2.5) };
    assert!(!answer(&question, &runs).1);
}

#[test]
fn the_error_of_weights_is_the_largest_one() {
    let run = reports(&[
        "units=100 unit=10",
        "units=200 unit=10",
        "units=500 unit=10",
    ]);
    let weights = vec![1.0, 2.0, 4.0];
    let question = |judged| Question::Weights {
        weights: weights.clone(),
        judged,
    };
    let (values, met) = answer(&question(true), std::slice::from_ref(&run));
    let (name, error) = values[3];
    assert_eq!((values[2].1, name), (62.5, "error points"));
    assert!((error - (62.5 - 400.0 / 7.0)).abs() < 1e-9, "{error}");
    assert!(!met);
    assert!(answer(&question(false), &[run]).1);
}

#[test]
fn what_switching_takes_is_seen_in_the_work_of_all() {
    let alone = reports(&["units=100000 unit=1000 gap_max=0"]);
    let three = ["units=33310 unit=1000 gap_max=5001000"; 3];
    let question = Question::Lost {
        slice_us: Some(2500.0),
    };
    let (values, met) = answer(&question, &[alone, reports(&three)]);
    assert!((values[0].1 - 0.07).abs() < 1e-9, "{values:?}");
    assert_eq!(values[1], ("longest gap us", 5001.0));
    assert!(met);
}

#[test]
fn a_run_beyond_its_budget_misses_the_goal() {
    let alone = reports(&["units=1000 unit=200 run_max=1"]);
    let capped = |run_max: u64| {
        let own = format!("units=250 unit=200 run_max={run_max}");
        reports(&[&own, "units=750 unit=200 run_max=1"])
    };
    let question = Question::Cap {
        percent: 25.0,
        budget_us: 2500.0,
        judged: true,
    };
    let (values, met) = answer(&question, &[alone.clone(), capped(2_501_600)]);
    assert_eq!(values, [("share %", 25.0), ("longest run us", 2502.0)]);
    assert!(met);
    assert!(!answer(&question, &[alone, capped(2_501_700)]).1);
}

#[test]
fn jobs_of_all_vms_count() {
    let run = reports(&["count=10 late=0", "count=20 late=1"]);
    let question = Question::Jobs { judged: true };
    let (values, met) = answer(&question, &[run]);
    assert_eq!(values, [("jobs", 30.0), ("late", 1.0)]);
    assert!(!met);
}

#[test]
fn a_window_that_never_began_is_missing() {
    let window = "frames=100 count=98 median=900 max=1900 run_max=500";
    let (values, met) = answer(&Question::Windows, &[reports(&[window])]);
    assert_eq!(values[1], ("missing", 1.0));
    assert!(!met);
}

#[test]
fn both_runs_are_needed() {
    let error = Question::Lost { slice_us: None }.answer(&[Vec::new()]);
    assert!(error.unwrap_err().to_string().contains("1 runs"));
}
