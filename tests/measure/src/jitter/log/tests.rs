use super::*;

/// `RAW latency 5x3 7` and `RAW latency 9`.
const LOG: &str = "noise\nJITTER-READY 6.12-rt pass-through 3\nJITTER-BEGINS\nJITTER-MEASURED 3\nPACKED H4sIAAAAAAACAwtyDFfISSxJzUuu\n\
    PACKED VDCtMFYw5wpCErHkAgB99/StIAAAAA==\nJITTER-END\n";

#[test]
fn a_log_may_hold_several_runs() {
    let text = LOG.to_owned() + &LOG.replace("pass-through", "native");
    let runs = runs(&text).expect("it is whole");
    let names: Vec<&str> = runs.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["RTVM, pass-through GIC", "native"]);
    assert_eq!(runs[0].1, "6.12-rt");
    assert_eq!(runs[0].2[ROW].samples, [(5, 3), (7, 1), (9, 1)]);
}

#[test]
fn a_log_that_is_not_whole_is_refused() {
    for (log, why) in [
        ("nothing", "no line"),
        (
            LOG.split_once("JITTER-END").expect("it ends").0,
            "no JITTER-END",
        ),
        (&LOG.replace("PACKED H4sI", "PACKED "), "cannot be unpacked"),
    ] {
        let error = format!("{:#}", runs(log).expect_err("it is not whole"));
        assert!(error.contains(why), "{error}");
    }
}
