//! Figures that are computed from the guests' reports, and the goals.
//!
//! Each function computes the figures of one question. A figure that a measured VM did not report
//! is an error and never a zero, which would meet most goals.

use anyhow::{Context as _, Result, ensure};

use super::balance;
use super::guest::Report;

/// A question, with the parameters of its answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Question {
    /// How late VM 0 wakes up: the worse of all runs.
    Latency {
        /// Most microseconds of the maximum.
        goal_us: Option<f64>,
    },
    /// How the work of the VMs differs from their weights.
    Weights {
        /// The weights.
        weights: Vec<f64>,
        /// Whether this policy has the goal.
        judged: bool,
    },
    /// How much less the VMs of the second run work together than the one of the first alone.
    Lost {
        /// The slice, of a policy that has the goals.
        slice_us: Option<f64>,
    },
    /// How much VM 0 of the second run works, the one of the first being alone.
    Cap {
        /// The cap in percent, and the budget that it gives in a period.
        percent: f64,
        budget_us: f64,
        /// Whether this policy has the goal.
        judged: bool,
    },
    /// How long the bursts of VM 0 take.
    Burst {
        /// Whether this policy has the goal.
        judged: bool,
    },
    /// How many jobs are late.
    Jobs {
        /// Whether this policy has the goal.
        judged: bool,
    },
    /// How late windows begin.
    Windows,
    /// How long it takes until each of two CPUs has two of four spinners.
    Balance {
        /// Whether this system has the goal.
        judged: bool,
    },
    /// Cost of a move to another CPU, by a trace.
    Moves,
}

/// A figure of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    /// Name of the figure, with the unit behind the last space. A figure without a unit is a count.
    pub(super) name: &'static str,
    /// The value.
    pub(super) value: f64,
    /// The goal, of a row that is judged.
    pub(super) goal: Option<Goal>,
}

/// A goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Goal {
    /// At most this value.
    AtMost(f64),
    /// At most the second value away from the first.
    Within(f64, f64),
}

impl Goal {
    /// Tells whether a value meets the goal.
    pub(super) fn is_met(self, value: f64) -> bool {
        match self {
            Goal::AtMost(most) => value <= most,
            Goal::Within(middle, most) => (value - middle).abs() <= most,
        }
    }
}

/// Most microseconds that a capped VM may run beyond its budget.
const OVERRUN_US: f64 = 2.0;
/// Largest error of a share, in points. One slice of 2.5 ms is as much of a run of 5 s.
const SHARE_POINTS: f64 = 0.05;
/// Most that switching may cost, in percent.
const LOST_PERCENT: f64 = 0.10;
/// Most that the longest gap may exceed the turns of the others by: the switches.
const GAP_US: f64 = 5.0;
/// Mean and maximum of a burst of 3 ms.
const BURST_US: [f64; 2] = [3001.0, 3003.0];
/// Most microseconds from the time of a window until it begins.
const WINDOW_US: f64 = 2.0;
/// Most microseconds until the spinners are balanced.
const BALANCED_US: f64 = 8_000.0;
/// Most instructions of a move.
const MOVE: f64 = 5_000.0;

impl Question {
    /// Computes the answer from the reports of each run.
    pub(super) fn answer(&self, runs: &[Vec<Report>]) -> Result<Vec<Figure>> {
        match self {
            Question::Latency { goal_us } => latency(runs, *goal_us),
            Question::Weights { weights, judged } => shares(only(runs)?, weights, *judged),
            Question::Lost { slice_us } => lost(pair(runs)?, *slice_us),
            Question::Cap {
                percent,
                budget_us,
                judged,
            } => cap(pair(runs)?, [*percent, *budget_us], *judged),
            Question::Burst { judged } => burst(only(runs)?, *judged),
            Question::Jobs { judged } => jobs(only(runs)?, *judged),
            Question::Windows => windows(only(runs)?),
            Question::Balance { judged } => balanced(runs, *judged),
            Question::Moves => anyhow::bail!("no report tells what a move costs"),
        }
    }
}

/// Returns a figure that is only watched.
fn figure(name: &'static str, value: f64) -> Figure {
    let goal = None;
    Figure { name, value, goal }
}

/// Returns a figure of a row that may be judged.
fn judged(name: &'static str, value: f64, goal: Option<Goal>) -> Figure {
    Figure { name, value, goal }
}

/// Converts nanoseconds, which the guests report, to the table's microseconds.
fn us(ns: u64) -> f64 {
    ns as f64 / 1_000.0
}

