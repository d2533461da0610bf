//! Figures of a simulation: of each vCPU, and of each CPU.
//!
//! Shares are parts of the simulated time, and sum up to at most 1 on a CPU. What the gears take is
//! told apart from idle time: a policy with many switches would else look like one with few vCPUs.

use std::fmt::Write as _;

use gear2_core::scheduler::virtual_cpu::Task;
use serde_json::{Value, json};

use super::{Lane, Simulated};

/// Median, 99th percentile and maximum of times, in ticks. Averages are left out: they hide what a
/// scheduler promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Number of times.
    pub count: usize,
    /// Half of the times are at most this.
    pub p50: u64,
    /// 99 of 100 are at most this.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

impl Spread {
    /// Returns the spread of times. Nearest rank: each value is one that occurred.
    pub fn of(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let at = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).max(1);
            times.get(rank - 1).copied().unwrap_or(0)
        };
        Self {
            count: times.len(),
            p50: at(50),
            p99: at(99),
            max: at(100),
        }
    }

    /// Units are parts of the names.
    fn json(self) -> Value {
        json!({
            "count": self.count,
            "p50_us": us(self.p50),
            "p99_us": us(self.p99),
            "max_us": us(self.max),
        })
    }

    /// Three numbers in a column; a dash where nothing was measured.
    fn text(self) -> String {
        if self.count == 0 {
            return "-".to_owned();
        }
        [self.p50, self.p99, self.max].map(short).join("/")
    }
}

/// Returns microseconds with a digit behind the point where that matters. More digits suggest an
/// exactness that the model does not have.
fn short(ticks: u64) -> String {
    match us(ticks) {
        us if us < 1_000.0 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}

/// Figures of a vCPU. Parts are of the time. Every value is there with any policy, so that policies
/// can be compared.
#[derive(Clone, Debug)]
pub struct VcpuFigures {
    /// Name.
    pub name: String,
    /// The load, as it was written.
    pub load: String,
    /// Part that it ran.
    pub share: f64,
    /// Part that its jobs asked for.
    pub wanted: f64,
    /// Part that the gears took for it.
    pub overhead: f64,
    /// Times for which it was ready and did not run.
    pub wait: Spread,
    /// Times from wake-ups to first instructions.
    pub latency: Spread,
    /// Times from the releases of jobs to their ends.
    pub response: Spread,
    /// Jobs that ended.
    pub jobs: u64,
    /// Jobs that did not end in time.
    pub missed: u64,
    /// Times that another vCPU took its place.
    pub preemptions: u64,
    /// Times that it got the CPU.
    pub switches: u64,
}

/// Figures of a CPU. What is neither busy nor lost is idle.
#[derive(Clone, Debug)]
pub struct CpuFigures {
    /// Number of the CPU.
    pub cpu: usize,
    /// Name of the policy.
    pub policy: &'static str,
    /// Part in which a vCPU ran.
    pub busy: f64,
    /// Part that the gears took.
    pub lost: f64,
    /// vCPUs of the CPU.
    pub vcpus: Vec<VcpuFigures>,
}

/// Figures of a simulation. Plain data, for text and JSON alike.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Simulated time in ticks.
    pub length: u64,
    /// All CPUs.
    pub cpus: Vec<CpuFigures>,
}

/// Returns microseconds. A tick is a nanosecond in simulations.
pub(super) fn us(ticks: u64) -> f64 {
    ticks as f64 / 1_000.0
}

impl Figures {
    /// Returns the figures of a simulation. The CPUs run for the same time, but for the last event.
    pub fn of(simulated: &[Simulated]) -> Self {
        let length = simulated.iter().map(|cpu| cpu.virtual_cpu.now).max();
        Self {
            length: length.unwrap_or(0),
            cpus: simulated.iter().map(of_cpu).collect(),
        }
    }

    /// Returns one JSON document. Names say the unit, as in the document around.
    pub fn json(&self) -> Value {
        let cpus: Vec<_> = self.cpus.iter().map(CpuFigures::json).collect();
        json!({ "seconds": us(self.length) / 1e6, "cpus": cpus })
    }

    /// Returns tables for a person.
    pub fn text(&self) -> String {
        let mut text = "Times are p50/p99/maximum in microseconds.\n".to_owned();
        for cpu in &self.cpus {
            cpu.write(&mut text);
        }
        text
    }
}

