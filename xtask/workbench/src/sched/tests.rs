//! Loads in text, simulations of a manifest, and what is drawn of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::picture::Section;
use super::*;
use crate::manifest::compile_text;
use crate::tools::Tools;

/// Three VMs on one CPU.
const MANIFEST: &str = r#"/dts-v1/;

/ {
	compatible = "gearv,manifest";
	version = <1>;

	gear2 {
		scheduler = "fair";
	};

	vms {
		control {
			cpus = <0>;
			memory-mib = <16>;
			image = "artifact:guest:bench";
			weight = <100>;
		};

		video {
			cpus = <0>;
			memory-mib = <16>;
			image = "artifact:guest:bench";
			weight = <200>;
		};

		batch {
			cpus = <0>;
			vcpus = <2>;
			memory-mib = <16>;
			image = "artifact:guest:bench";
			weight = <400>;
		};
	};
};
"#;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("gearv-sched-{}-{name}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn loads(values: &[&str]) -> Result<Loads> {
    let values: Vec<_> = values.iter().map(|value| (*value).to_owned()).collect();
    Loads::read(&values)
}

fn run(name: &str, policy: Option<&str>, values: &[&str], length: u64) -> Result<Vec<Simulated>> {
    let folder = folder(name);
    let tools = Tools::prepare()?;
    let blob = compile_text(MANIFEST, &tools, &folder.join("manifest.dtb"))?;
    fs::remove_dir_all(folder)?;
    let setup = Setup {
        cpu_count: 1,
        loads: loads(values)?,
        costs: measured_costs(3)?,
        by_policy: true,
        length,
        seed: 7,
        policy: policy.map(str::to_owned),
    };
    simulate(&blob, &setup)
}

fn figures(simulated: &[Simulated]) -> BTreeMap<String, VcpuFigures> {
    let cpus = Figures::of(simulated).cpus.into_iter();
    let vcpus = cpus.flat_map(|cpu| cpu.vcpus);
    vcpus.map(|vcpu| (vcpu.name.clone(), vcpu)).collect()
}

fn refusal<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("not refused"),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn spinners_share_by_the_weights_of_the_manifest() {
    let simulated = run(
        "weights",
        None,
        &["control=spin", "video=spin", "batch.0=spin"],
        5_000_000_000,
    );
    let figures = figures(&simulated.unwrap());
    for (name, weight) in [("control", 100.0), ("video", 200.0), ("batch.0", 400.0)] {
        let error = figures[name].share - weight / 700.0;
        assert!(error.abs() <= 0.001, "{name}: {error}");
        assert_eq!(figures[name].wanted, 1.0);
    }
    assert_eq!(figures["batch.1"].share, 0.0);
}

/// A wake-up beside a spinner takes its way with `fair`, and the rest of turns in a round robin.
#[test]
fn the_policy_decides_about_the_latency() {
    let loads = [
        "control=periodic:period=970us,work=20us,phase=3ms",
        "video=spin",
        "batch=spin",
    ];
    let latency = |policy: &str| {
        let simulated = run(policy, Some(policy), &loads, 1_000_000_000).unwrap();
        figures(&simulated)["control"].clone()
    };
    let fair = latency("fair");
    let costs = measured_costs(3).unwrap().with_decision(decision("fair"));
    assert_eq!(fair.latency.p50, costs.wake_up.other);
    assert_eq!((fair.missed, fair.jobs), (0, 1_028));
    let turns = latency("round-robin");
    assert!(turns.latency.p50 > 5_000_000, "{:?}", turns.latency);
    assert!(turns.missed > 0);
}

#[test]
fn one_seed_gives_one_result() {
    let loads = [
        "control=random:work=2ms,sleep=4ms",
        "video=periodic:period=3ms,work=1ms,jitter=1ms",
    ];
    let text = |name: &str| {
        let simulated = run(name, None, &loads, 300_000_000).unwrap();
        Figures::of(&simulated).json().to_string()
    };
    assert_eq!(text("first"), text("second"));
}

