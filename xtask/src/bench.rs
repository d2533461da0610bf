//! `cargo xtask bench`: the benchmark guest's figures, native and under GearV, side by side.
//!
//! By default one instruction is one nanosecond of virtual time, so that figures are path
//! lengths and repeat exactly.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use clap::Args;

use crate::build_images;
use crate::expect::Session;
use crate::qemu::{Boot, Console, Machine, Qemu};
use crate::{run, workspace};

pub(crate) mod wake;

const TIMEOUT: Duration = Duration::from_secs(300);
/// A counter tick an instruction: most models' own frequency cannot show short paths.
const COUNTER: &str = "cntfrq=1000000000";

/// The goals, in instructions; what has none is only watched.
const GOALS: [(&str, u64); 9] = [
    ("hypercall", 60),
    ("mmio_gicd", 100),
    ("sysreg", 80),
    ("eoi", 7),
    ("sgi_self_entry", 140),
    ("timer", 95),
    ("timer_wfi", 380),
    ("ipi_entry", 260),
    ("ipi_wfi_entry", 500),
];
/// The round trip from a guest through Gear2, which exists only under GearV.
const ROUND_TRIP: (&str, u64) = ("gear2_roundtrip", 220);

/// The options of `bench`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The CPU model
    #[arg(long, value_name = "MODEL", default_value = "max")]
    cpu: String,
    /// The version of the interrupt controller
    #[arg(long, value_name = "VERSION", default_value_t = 3)]
    gic: u32,
    /// The major version of QEMU: 10, or Debian 12's 7
    #[arg(long, value_name = "VERSION", default_value_t = 10)]
    qemu: u32,
    /// Measure wall time instead of instructions
    #[arg(long)]
    wall: bool,
    /// Measure with Gear2 at EL1 instead of EL0
    #[arg(long)]
    el1: bool,
    /// Measure how long a signal takes to a program of the device VM, and natively
    #[arg(long)]
    wake: bool,
}

/// The distribution of one figure, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Figure {
    min: u64,
    median: u64,
    mean: u64,
    p99: u64,
    max: u64,
}

type Figures = BTreeMap<String, Figure>;

impl Options {
    /// Measures both and prints the table.
    pub(crate) fn run(self) -> Result<()> {
        if self.wake {
            return self.run_wake();
        }
        let manifest = if self.el1 {
            "tests/manifests/bench-el1.dts"
        } else {
            "tests/manifests/bench.dts"
        };
        let images = build_images::build(&workspace::root().join(manifest))?;
        let guest = build_images::build_guest("bench")?;
        let qemu = Qemu::prepare(self.qemu)?;
        let memory_mib = run::memory_for(&images)?;
        let machine = Machine {
            cpu: format!("{},{COUNTER}", self.cpu),
            gic: self.gic,
            memory_mib,
            icount: !self.wall,
            ..Machine::default()
        };
        let boot = Boot::bare(&guest);
        let command = qemu.command(&machine.clone().without_el2(), &boot, Console::Pipes);
        let native = measure(Session::start(command, &log("native"))?)?;
        let gearv = measure(images.start(&qemu, &machine, &log("gearv"))?)?;
        print!("{}", table(&native, &gearv));
        Ok(())
    }

    fn run_wake(&self) -> Result<()> {
        let images = build_images::build(&workspace::root().join("tests/manifests/wake.dts"))?;
        let qemu = Qemu::prepare(self.qemu)?;
        let machine = Machine {
            cpu: format!("{},{COUNTER}", self.cpu),
            gic: self.gic,
            memory_mib: run::memory_for(&images)?,
            icount: !self.wall,
            ..Machine::default()
        };
        let command = wake::natively(&qemu, &machine)?;
        let native = measure(Session::start(command, &log("wake-native"))?)?;
        let machine = Machine {
            cpus: u32::try_from(images.manifest.cpu_count)?,
            ..machine
        };
        let gearv = measure(images.start(&qemu, &machine, &log("wake-gearv"))?)?;
        print!("{}", table_of(&wake::ROWS, &native, &gearv));
        Ok(())
    }
}

fn log(what: &str) -> PathBuf {
    workspace::output_dir().join(format!("bench/{what}.log"))
}

/// Waits for the benchmark's end and reads its figures.
fn measure(mut session: Session) -> Result<Figures> {
    let printed = session.expect("DONE\n", TIMEOUT);
    let last_words = || build_images::last_words(&session);
    let printed = printed.map_err(|error| anyhow!("{error:#}\n{}", last_words()))?;
    let figures = parse(&printed);
    ensure!(
        !figures.is_empty(),
        "nothing was measured:\n{}",
        last_words()
    );
    Ok(figures)
}

/// Parses the lines `BENCH <name> <min> <median> <mean> <p99> <max>`.
fn parse(printed: &str) -> Figures {
    printed.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<(String, Figure)> {
    let (_, rest) = line.split_once("BENCH ")?;
    let mut words = rest.split_whitespace();
    let name = words.next()?.to_owned();
    let mut next = || words.next()?.parse().ok();
    let figure = Figure {
        min: next()?,
        median: next()?,
        mean: next()?,
        p99: next()?,
        max: next()?,
    };
    Some((name, figure))
}

/// Formats both runs side by side; the order is that of the goals, then by name.
fn table(native: &Figures, gearv: &Figures) -> String {
    let order = GOALS.iter().chain([&ROUND_TRIP]).map(|(name, _)| *name);
    table_of(&order.collect::<Vec<_>>(), native, gearv)
}

/// The same, with these names first.
fn table_of(order: &[&str], native: &Figures, gearv: &Figures) -> String {
    let others = gearv.keys().chain(native.keys());
    let mut names: Vec<String> = order.iter().map(|name| (*name).to_owned()).collect();
    for name in others {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let mut text = format!(
        "{:16} {:>8} | {:>8} {:>8} {:>8} {:>8} {:>8} | {:>7} {:>6}\n",
        "median, ns", "native", "GearV", "min", "mean", "p99", "max", "ratio", "goal"
    );
    for name in names {
        text += &row(&name, native.get(&name), gearv.get(&name));
    }
    text
}

fn row(name: &str, native: Option<&Figure>, gearv: Option<&Figure>) -> String {
    let cell = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |v| v.to_string());
    let of = |get: fn(&Figure) -> u64| cell(gearv.map(get));
    let ratio = match (native, gearv) {
        (Some(native), Some(gearv)) if native.median > 0 => {
            format!("{:.1}", gearv.median as f64 / native.median as f64)
        }
        _ => "-".to_owned(),
    };
    let goal = GOALS
        .iter()
        .chain([&ROUND_TRIP])
        .find(|(goal, _)| *goal == name);
    let goal = goal.map(|(_, goal)| *goal);
    let met = match (goal, gearv) {
        (Some(goal), Some(gearv)) if gearv.median <= goal => " met",
        (Some(_), Some(_)) => " over",
        _ => "",
    };
    format!(
        "{name:16} {:>8} | {:>8} {:>8} {:>8} {:>8} {:>8} | {ratio:>7} {:>6}{met}\n",
        cell(native.map(|figure| figure.median)),
        of(|f| f.median),
        of(|f| f.min),
        of(|f| f.mean),
        of(|f| f.p99),
        of(|f| f.max),
        cell(goal),
    )
}

#[cfg(test)]
mod tests;
