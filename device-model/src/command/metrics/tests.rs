use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixListener;

use super::*;
use crate::board::{DeviceKind, DeviceNode};
use crate::command::tests::{attempt, gearctl, gearctl_beside};
use crate::error::ErrorKind;
use crate::testing::{self, CHANNEL, Directory, region};

fn metrics() -> String {
    gearctl(&["metrics"]).unwrap()
}

#[test]
fn metrics_are_the_figures_of_stats_and_list() {
    let text = metrics();
    for line in [
        // 1,000 ticks a second.
        "gearv_counter_seconds_total 1.000000000",
        "gearv_cpus 4",
        "gearv_mmio_events_total 77",
        "gearv_vm_state{vm=\"linux\",state=\"running\"} 1",
        "gearv_vm_paused{vm=\"linux\"} 1",
        "gearv_vm_paused{vm=\"device\"} 0",
        "gearv_vm_restarts_total{vm=\"linux\"} 5",
        "gearv_vm_faults_total{vm=\"linux\"} 1",
        "gearv_vm_hangs_total{vm=\"linux\"} 4",
        "gearv_vm_late_refreshes_total{vm=\"linux\"} 2",
        "gearv_vm_starvations_total{vm=\"linux\"} 1",
        "gearv_vm_aborted_accesses_total{vm=\"linux\"} 0",
        "gearv_vcpu_run_seconds_total{vm=\"linux\",vcpu=\"3\"} 0.150000000",
        "gearv_vcpu_cpu{vm=\"linux\",vcpu=\"3\"} 3",
        "gearv_vcpu_exits_total{vm=\"linux\",vcpu=\"3\",reason=\"hvc\"} 3",
        "gearv_vcpu_exits_total{vm=\"linux\",vcpu=\"3\",reason=\"smc\"} 0",
        "gearv_vcpu_exit_gear2_seconds_total{vm=\"linux\",vcpu=\"3\",reason=\"hvc\"} 0.030000000",
        // A real-time VM has exits.
        "gearv_vcpu_exits_total{vm=\"rt\",vcpu=\"4\",reason=\"hvc\"} 4",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "no {line}:\n{text}"
        );
    }
    // Nobody counts its time, and an older Gear2 tells nothing of the health of VMs.
    assert!(
        !text.contains("seconds_total{vm=\"rt\",vcpu=\"4\"}"),
        "{text}"
    );
    assert!(!text.contains("hangs_total{vm=\"device\"}"), "{text}");
}

#[test]
fn the_figures_of_devices_are_metrics() {
    let disk = DeviceNode {
        channel: CHANNEL,
        kind: DeviceKind::Block,
        label: "disk".into(),
        ..testing::node()
    };
    let text = gearctl_beside(region(), vec![disk], &["metrics"], |_| Ok(0)).unwrap();
    let stats = format!("\",type=\"block\",channel=\"{CHANNEL}\"}} 0");
    for name in ["requests", "errors", "out_bytes", "in_bytes"] {
        let start = format!("gearv_device_{name}_total{{vm=\"");
        let is_there = |line: &str| line.starts_with(&start) && line.ends_with(&stats);
        assert!(text.lines().any(is_there), "no {name}:\n{text}");
    }
}

/// What the format asks for: help and type of a metric come once, before its samples; samples of a
/// metric stand together; no sample comes twice; names and values are of their alphabets.
#[test]
fn the_text_is_of_prometheus_format() {
    let text = metrics();
    assert!(text.ends_with('\n'));
    let (mut families, mut samples) = (BTreeSet::new(), BTreeSet::new());
    let mut family = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split(' ').next().unwrap().to_owned();
            assert!(families.insert(family.clone()), "{family} comes twice");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let counter = format!("{family} counter");
            let is_total = family.ends_with("_total");
            assert!(
                rest == format!("{family} gauge") || rest == counter,
                "{line}"
            );
            assert_eq!(rest == counter, is_total, "{line}");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert_eq!(series.split('{').next(), Some(family.as_str()), "{line}");
        assert!(samples.insert(series.to_owned()), "{series} comes twice");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    assert!(families.len() > 20, "{families:?}");
    let is_name = |name: &String| {
        let mut bytes = name.bytes();
        bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    assert!(families.iter().all(is_name), "{families:?}");
}

/// The format is for programs already.
#[test]
fn metrics_have_no_second_format() {
    let error = attempt(&["metrics", "--json"]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Usage);
    assert!(error.sentence.contains("gearctl stats --json"), "{error}");
}

/// A socket of another program is left to it, and a file stays. The socket of a program that has
/// ended is nobody's.
#[test]
fn a_socket_that_is_served_stays() {
    let directory = Directory::new("metrics");
    let path = format!("{}/metrics", directory.text());
    let listener = UnixListener::bind(&path).unwrap();
    let error = attempt(&["metrics", "--socket", &path]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    assert!(is_served(&path));
    // The program accepts nobody, and its queue of callers is full: who asks does not wait for it.
    let mut callers = Vec::new();
    while let Ok(caller) = sys::connect_at_once(&path) {
        callers.push(caller);
    }
    assert!(is_served(&path));
    drop((listener, callers));
    assert!(!is_served(&path) && fs::exists(&path).unwrap());
    fs::remove_file(&path).unwrap();
    fs::write(&path, "mine").unwrap();
    let error = attempt(&["metrics", "--socket", &path]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Failed, "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}