#[test]
fn recorded_jobs_run_at_their_times() {
    let folder = folder("trace");
    let csv = "wake_us,work_us,due_us\n10,5.5,20\n1000,2\n# a pause\n5000,100,5001\n";
    fs::write(folder.join("jobs.csv"), csv).unwrap();
    let json = "{\"wake_us\": 10, \"work_us\": 5.5}\n{\"wake_us\": 20, \"work_us\": 1}\n";
    fs::write(folder.join("jobs.jsonl"), json).unwrap();
    let spec = folder.join("loads");
    fs::write(
        &spec,
        "# both\ncontrol = trace:jobs.csv\n\nvideo = trace:jobs.jsonl # JSON\n",
    )
    .unwrap();
    let simulated = run("recorded", None, &[spec.to_str().unwrap()], 10_000_000).unwrap();
    let figures = figures(&simulated);
    assert_eq!((figures["control"].jobs, figures["control"].missed), (3, 1));
    assert_eq!(figures["control"].share, 107.5 / 10_000.0);
    assert_eq!(
        (figures["video"].jobs, figures["video"].share),
        (2, 6.5 / 10_000.0)
    );
    fs::remove_dir_all(folder).unwrap();
}

/// An error names file, line and column, and what is possible.
#[test]
fn mistakes_have_a_place() {
    let cases = [
        ("control=spni", "--load:1:9: there is no load"),
        ("control=spin:work=1ms", "--load:1:14: spin has no options"),
        (
            "control=periodic:period=1ms",
            "--load:1:9: work=TIME is missing",
        ),
        (
            "control=periodic:period=1ms,work=200",
            "--load:1:34: work=200 is no time",
        ),
        (
            "control=periodic:period=0ms,work=1us",
            "--load:1:25: period is zero",
        ),
        (
            "control=burst:work=1ms,slep=1ms",
            "--load:1:24: there is no option \"slep\"",
        ),
        (
            "control=burst:work=1ms,work=1ms",
            "--load:1:24: work is there twice",
        ),
        (
            "control=burst:work=0.1ns,sleep=1ms",
            "--load:1:20: work=0.1ns is no time",
        ),
        (
            "control=trace:/nowhere.csv",
            "trace:/nowhere.csv: No such file",
        ),
        ("nowhere", "--load nowhere: a file, or VM=LOAD"),
    ];
    for (spec, expected) in cases {
        let error = refusal(loads(&[spec]));
        assert!(error.starts_with(expected), "{spec}: {error}");
    }
    let error = refusal(loads(&["a=spin", "a = idle"]));
    assert_eq!(error, "--load:1:1: a has a load at --load:1:1");
    let error = refusal(run("unknown", None, &["vdeo=spin"], 1_000));
    assert_eq!(
        error,
        "--load:1:1: Gear2 schedules no vdeo, but control, video, batch"
    );
    let error = refusal(run("policy", Some("rr"), &[], 1_000));
    assert!(
        error.starts_with("there is no policy \"rr\", there are: round-robin, fair"),
        "{error}"
    );
    let error = refusal(run("null", Some("null"), &[], 1_000));
    assert_eq!(
        error,
        "CPU 0: null takes no video: the policy takes one vCPU a CPU"
    );
}

