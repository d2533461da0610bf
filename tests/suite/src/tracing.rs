//! Traces on the target: what `gearctl trace` writes, whether its exits are those that were counted, and
//! how many instructions an event costs.
//!
//! Requirements: G1-TRC-001, G1-TRC-002, G1-TRC-003.
//!
//! A trace that loses or invents an exit misleads whoever reads it, and nothing on the screen shows
//! that. Counters of exits are kept by other code than the records, so the two can check each
//! other.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests_measure::bench::Column;
use tests_measure::report::Figures;
use workbench::expect::Session;
use workbench::qemu::{Machine, Qemu};
use xtask::smoke::device_vm::{json, number};
use xtask::smoke::shell;

use crate::device_shell::{on_machine, power_off, under};
use crate::part::{Part, Tally};

/// The traced VM of Gear2's and the real-time one, by their numbers, and the former's vCPUs.
/// Numbers follow the order of the manifests; the device VM is 0.
const TRACED: u64 = 1;
const REAL_TIME: u64 = 2;
const VCPUS: [u64; 2] = [1, 2];
/// vCPU of the real-time VM, and groups that it has exits of. The guest is the same binary.
const OWN_CPU: u64 = 3;
const OWN_GROUPS: [&str; 3] = ["calls", "instructions", "memory"];
/// Groups that the guest has exits of. A group without an exit would agree by being empty.
const GROUPS: [&str; 6] = [
    "calls",
    "instructions",
    "memory",
    "waits",
    "fp",
    "interrupts",
];
/// Exits that the guest has, by the names in the file.
const EXITS: [&str; 7] = [
    "hvc",
    "smc",
    "register read",
    "register write",
    "load",
    "wfi",
    "fp",
];
/// Process of the CPUs in the file; VMs follow. The format is the trace viewer's, which knows
/// processes and threads.
const CPUS: u64 = 0;

/// A machine traces on demand or from boot, which are two states of the vector table, so each has a
/// machine.
pub(super) fn parts() -> Vec<Part> {
    vec![
        Part::new("tracing", run),
        Part::new("tracing from boot", run_from_boot),
        Part::new("tracing: path lengths", path_lengths),
    ]
}

fn run(tally: &mut Tally) -> Result<()> {
    run_under(None, tally)
}

/// Traces under another Gear1. Planted bugs in the recording code are found by this.
pub(super) fn run_other(gear1: PathBuf, tally: &mut Tally) -> Result<()> {
    run_under(Some(gear1), tally)
}

fn run_under(gear1: Option<PathBuf>, tally: &mut Tally) -> Result<()> {
    under(gear1, "tracing", machine(2), |session, _| {
        check(session, tally)?;
        power_off(session)
    })
}

fn machine(cpus: u32) -> Machine {
    Machine {
        cpus,
        ..Machine::default()
    }
}

/// Traces, and says how long that took: a command takes as long as the host lets it.
fn trace(session: &mut Session, seconds: &str, file: &str) -> Result<Value> {
    let begin = session.elapsed();
    let command = format!("gearctl trace --json --seconds {seconds} --output /tmp/{file}");
    let answer = json(session, &command)?;
    let (begin, end) = (begin.as_secs_f32(), session.elapsed().as_secs_f32());
    println!("trace of {seconds} s: {begin:.1} s to {end:.1} s");
    Ok(answer)
}

/// Zero seconds read what the rings hold without a trace of one's own. Half a second is long enough
/// for each group on both vCPUs; 30 ms make a file that a serial console can carry.
fn check(session: &mut Session, tally: &mut Tally) -> Result<()> {
    let trace = |session: &mut Session, seconds: &str| trace(session, seconds, seconds);
    // The first question has to come before any trace: the rings keep what was recorded once.
    let nothing = trace(session, "0")?;
    tally.check("nothing is written before a trace", empty(&nothing));
    let long = trace(session, "0.5")?;
    tally.check("records are the counters'", agreed(&long, &VCPUS, &GROUPS));
    let short = trace(session, "0.03")?;
    let file = read(session, "/tmp/0.03")?;
    tally.check("a file has what was recorded", whole(&short, &file));
    tally.check("nothing is in two places at once", apart(&file));
    let [first, second] = [trace(session, "0")?, trace(session, "0")?];
    tally.check("nothing is written behind a trace", same(&first, &second));
    Ok(())
}

fn run_from_boot(tally: &mut Tally) -> Result<()> {
    on_machine("tracing-boot", machine(3), |session, _| {
        check_from_boot(session, tally)?;
        power_off(session)
    })
}

