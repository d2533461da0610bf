//! Traces of a Gear2 that is a thread: the file, the comparison, and what is told of both.

use std::fs;

use gear1_abi::trace::Group;
use serde_json::Value;

use super::super::answer::{Agreement, TracedExits};
use super::super::tests::gearctl;
use super::agreement::{Note, Notes, compare};
use super::*;
use crate::client::Vm;
use crate::testing::Directory;
use crate::testing::trace::{notes, trap, traps};

fn linux() -> Vm {
    Vm {
        id: 1,
        name: "linux".into(),
        vcpus: 2,
        first_vcpu: 2,
        ..Vm::default()
    }
}

/// Records of CPU 0 as a trace has them.
fn recorded(records: Vec<Words>) -> Recorded {
    Recorded {
        traps: vec![Ring {
            records,
            ..Ring::default()
        }],
        decisions: Vec::new(),
    }
}

fn noted(words: &[u64]) -> Notes {
    let (begin, end) = words.split_at(words.len() / 2);
    Notes([(2, [begin, end].map(Note::of))].into())
}

fn row(group: Group, recorded: u64, counted: u64) -> TracedExits {
    TracedExits {
        vcpu: 2,
        vm: "linux".into(),
        group: group.label().into(),
        recorded,
        counted,
    }
}

#[test]
fn records_between_the_notes_are_compared_with_the_counters() {
    let trace = compare(&recorded(traps()), Some(&noted(&notes())), &[linux()]);
    assert_eq!(trace.agreement, Agreement::Exact);
    let expected = [
        row(Group::Memory, 2, 2),
        row(Group::Waits, 1, 1),
        row(Group::Interrupts, 1, 1),
    ];
    assert_eq!(trace.exits, expected);
    assert_eq!(
        (trace.traps, trace.lost, trace.not_compared),
        (9, 0, vec![3])
    );
}

#[test]
fn a_record_too_many_or_too_few_differs() {
    let notes = noted(&notes());
    let mut more = traps();
    more.insert(3, trap(140, Some(2), 0x18, 0));
    let mut fewer = traps();
    fewer.remove(4);
    for (records, wrong) in [
        (more, row(Group::Instructions, 1, 0)),
        (fewer, row(Group::Waits, 0, 1)),
    ] {
        let trace = compare(&recorded(records), Some(&notes), &[linux()]);
        assert_eq!(trace.agreement, Agreement::Differs);
        assert!(trace.exits.contains(&wrong), "{:?}", trace.exits);
    }
    // One of another vCPU is none of this one's.
    let mut others = traps();
    others.insert(3, trap(140, Some(3), 0x18, 0));
    let trace = compare(&recorded(others), Some(&notes), &[linux()]);
    assert_eq!(trace.agreement, Agreement::Exact);
}

#[test]
fn a_trace_that_has_lost_records_is_not_judged() {
    let mut recorded = recorded(traps());
    recorded.traps[0].lost = 1;
    let trace = compare(&recorded, Some(&noted(&notes())), &[linux()]);
    assert_eq!((trace.agreement, trace.lost), (Agreement::Lost, 1));
    let trace = compare(&recorded, None, &[linux()]);
    assert_eq!(trace.agreement, Agreement::NotCompared);
    assert_eq!(trace.not_compared, [2, 3]);
}

/// Events of a file with this phase, as name, process, thread, begin and duration.
fn events(file: &Value, phase: &str) -> Vec<(String, u64, u64, f64, f64)> {
    let all = file["traceEvents"].as_array().unwrap().iter();
    let some = all.filter(|event| event["ph"] == phase);
    some.map(|event| {
        let number = |name: &str| event[name].as_u64().unwrap();
        let time = |name: &str| event[name].as_f64().unwrap_or(0.0);
        let name = event["name"].as_str().unwrap().to_owned();
        (name, number("pid"), number("tid"), time("ts"), time("dur"))
    })
    .collect()
}

/// Returns the file of a trace by `gearctl`, and what it printed.
fn traced(words: &[&str]) -> (Value, String) {
    let directory = Directory::new("trace");
    let path = directory.path().join("trace.json");
    let path = path.to_str().unwrap();
    let printed = gearctl(&[&["trace", "--output", path], words].concat()).unwrap();
    let file = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    (file, printed.replace(path, "FILE"))
}

#[test]
fn the_file_has_what_each_cpu_has_done() {
    let (file, printed) = traced(&["--seconds", "0.05"]);
    assert!(
        printed.contains("file: FILE\ntraps: 9\ndecisions: 4\nlost: 0\nagreement: exact"),
        "{printed}"
    );
    // The fake counter has 1 kHz; times are in microseconds.
    let span = |name: &str, pid, tid, begin: f64, end: f64| {
        let (begin, end) = (begin * 1e3, end * 1e3);
        (name.to_owned(), pid, tid, begin, end - begin)
    };
    let expected = [
        span("Gear2", 0, 0, 0.0, 10.0),
        span("linux 0", 0, 0, 10.0, 70.0),
        span("runs", 2, 0, 10.0, 70.0),
        span("Gear2", 0, 0, 70.0, 80.0),
        span("idle", 0, 0, 80.0, 200.0),
        span("linux 0", 0, 0, 200.0, 220.0),
        span("runs", 2, 0, 200.0, 220.0),
    ];
    assert_eq!(events(&file, "X"), expected);
    let at = |name: &str, pid, time: f64| (name.to_owned(), pid, 0, time * 1e3, 0.0);
    let expected = [
        at("hvc", 2, 0.0),
        at("load", 2, 30.0),
        at("interrupt 27", 2, 50.0),
        at("wfi", 2, 70.0),
        at("channel", 2, 220.0),
        at("blocked", 2, 70.0),
        at("chosen: nobody", 0, 70.0),
        at("woken", 2, 200.0),
        at("chosen: linux 0", 0, 200.0),
    ];
    assert_eq!(events(&file, "i"), expected);
    let names = events(&file, "M");
    assert!(
        names
            .iter()
            .any(|(name, pid, tid, ..)| name == "thread_name" && (*pid, *tid) == (3, 0))
    );
}

#[test]
fn what_the_rings_hold_is_written_without_a_trace() {
    let (file, printed) = traced(&["--seconds", "0"]);
    assert!(printed.contains("traps: 1\n"), "{printed}");
    assert!(printed.contains("agreement: not-compared"), "{printed}");
    assert_eq!(events(&file, "i"), [("hvc".to_owned(), 1, 0, 0.0, 0.0)]);
}

#[test]
fn a_gap_is_left_empty() {
    let mut recorded = recorded(traps());
    recorded.traps[0].gaps = vec![2];
    let mut file = Vec::new();
    timeline::write(&recorded, &[linux()], 1_000_000, &mut file).unwrap();
    let file: Value = serde_json::from_slice(&file).unwrap();
    let spans = events(&file, "X");
    // Between 110 and 130 records were lost: nobody knows who has run.
    assert_eq!(spans[0], ("Gear2".to_owned(), 0, 0, 0.0, 10.0));
    assert_eq!(spans[1], ("linux 0".to_owned(), 0, 0, 30.0, 40.0));
}

#[test]
fn a_file_that_cannot_be_written_is_told_of_first() {
    let error = gearctl(&["trace", "--output", "/nowhere/trace.json"]).unwrap_err();
    assert!(error.starts_with("/nowhere/trace.json: "), "{error}");
}
