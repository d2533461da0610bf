use workbench::workspace::scratch;

use super::*;

/// `RAW latency 5x3 7` and `RAW latency 9`.
const LOG: &str = "noise\nJITTER-READY 6.12-rt pass-through 3\nJITTER-BEGINS\nJITTER-MEASURED 4\nPACKED H4sIAAAAAAACAwtyDFfISSxJzUuu\n\
    PACKED VDCtMFYw5wpCErHkAgB99/StIAAAAA==\nJITTER-END\n";

/// Writes files for a test, and returns where they are.
fn files(test: &str, texts: &[(&str, &str)]) -> Vec<PathBuf> {
    let folder = scratch(test);
    let paths = texts.iter().map(|(name, text)| {
        let path = folder.join(name);
        fs::write(&path, text).expect("it can be written");
        path
    });
    paths.collect()
}

/// Returns a run's JSON of two configurations, with a load.
fn earlier(load: &str) -> String {
    let mut results = Results::default();
    let conditions = &mut results.conditions;
    conditions.insert("load".to_owned(), load.to_owned());
    for name in ["native", "RTVM, pass-through GIC"] {
        let facts = [("commit".to_owned(), "of then".to_owned())];
        results.replace(name, report::parse("RAW latency 1x4"), facts.into());
    }
    results.to_json().to_string()
}

#[test]
fn a_log_may_hold_several_runs() {
    let text = LOG.to_owned() + &LOG.replace("pass-through", "native");
    let runs = runs(&text);
    let names: Vec<&str> = runs.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["RTVM, pass-through GIC", "native"]);
    let (figures, facts) = runs[0].1.as_ref().expect("it is whole");
    assert_eq!(facts[fact::KERNEL], "6.12-rt");
    assert_eq!(facts[fact::OWN], "1");
    assert_eq!(figures[ROW].samples, [(5, 3), (7, 1), (9, 1)]);
}

#[test]
fn a_log_that_is_not_whole_costs_its_own_figures_alone() {
    for (cut, why) in [
        (
            LOG.split_once("JITTER-END").expect("it ends").0,
            "no \"JITTER-END",
        ),
        ("JITTER-READY 6.12-rt pass-through", "no \"JITTER-MEASURED"),
        (&LOG.replace("PACKED H4sI", "PACKED "), "cannot be unpacked"),
    ] {
        let native = LOG.replace("pass-through", "native");
        let logs = files("cut", &[("native.log", &native), ("cut.log", cut)]);
        let results = read(&logs).expect("one of them is whole");
        assert_eq!(results.columns.len(), 1);
        let failure = results.fact("RTVM, pass-through GIC", fact::FAILURE);
        assert!(
            failure.is_some_and(|failure| failure.contains(why)),
            "{failure:?}"
        );
    }
}

#[test]
fn a_file_that_is_no_log_is_refused() {
    let error = read(&files("no-log", &[("nothing.log", "nothing")])).expect_err("it is none");
    assert!(format!("{error:#}").contains("nothing.log: it holds neither"));
}

#[test]
fn a_log_replaces_its_own_configuration_in_an_earlier_run() {
    let given = files(
        "replaces",
        &[("old.json", &earlier("off")), ("new.log", LOG)],
    );
    let results = read(&given).expect("both can be read");
    let max = |name: &str| results.column(name).map(|column| column[ROW].max);
    assert_eq!(max("native"), Some(1));
    assert_eq!(max("RTVM, pass-through GIC"), Some(9));
    assert_eq!(results.fact("native", "commit"), Some("of then"));
    assert_eq!(results.fact("RTVM, pass-through GIC", "commit"), None);
    assert_eq!(results.conditions["load"], "off");
}

#[test]
fn runs_of_other_conditions_are_not_mixed() {
    let both = [("a.json", earlier("off")), ("b.json", earlier("cpu"))];
    let both = both.each_ref().map(|(name, text)| (*name, text.as_str()));
    let error = read(&files("mixed", &both)).expect_err("their loads differ");
    assert!(error.to_string().ends_with("load: off, now cpu"), "{error}");
}

#[test]
fn exits_come_from_the_log_of_gear2_beside() {
    let counts = "gear2: rt vCPU 0: hvc 3\ngear2: rt vCPU 0: hvc 5 sgi 1\n";
    // The order of the files does not matter.
    let logs = files("beside", &[("rt-gear2.log", counts), ("rt.log", LOG)]);
    let results = read(&logs).expect("they belong together");
    let fact = |fact| results.fact("RTVM, pass-through GIC", fact);
    assert_eq!(fact(fact::EXITS), Some("2"));
    assert_eq!((fact(fact::SGIS), fact(fact::OWN)), (Some("1"), Some("1")));
    let alone = read(&files("alone", &[("other-gear2.log", counts)]));
    assert!(alone.is_err());
}

#[test]
fn exits_come_from_the_guests_own_console() {
    let log = LOG.replace("pass-through", "guest");
    let log = log.replace("JITTER-BEGINS", "gear2: guest vCPU 0: hvc 3\nJITTER-BEGINS");
    let log = log.replace("PACKED H", "gear2: guest vCPU 0: hvc 7\nPACKED H");
    let results = read(&files("guest", &[("guest.log", &log)])).expect("it is whole");
    assert_eq!(results.fact("GearV guest", fact::EXITS), Some("4"));
}

#[test]
fn configurations_come_in_the_order_of_the_tables() {
    let native = LOG.replace("pass-through", "native");
    let logs = files("order", &[("a.log", LOG), ("b.log", &native)]);
    let results = read(&logs).expect("both are whole");
    let names: Vec<&str> = results
        .columns
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["native", "RTVM, pass-through GIC"]);
}