/// The real-time VM is compared here only: its CPU does not trace on demand, and `gearctl` names it
/// as not compared.
fn check_from_boot(session: &mut Session, tally: &mut Tally) -> Result<()> {
    let kept = trace(session, "0", "kept")?;
    tally.check("rings are written since boot", unjudged(&kept));
    let short = trace(session, "0.03", "short")?;
    tally.check("records are the counters'", agreed(&short, &VCPUS, &GROUPS));
    let of_own = agreed(&short, &[OWN_CPU], &OWN_GROUPS);
    tally.check("those of a real-time VM are its counters'", of_own);
    let file = read(session, "/tmp/short")?;
    tally.check("a real-time VM is in the file", real_time(&file));
    let [first, second] = [trace(session, "0", "kept")?, trace(session, "0", "kept")?];
    // As after a trace on demand, but with the opposite result.
    let goes_on = same(&first, &second).is_err();
    tally.check(
        "rings are written behind a trace",
        goes_on.then_some(()).context("they are not"),
    );
    Ok(())
}

/// Reads a file of the device VM, which is short enough for its console. The file goes through the
/// console because the device VM has no other way out in this manifest. The size is printed: a busy
/// host takes long for a big one, and a timeout then has a reason.
fn read(session: &mut Session, path: &str) -> Result<Value> {
    let printed = shell(session, &format!("tr -d '\\n' < {path}; echo"))?;
    let (length, end) = (printed.len(), session.elapsed().as_secs_f32());
    println!("{path}: {length} bytes were printed up to {end:.1} s");
    let line = printed.lines().find(|line| line.starts_with('{'));
    let line = line.with_context(|| format!("{path} is {printed:?}"))?;
    serde_json::from_str(line).with_context(|| format!("{path} is {line}"))
}

/// As many exits of each kind were recorded as were counted, and these vCPUs had these kinds.
/// `exact` is `gearctl`'s own verdict. The rows are compared here once more, so that a verdict that
/// is always good is found.
fn agreed(answer: &Value, vcpus: &[u64], groups: &[&str]) -> Result<()> {
    ensure!(answer["agreement"] == "exact", "{answer}");
    // A ring that is overrun would make any comparison impossible.
    ensure!(number(&answer["lost"])? == 0, "{answer}");
    let others = answer["not_compared"].as_array().context("no list")?;
    ensure!(others.is_empty(), "{others:?} were not compared");
    let rows = answer["exits"].as_array().context("no exits")?;
    for &vcpu in vcpus {
        for &group in groups {
            let row = rows
                .iter()
                .find(|row| row["vcpu"] == vcpu && row["group"] == group);
            let row = row.with_context(|| format!("vCPU {vcpu} has no {group}: {answer}"))?;
            ensure!(row["recorded"] == row["counted"], "{row}");
        }
    }
    Ok(())
}

fn events(file: &Value) -> Result<&Vec<Value>> {
    file["traceEvents"].as_array().context("no events")
}

/// The file names all threads, and has at least the exits that were compared, of all kinds. The
/// decisions of Gear2 and the spans of CPUs are in the file, too.
fn whole(answer: &Value, file: &Value) -> Result<()> {
    let events = events(file)?;
    let rows = answer["exits"].as_array().context("no exits")?;
    let of_guest = rows.iter().filter(|row| row["vm"] == "traced");
    let recorded: u64 = of_guest.filter_map(|row| row["recorded"].as_u64()).sum();
    // Only exits have a syndrome; decisions and spans have none.
    let is_exit = |event: &&Value| event["args"]["syndrome"].is_string();
    // Process 0 is the CPUs', so a VM's is its number and one.
    let of = |vm: u64| move |event: &&Value| event["pid"] == 1 + vm;
    let exits = || events.iter().filter(is_exit).filter(of(TRACED));
    ensure!(
        recorded > 0 && exits().count() as u64 >= recorded,
        "{recorded} exits"
    );
    for name in EXITS {
        ensure!(exits().any(|event| event["name"] == name), "no {name}");
    }
    let has = |vm: u64, name: &str| {
        events
            .iter()
            .filter(of(vm))
            .any(|event| event["name"] == name)
    };
    // INTID 27 is the virtual timer's.
    for name in ["runs", "woken", "blocked", "interrupt 27"] {
        ensure!(has(TRACED, name), "no {name}");
    }
    for name in ["Gear2", "idle", "traced 0", "chosen: traced 1"] {
        let on_cpu = events.iter().filter(|event| event["pid"] == CPUS);
        ensure!(
            on_cpu.into_iter().any(|event| event["name"] == name),
            "no {name}"
        );
    }
    Ok(())
}

