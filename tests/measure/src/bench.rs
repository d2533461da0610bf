//! `cargo xtask bench`: one benchmark guest natively, under GearV, KVM and Xen, side by side.
//!
//! By default one instruction is one nanosecond of virtual time, so that figures are path
//! lengths and repeat exactly. The guest's bytes are the same in all columns.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{ArgGroup, Args};
use workbench::cache::sha256;
use workbench::expect::Session;
use workbench::progress::Step;
use workbench::qemu::{Machine, Qemu};
use workbench::{build_images, workspace};
use xtask::run;

use crate::report::{self, Counts, Figures, Origin, Results};

pub mod apps;
pub mod baseline;
pub mod breakdown;
mod column;
pub mod costs;
mod footprint;
mod papers;
mod sched;
mod table;
pub mod wake;

pub use column::{COLUMNS, Column, Under};
use column::{COUNTER, log, measure};

/// The default version, whose figures the documents have.
const QEMU: u32 = 10;
/// Over the page of plots, and below it.
const TITLE: &str = "GearV: path lengths";
const NOTES: &[&str] = &[
    "Instructions of all CPUs together, one a nanosecond of virtual time: path lengths, which repeat exactly, and no times. Caches, TLBs and barriers cost nothing in them.",
];

/// The options of `bench`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("long").args(["apps", "sched"]))]
pub struct Options {
    /// Only the columns, places of --apps or rows of --sched whose names contain this: native,
    /// GearV, KVM, Xen, max, GICv2, weights, ...
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// The major version of QEMU: 10, or Debian 12's 7
    #[arg(long, value_name = "VERSION", default_value_t = QEMU)]
    qemu: u32,
    /// Leave out the rows that need Linux in a device VM; with --sched, measure for a shorter time
    #[arg(long)]
    short: bool,
    /// Measure wall time instead of instructions
    #[arg(long)]
    wall: bool,
    /// Also write all figures and samples to this file, instead of target/bench/bench.json or
    /// sched.json
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Show what has changed since a run whose JSON this is
    #[arg(long, value_name = "OLD.json")]
    compare: Option<PathBuf>,
    /// Write GearV's figures into the baseline that `test` compares with
    #[arg(long)]
    accept: bool,
    /// Show what Gear1 executes for this row, by function, in the first column of GearV's that
    /// `--only` leaves
    #[arg(long, value_name = "ROW")]
    breakdown: Option<String>,
    /// Count what GearV, KVM and Xen execute for each row by kind, traps, registers, barriers and
    /// others, and estimate the cycles of four cores
    #[arg(long, conflicts_with_all = ["apps", "wall", "compare", "accept", "breakdown", "footprint", "sched"])]
    costs: bool,
    /// Measure only Gear1's size and its work between reset and the first VM; a run of all columns
    /// does so too
    #[arg(long)]
    footprint: bool,
    /// Measure fio, sysbench and hackbench natively, under KVM and under GearV
    #[arg(long)]
    apps: bool,
    /// With --apps, only the workloads whose names contain one of these: fio, tcp-stream, nginx, ...
    /// The JSON of such a run, and of one with --only, is `target/bench/apps-part.json`
    #[arg(
        long,
        value_name = "TEXT,...",
        value_delimiter = ',',
        requires = "apps"
    )]
    workloads: Vec<String>,
    /// Measure how Gear2's policies schedule, beside Linux's under KVM
    #[arg(long, conflicts_with_all = ["apps", "wall", "compare", "accept", "breakdown", "footprint"])]
    sched: bool,
    /// With --apps, as much as the papers have; with --sched, as many jobs and frames as the goals
    /// name. Both take long
    #[arg(long, requires = "long")]
    full: bool,
    /// Measure how long a signal takes to a program of the device VM, and natively
    #[arg(long, exclusive = true)]
    wake: bool,
}

impl Options {
    /// Measures all chosen columns, prints the table and writes the JSON.
    pub fn run(self) -> Result<()> {
        let qemu = Qemu::prepare(self.qemu)?;
        if self.wake {
            return run_wake(&qemu);
        }
        if self.apps {
            let size = apps::Size::of(self.full);
            return apps::run(&qemu, size, &self.only, &self.workloads);
        }
        if self.sched {
            return self.run_sched(&qemu);
        }
        if self.costs {
            return costs::run(&qemu, &self.only);
        }
        if self.footprint {
            let counts = footprint::measure(&qemu, &self.only)?;
            print!("{}", table::counts(&counts));
            return match self.accept {
                true => baseline::accept_boot(&counts),
                false => Ok(()),
            };
        }
        if let Some(row) = &self.breakdown {
            return breakdown::run(&self.first_of_gearv()?, row, &qemu);
        }
        let old = self.compare.as_deref().map(Results::load).transpose()?;
        let results = self.measure_all(&qemu)?;
        self.report(&results, old.as_ref())
    }