#[test]
fn mistakes_in_files_have_a_place() {
    let folder = folder("mistakes");
    let spec = folder.join("loads");
    fs::write(&spec, "# two\n  control spin\n").unwrap();
    let error = refusal(loads(&[spec.to_str().unwrap()]));
    assert!(
        error.ends_with("loads:2:3: VM = LOAD is expected, there is no `=`"),
        "{error}"
    );
    for (text, expected) in [
        ("10,5\n5,5\n", "jobs:2:1: a wake-up before the one above"),
        ("10,0\n", "jobs:1:1: a job without work"),
        (
            "10\n",
            "jobs:1:1: WAKE,WORK or WAKE,WORK,DUE in microseconds is expected",
        ),
        ("10,x\n", "jobs:1:1: work: x is no time in microseconds"),
        ("{\"wake_us\": 1}\n", "jobs:1:1: work_us is missing"),
        (
            "{\"wake\": 1}\n",
            "jobs:1:1: there is no \"wake\", there are wake_us, work_us and due_us",
        ),
    ] {
        fs::write(folder.join("jobs"), text).unwrap();
        fs::write(&spec, "control = trace:jobs\n").unwrap();
        let error = refusal(loads(&[spec.to_str().unwrap()]));
        assert!(error.ends_with(expected), "{error}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn times_have_units() {
    let ticks = ["200us", "1.5ms", "2s", "7ns", "0.001us", "0ms"].map(time);
    let expected = [200_000, 1_500_000, 2_000_000_000, 7, 1, 0].map(Some);
    assert_eq!(ticks, expected);
    for text in [
        "",
        "5",
        "ms",
        "1.2345us",
        "-1ms",
        "1e3us",
        "1.5.2ms",
        "99999999999999s",
    ] {
        assert_eq!(time(text), None, "{text}");
    }
}

/// The Trace Event format as Perfetto reads it: each event has a phase, a process and a thread;
/// complete events have a time and a length in microseconds, and those of a thread do not overlap;
/// each thread has a name.
#[test]
fn the_trace_is_what_perfetto_reads() {
    let loads = [
        "control=periodic:period=970us,work=20us",
        "video=burst:work=3ms,sleep=3ms",
        "batch=spin",
    ];
    let simulated = run("trace-events", None, &loads, 100_000_000).unwrap();
    let text = trace_events::document(&simulated).to_string();
    let document: Value = serde_json::from_str(&text).unwrap();
    let mut named = Vec::new();
    let mut ends: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    for event in document["traceEvents"].as_array().unwrap() {
        let thread = (
            event["pid"].as_u64().unwrap(),
            event["tid"].as_u64().unwrap(),
        );
        assert!(event["name"].is_string(), "{event}");
        match event["ph"].as_str().unwrap() {
            "M" => {
                assert!(event["args"]["name"].is_string(), "{event}");
                named.extend((event["name"] == "thread_name").then_some(thread));
            }
            "X" => {
                let (start, length) = (
                    event["ts"].as_f64().unwrap(),
                    event["dur"].as_f64().unwrap(),
                );
                assert!(start >= 0.0 && length >= 0.0, "{event}");
                ends.entry(thread)
                    .or_default()
                    .push((start, start + length));
            }
            "i" => assert!(event["ts"].is_number() && event["s"] == "t", "{event}"),
            phase => panic!("{phase}"),
        }
    }
    assert_eq!(named.len(), 5);
    assert_eq!(ends.len(), 5, "a CPU and four vCPUs run");
    for (thread, mut events) in ends {
        assert!(named.contains(&thread));
        events.sort_by(|a, b| a.partial_cmp(b).unwrap());
        let overlap = events.windows(2).find(|pair| pair[1].0 < pair[0].1 - 1e-6);
        assert_eq!(overlap, None, "thread {thread:?}");
    }
}

/// The picture has a lane for each CPU and vCPU, and draws what ran: blocks of the CPU's lane cover
/// the section, but for the switches.
#[test]
fn the_picture_shows_every_lane() {
    let loads = [
        "control=periodic:period=970us,work=20us",
        "video=spin",
        "batch=spin",
    ];
    let simulated = run("picture", None, &loads, 100_000_000).unwrap();
    let section = Section {
        start: 10_000_000,
        end: 60_000_000,
    };
    let svg = picture::draw(&simulated, section);
    for label in [
        "CPU 0, fair",
        "control",
        "video",
        "batch.0",
        "batch.1",
        "10 ms",
        "60 ms",
    ] {
        assert_eq!(
            svg.matches(&format!(">{label}</text>")).count(),
            1,
            "{label}"
        );
    }
    let number = |line: &str, name: &str| -> f64 {
        let (_, rest) = line.split_once(&format!(" {name}=\"")).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    let blocks = svg
        .lines()
        .filter(|line| line.starts_with("<rect x") && line.contains(" y=\"40.0\""));
    let covered: f64 = blocks.map(|line| number(line, "width")).sum();
    assert!((1_150.0..=1_230.0).contains(&covered), "{covered}");
}