/// The spans of a thread follow each other, and begin and end in the order of the file. A CPU that
/// seems to run two vCPUs at once would be a record read twice or in the wrong order.
fn apart(file: &Value) -> Result<()> {
    let mut ends = BTreeMap::<(u64, u64), f64>::new();
    for event in events(file)?.iter().filter(|event| event["ph"] == "X") {
        let place = (number(&event["pid"])?, number(&event["tid"])?);
        let [begin, length] = ["ts", "dur"].map(|name| event[name].as_f64().unwrap_or(-1.0));
        let end = ends.entry(place).or_default();
        // Times are rounded to nanoseconds.
        ensure!(
            begin >= *end - 0.002 && length >= 0.0,
            "{event} begins before {end}"
        );
        *end = begin + length;
    }
    ensure!(
        ends.len() > GROUPS.len() / 2,
        "{} threads have spans",
        ends.len()
    );
    Ok(())
}

/// A real-time VM runs on its CPU all the time, and has exits. One span for all of the trace: Gear2
/// takes no turn there, so a second span would be an invented one.
fn real_time(file: &Value) -> Result<()> {
    let events = events(file)?;
    let own = || events.iter().filter(|event| event["pid"] == 1 + REAL_TIME);
    for name in ["runs", "hvc", "register read", "load"] {
        ensure!(own().any(|event| event["name"] == name), "no {name}");
    }
    let spans = own().filter(|event| event["ph"] == "X").count();
    ensure!(spans == 1, "{spans} spans of one run");
    Ok(())
}

/// Nothing was ever recorded. Without a trace the usual vector table is in use, which has no code
/// for records.
fn empty(answer: &Value) -> Result<()> {
    ensure!(answer["traps"] == 0 && answer["decisions"] == 0, "{answer}");
    Ok(())
}

/// Between two reads nothing was recorded. The trace has left something to read; two empty answers
/// would be equal, too.
fn same(first: &Value, second: &Value) -> Result<()> {
    let both = ["traps", "decisions"].map(|name| [&first[name], &second[name]]);
    ensure!(
        both.iter().all(|[first, second]| first == second),
        "{both:?}"
    );
    ensure!(number(&first["traps"])? > 0, "{first}");
    Ok(())
}

/// The rings have records, which nobody compares. Counters of the boot have no beginning to compare
/// with. The number shows that recording began long ago.
fn unjudged(answer: &Value) -> Result<()> {
    ensure!(answer["agreement"] == "not-compared", "{answer}");
    ensure!(number(&answer["traps"])? > 1_000, "{answer}");
    Ok(())
}

/// Most instructions that an event may cost. G1-TRC-001 has the number.
const EVENT: u64 = 12;
/// Rows, and the events in each, of all CPUs. A row with a way to Gear2 and back has an exception
/// of the guest and one of Gear2.
const ROWS: [(&str, u64); 4] = [
    ("hypercall", 1),
    ("sysreg", 1),
    ("timer", 1),
    ("gear2_roundtrip", 2),
];

/// Rings that are not written cost nothing, and a record what it may. Instructions are counted
/// (`-icount`), so equal means equal: one instruction more on an untraced path fails.
fn path_lengths(tally: &mut Tally) -> Result<()> {
    let column = Column::of("GearV EL0 max GICv3")?;
    let qemu = Qemu::prepare(10)?;
    let measure = |gear2: &str| column.measure_policy(&qemu, ("round-robin", gear2, ""));
    let without = measure("")?;
    let off = measure("trace-kib = <64>;")?;
    let on = measure("trace-kib = <64>; trace-from-boot;")?;
    for (row, figure) in &without {
        let there = off.get(row).map(|off| off.median);
        let what = format!("{row} with rings that are not written");
        tally.check(&what, equal(figure.median, there));
    }
    for (row, events) in ROWS {
        let median = |figures: &Figures| figures.get(row).map(|figure| figure.median);
        let (before, after) = (median(&without), median(&on));
        println!("figure: {row}: {before:?}, traced {after:?}");
        tally.check(
            &format!("{row} while it is traced"),
            costs(before, after, events),
        );
    }
    Ok(())
}

fn equal(before: u64, after: Option<u64>) -> Result<()> {
    ensure!(after == Some(before), "{after:?} instead of {before}");
    Ok(())
}

/// A record is some instructions, and no more than it may be. No difference would mean that nothing
/// was recorded.
fn costs(before: Option<u64>, after: Option<u64>, events: u64) -> Result<()> {
    let (before, after) = before.zip(after).context("no such row")?;
    let more = after.saturating_sub(before);
    ensure!(
        (1..=events * EVENT).contains(&more),
        "{more} for {events} events"
    );
    Ok(())
}