    /// Measures the schedulers. `--full` wins over `--short`.
    fn run_sched(&self, qemu: &Qemu) -> Result<()> {
        let size = match (self.short, self.full) {
            (_, true) => sched::Size::FULL,
            (true, false) => sched::Size::SHORT,
            (false, false) => sched::Size::USUAL,
        };
        let json = self.json.clone();
        let json = json.unwrap_or_else(|| workspace::target_dir().join("bench/sched.json"));
        sched::run(qemu, size, &self.only, &json)
    }

    /// Returns the first column of GearV's that `--only` leaves.
    fn first_of_gearv(&self) -> Result<Column> {
        let column = COLUMNS.into_iter().find(|column| {
            matches!(column.under, Under::GearV { .. }) && column.name().contains(&self.only)
        });
        column.with_context(|| format!("GearV has no column {:?}", self.only))
    }

    /// Prints the tables, and writes the JSON, the plots and, if that is asked for, the baseline.
    /// Old results change the tables and the page, and nothing in the JSON.
    fn report(&self, results: &Results, old: Option<&Results>) -> Result<()> {
        print!("{}{}", table::all(results), papers::table(results));
        print!("\n{}", table::counts(&results.counts));
        if let Some(old) = old {
            print!("\n{}", table::changes(old, results));
        }
        let page = report::Page {
            title: TITLE,
            notes: NOTES,
            rows: &table::ROWS,
            judged: table::JUDGED,
            old,
        };
        println!();
        report::save(results, &report::page(&page, results)?, &self.json())?;
        match self.accept {
            true => baseline::accept(results),
            false => Ok(()),
        }
    }

    /// Measures the chosen columns. A name that fits no column is an error with all names, as an
    /// empty table would look like a result.
    fn measure_all(&self, qemu: &Qemu) -> Result<Results> {
        let mut columns = Vec::new();
        let asked_for = |column: &&Column| column.name().contains(&self.only);
        for column in COLUMNS.iter().filter(asked_for) {
            let name = column.name();
            let step = Step::start(&name);
            let figures = self.measure(column, qemu);
            columns.push((name.clone(), figures.with_context(|| name.clone())?));
            step.done(&name);
            // A run of all columns takes long: its results so far survive when it is stopped.
            let so_far = self.results(columns.clone(), Counts::new())?;
            so_far.save(&self.json())?;
        }
        let (only, names) = (&self.only, COLUMNS.map(|column| column.name()).join(", "));
        ensure!(
            !columns.is_empty(),
            "no column is named {only:?}; the names: {names}"
        );
        self.results(columns, self.counts(qemu)?)
    }

    /// Measures the counts. The filter names columns, and counts belong to no column: only a full
    /// run measures them.
    fn counts(&self, qemu: &Qemu) -> Result<Counts> {
        match self.only.is_empty() {
            true => footprint::measure(qemu, ""),
            false => Ok(Counts::new()),
        }
    }

    /// Rows that a device VM serves come last, for they boot Linux.
    fn measure(&self, column: &Column, qemu: &Qemu) -> Result<Figures> {
        let mut figures = column.measure(qemu, self.wall)?;
        if !self.short {
            figures.extend(column.measure_served(qemu, self.wall)?);
        }
        Ok(figures)
    }

    /// Returns the results with what they depend on. The digest of the guest ties the figures to
    /// the program: figures of another guest count other instructions.
    fn results(&self, columns: Vec<(String, Figures)>, counts: Counts) -> Result<Results> {
        let mut conditions = Origin::now().facts();
        conditions.insert("qemu".to_owned(), self.qemu.to_string());
        Ok(Results {
            counts,
            guest: sha256(&build_images::build_guest("bench")?)?,
            conditions,
            columns,
            ..Results::default()
        })
    }

    /// Returns where the figures go.
    fn json(&self) -> PathBuf {
        let json = self.json.clone();
        json.unwrap_or_else(|| workspace::target_dir().join("bench/bench.json"))
    }
}

/// Measures the wake of the device model. Natively the machine has the default number of CPUs,
/// under GearV those of the manifest.
fn run_wake(qemu: &Qemu) -> Result<()> {
    let images = build_images::build(&workspace::root().join("tests/manifests/wake.dts"))?;
    let machine = Machine {
        cpu: format!("max,{COUNTER}"),
        memory_mib: run::memory_for(&images)?,
        icount: true,
        ..Machine::default()
    };
    let command = wake::natively(qemu, &machine)?;
    let native = measure(Session::start(command, &log("wake-native"))?)?;
    let machine = Machine {
        cpus: u32::try_from(images.manifest.cpu_count)?,
        ..machine
    };
    let gearv = measure(images.start(qemu, &machine, &log("wake-gearv"))?)?;
    print!("{}", table::wake(&wake::ROWS, &native, &gearv));
    Ok(())
}