/// Overhead is charged to the vCPU for which it was done.
fn of_cpu(simulated: &Simulated) -> CpuFigures {
    let cpu = &simulated.virtual_cpu;
    let part = |ticks| part(ticks, cpu.now);
    let lanes = simulated.lanes.iter().zip(&cpu.tasks);
    CpuFigures {
        cpu: simulated.cpu,
        policy: simulated.policy,
        busy: part(cpu.tasks.iter().map(|task| task.used).sum()),
        lost: part(cpu.tasks.iter().map(|task| task.overhead).sum()),
        vcpus: lanes
            .map(|(lane, task)| of_vcpu(lane, task, cpu.now))
            .collect(),
    }
}

/// Copied out of the simulator, which may go on.
fn of_vcpu(lane: &Lane, task: &Task, now: u64) -> VcpuFigures {
    VcpuFigures {
        name: lane.name.clone(),
        load: lane.load.clone(),
        share: part(task.used, now),
        wanted: part(task.wanted, now),
        overhead: part(task.overhead, now),
        wait: Spread::of(waits(task, now)),
        latency: Spread::of(task.wakes.iter().map(|wake| wake.1).collect()),
        response: Spread::of(task.responses.clone()),
        jobs: task.jobs,
        missed: task.missed(now),
        preemptions: task.preemptions,
        switches: task.switches,
    }
}

/// Returns a part of the simulated time; work that goes on behind its end counts up to there. The
/// denominator is never 0: a simulation has a length.
fn part(ticks: u64, now: u64) -> f64 {
    ticks.min(now) as f64 / now as f64
}

/// Returns the waits of a task, with one that has not ended. A vCPU that starves to the end has no
/// wait that ended.
fn waits(task: &Task, now: u64) -> Vec<u64> {
    let mut waits = task.waits.clone();
    let last = task.longest_wait(now);
    if waits.iter().all(|wait| *wait < last) {
        waits.push(last);
    }
    waits.retain(|wait| *wait > 0);
    waits
}

/// In the order of [`VcpuFigures::row`].
const TITLES: [&str; 9] = [
    "vCPU",
    "share %",
    "wanted %",
    "gears %",
    "waits",
    "wake-ups",
    "missed",
    "preempted",
    "turns",
];

impl CpuFigures {
    fn json(&self) -> Value {
        let vcpus: Vec<_> = self.vcpus.iter().map(VcpuFigures::json).collect();
        json!({
            "cpu": self.cpu,
            "policy": self.policy,
            "busy_percent": self.busy * 100.0,
            "lost_percent": self.lost * 100.0,
            "vcpus": vcpus,
        })
    }

    /// Columns are as wide as their longest cell.
    fn write(&self, text: &mut String) {
        let (cpu, policy) = (self.cpu, self.policy);
        let (busy, lost) = (self.busy * 100.0, self.lost * 100.0);
        let idle = (100.0 - busy - lost).max(0.0);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "CPU {cpu}, {policy}: vCPUs {busy:.2} %, gears {lost:.2} %, idle {idle:.2} %"
        );
        let mut rows = vec![TITLES.map(str::to_owned)];
        rows.extend(self.vcpus.iter().map(VcpuFigures::row));
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let widths: [usize; 9] = std::array::from_fn(|column| width(column).unwrap_or(0));
        for row in &rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
                let _ = match column {
                    0 => write!(line, "{cell:<width$}  "),
                    _ => write!(line, "{cell:>width$}  "),
                };
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
}

impl VcpuFigures {
    /// Percent with two digits tells a share of 0.01 from none.
    fn row(&self) -> [String; 9] {
        let percent = |part: f64| format!("{:.2}", part * 100.0);
        [
            self.name.clone(),
            percent(self.share),
            percent(self.wanted),
            percent(self.overhead),
            self.wait.text(),
            self.latency.text(),
            format!("{}/{}", self.missed, self.jobs),
            self.preemptions.to_string(),
            self.switches.to_string(),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "load": self.load,
            "share_percent": self.share * 100.0,
            "wanted_percent": self.wanted * 100.0,
            "gears_percent": self.overhead * 100.0,
            "wait": self.wait.json(),
            "latency": self.latency.json(),
            "response": self.response.json(),
            "jobs": self.jobs,
            "missed": self.missed,
            "preemptions": self.preemptions,
            "switches": self.switches,
        })
    }
}