/// Returns the reports of a question that has one run.
fn only(runs: &[Vec<Report>]) -> Result<&[Report]> {
    runs.first().map(Vec::as_slice).context("there was no run")
}

/// Returns the reports of a question that compares a run with one before it.
fn pair(runs: &[Vec<Report>]) -> Result<[&[Report]; 2]> {
    let [first, second] = runs else {
        anyhow::bail!("{} runs instead of two", runs.len());
    };
    Ok([first, second])
}

/// Returns the report of VM 0, which is the one that is measured.
fn measured(reports: &[Report]) -> Result<&Report> {
    let report = reports.iter().find(|report| report.id == 0);
    report.context("VM 0 reports nothing")
}

/// Returns the latencies. The worst of each figure over both periods counts, as one period may be
/// in phase with the slices. A missed period is an error of the policy that no maximum shows.
fn latency(runs: &[Vec<Report>], goal_us: Option<f64>) -> Result<Vec<Figure>> {
    let worst = |name: &str| -> Result<u64> {
        let values = runs.iter().map(|reports| measured(reports)?.get(name));
        let values: Vec<u64> = values.collect::<Result<_>>()?;
        values.into_iter().max().context("there was no run")
    };
    let most = goal_us.map(Goal::AtMost);
    Ok(vec![
        figure("median us", us(worst("median")?)),
        figure("p99 us", us(worst("p99")?)),
        judged("max us", us(worst("max")?), most),
        judged("settled max us", us(worst("max_settled")?), most),
        judged(
            "missed",
            worst("missed")? as f64,
            goal_us.map(|_| Goal::AtMost(0.0)),
        ),
    ])
}

/// Returns the instructions of work that all vCPUs of these VMs did. Work is counted in
/// instructions, as times would include what the hypervisor took.
fn work<'r>(reports: impl IntoIterator<Item = &'r Report>) -> Result<f64> {
    let works = reports.into_iter().map(|report| {
        let (units, unit) = (report.get("units")?, report.get("unit")?);
        Ok(units as f64 * unit as f64)
    });
    let works: Vec<f64> = works.collect::<Result<_>>()?;
    Ok(works.iter().sum())
}

/// Returns the share of each VM of all work, and the largest difference from what the weights give.
fn shares(reports: &[Report], weights: &[f64], has_goal: bool) -> Result<Vec<Figure>> {
    const NAMES: [&str; 3] = ["first %", "second %", "third %"];
    let (all, weight) = (work(reports)?, weights.iter().sum::<f64>());
    ensure!(all > 0.0, "nobody worked");
    let mut figures = Vec::new();
    let mut error: f64 = 0.0;
    for ((id, weights_share), name) in (0_u64..).zip(weights).zip(NAMES) {
        let own = reports.iter().filter(|report| report.id == id);
        let share = 100.0 * work(own)? / all;
        error = error.max((share - 100.0 * weights_share / weight).abs());
        figures.push(figure(name, share));
    }
    let goal = has_goal.then_some(Goal::AtMost(SHARE_POINTS));
    figures.push(judged("error points", error, goal));
    Ok(figures)
}

/// Returns what switching took. The longest gap of one of three is two slices of the others, with
/// the switches between them.
fn lost([alone, together]: [&[Report]; 2], slice_us: Option<f64>) -> Result<Vec<Figure>> {
    let (alone, sum) = (work(alone)?, work(together)?);
    ensure!(alone > 0.0, "the VM alone did not work");
    let gaps = together.iter().map(|report| report.get("gap_max"));
    let gaps: Vec<u64> = gaps.collect::<Result<_>>()?;
    let gap = us(gaps.into_iter().max().context("there was no run")?);
    let most = slice_us.map(|slice| Goal::AtMost(2.0 * slice + GAP_US));
    let lost = 100.0 * (1.0 - sum / alone);
    let percent = slice_us.map(|_| Goal::AtMost(LOST_PERCENT));
    Ok(vec![
        judged("lost %", lost, percent),
        judged("longest gap us", gap, most),
    ])
}

/// Returns the capped VM's share of a whole CPU, and its longest run, which must end with the
/// budget.
fn cap(
    [alone, together]: [&[Report]; 2],
    [percent, budget_us]: [f64; 2],
    has_goal: bool,
) -> Result<Vec<Figure>> {
    let capped = measured(together)?;
    let alone = work(alone)?;
    ensure!(alone > 0.0, "the VM alone did not work");
    // A run is seen between two units of work.
    let run = us(capped.get("run_max")? + 2 * capped.get("unit")?);
    let share = 100.0 * work([capped])? / alone;
    let within = has_goal.then_some(Goal::Within(percent, SHARE_POINTS));
    let most = has_goal.then_some(Goal::AtMost(budget_us + OVERRUN_US));
    Ok(vec![
        judged("share %", share, within),
        judged("longest run us", run, most),
    ])
}

