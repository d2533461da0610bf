//! Recorded loads: jobs with the times of their wake-ups and the lengths of their work.
//!
//! A line is `WAKE,WORK` or `WAKE,WORK,DUE` (CSV, with or without a line of names), or an object
//! `{"wake_us": 10, "work_us": 2.5, "due_us": 20}` (JSON lines). Times are microseconds from the
//! start, decimals allowed; `DUE` is the time by which the job must have ended.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use gear1_abi::regs::NO_DEADLINE;
use gear2_core::scheduler::virtual_cpu::Job;
use serde_json::Value;

use super::time::decimal;

/// A tick of a simulation is a nanosecond. Microseconds are what tracers print; finer ones have
/// digits behind the point.
const TICKS_OF_US: u64 = 1_000;

/// Reads the jobs of a file. Order is checked: a job that wakes up before the one above would run
/// out of turn.
pub(super) fn read(path: &Path) -> Result<Vec<Job>> {
    let text = fs::read_to_string(path).with_context(|| format!("trace:{}", path.display()))?;
    let mut jobs: Vec<Job> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let place = || format!("{}:{}:1", path.display(), number + 1);
        let line = line.trim();
        let is_title = number == 0 && line.starts_with(|c: char| c.is_alphabetic());
        if line.is_empty() || line.starts_with('#') || is_title {
            continue;
        }
        let job = match line.starts_with('{') {
            true => of_json(line).with_context(place)?,
            false => of_csv(line).with_context(place)?,
        };
        let last = jobs.last().map_or(0, |job| job.release);
        ensure!(
            job.release >= last,
            "{}: a wake-up before the one above",
            place()
        );
        jobs.push(job);
    }
    Ok(jobs)
}

/// Two fields are what most tracers can export. A trace without deadlines is judged by its response
/// times alone.
fn of_csv(line: &str) -> Result<Job> {
    let fields: Vec<_> = line.split(',').map(str::trim).collect();
    let (wake, work, due) = match fields[..] {
        [wake, work] => (wake, work, None),
        [wake, work, due] => (wake, work, Some(due)),
        _ => bail!("WAKE,WORK or WAKE,WORK,DUE in microseconds is expected"),
    };
    job(wake, work, due)
}

/// An unknown field is refused: it may be a misspelled deadline.
fn of_json(line: &str) -> Result<Job> {
    let value: Value = serde_json::from_str(line)?;
    let object = value.as_object().context("an object is expected")?;
    let known = ["wake_us", "work_us", "due_us"];
    if let Some(name) = object.keys().find(|name| !known.contains(&name.as_str())) {
        bail!("there is no {name:?}, there are wake_us, work_us and due_us");
    }
    let field = |name: &str| object.get(name).map(Value::to_string);
    let wake = field("wake_us").context("wake_us is missing")?;
    let work = field("work_us").context("work_us is missing")?;
    job(&wake, &work, field("due_us").as_deref())
}

/// A job without work would wake up and never end.
fn job(wake: &str, work: &str, due: Option<&str>) -> Result<Job> {
    let ticks = |name: &str, text: &str| {
        decimal(text, TICKS_OF_US)
            .with_context(|| format!("{name}: {text} is no time in microseconds"))
    };
    let work = ticks("work", work)?;
    ensure!(work > 0, "a job without work");
    Ok(Job {
        release: ticks("wake", wake)?,
        work,
        due: due.map_or(Ok(NO_DEADLINE), |due| ticks("due", due))?,
    })
}