/// Returns the times of the bursts. Response times from the timer's deadline are watched only, for
/// they include the wake-up that has its own case.
fn burst(reports: &[Report], has_goal: bool) -> Result<Vec<Figure>> {
    let burst = measured(reports)?;
    let [mean, max] = BURST_US.map(|most| has_goal.then_some(Goal::AtMost(most)));
    Ok(vec![
        judged("mean us", us(burst.get("mean")?), mean),
        judged("max us", us(burst.get("max")?), max),
        figure("from the deadline us", us(burst.get("response_mean")?)),
        figure("its max us", us(burst.get("response_max")?)),
    ])
}

/// Returns the number of late jobs of all servers. The number of jobs shows that the run was long
/// enough for the figure.
fn jobs(reports: &[Report], has_goal: bool) -> Result<Vec<Figure>> {
    let sum = |name| -> Result<u64> {
        let values = reports.iter().map(|report| report.get(name));
        Ok(values.collect::<Result<Vec<u64>>>()?.into_iter().sum())
    };
    let (done, late) = (sum("count")?, sum("late")?);
    let goal = has_goal.then_some(Goal::AtMost(0.0));
    Ok(vec![
        figure("jobs", done as f64),
        judged("late", late as f64, goal),
    ])
}

/// Returns how late the windows of all VMs that have one begin.
fn windows(reports: &[Report]) -> Result<Vec<Figure>> {
    let with_window = || reports.iter().filter(|report| report.get("frames").is_ok());
    let worst = |name: &str| -> Result<u64> {
        let values: Vec<u64> = with_window()
            .map(|report| report.get(name))
            .collect::<Result<_>>()?;
        values.into_iter().max().context("no VM has a window")
    };
    let (mut begun, mut missing) = (0, 0);
    for report in with_window() {
        let count = report.get("count")?;
        begun += count;
        // The first window may begin before the measurement, and the last one end behind it.
        missing += report.get("frames")?.saturating_sub(count + 1);
    }
    Ok(vec![
        figure("windows", begun as f64),
        judged("missing", missing as f64, Some(Goal::AtMost(0.0))),
        figure("late median us", us(worst("median")?)),
        judged("max us", us(worst("max")?), Some(Goal::AtMost(WINDOW_US))),
        figure("longest window us", us(worst("run_max")?)),
    ])
}

/// Returns the least and the most time until the balance. Linux's runs differ by the phase at which
/// threads are released.
fn balanced(runs: &[Vec<Report>], has_goal: bool) -> Result<Vec<Figure>> {
    let times = runs.iter().map(|reports| {
        let spinners = reports.iter().filter(|report| report.get("units").is_ok());
        balance::balanced_after(&spinners.map(|report| &report.runs[..]).collect::<Vec<_>>())
    });
    let times: Vec<u64> = times.collect::<Result<_>>()?;
    let least = times.iter().min().context("there was no run")?;
    let most = times.iter().max().context("there was no run")?;
    let goal = has_goal.then_some(Goal::AtMost(BALANCED_US));
    Ok(vec![
        figure("balanced after us", us(*least)),
        judged("at most us", us(*most), goal),
    ])
}

/// Instructions of all stretches of a leg of a vCPU's move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Leg {
    pub(super) count: u64,
    /// Up to Gear2's decisions.
    pub(super) instructions: u64,
    /// From those behind which a guest was entered to the entries.
    pub(super) way_back: u64,
}

/// Returns the means of the legs of `count` moves, and their sum.
pub(super) fn moves(count: u64, legs: [Leg; 4]) -> Vec<Figure> {
    const NAMES: [&str; 4] = [
        "offer instructions",
        "agreement instructions",
        "giving instructions",
        "arrival instructions",
    ];
    let mean = |sum: u64, count: u64| sum as f64 / count.max(1) as f64;
    let means = legs.map(|leg| mean(leg.instructions, leg.count));
    let back = legs.map(|leg| mean(leg.way_back, leg.count));
    let sum = means.iter().sum();
    let mut figures = vec![
        figure("moves", count as f64),
        judged("together instructions", sum, Some(Goal::AtMost(MOVE))),
    ];
    figures.extend(
        NAMES
            .iter()
            .zip(means)
            .map(|(name, mean)| figure(name, mean)),
    );
    figures.push(figure("ways back instructions", back.iter().sum()));
    figures
}

#[cfg(test)]
mod tests;
