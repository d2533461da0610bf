//! `cargo xtask jitter`: how late cyclictest wakes up natively, under KVM, and in GearV's kinds of
//! VMs.
//!
//! One kernel with PREEMPT_RT, one initramfs and one cyclictest run everywhere (gearv 4.5, tables
//! 10 and 11). QEMU's virtual time is counted in instructions, so figures repeat; docs/rtvm.md says
//! what that can tell.
//!
//! A run takes minutes for each configuration. Results are saved after each, a failure of one
//! leaves the others, and `--from` takes earlier figures in, as far as they were measured alike.

mod board;
mod configuration;
mod drive;
mod exits;
mod fact;
mod log;
mod page;
mod papers;
mod setup;
mod table;
mod verdict;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use gearv_manifest::{Scheduler, binding};
use workbench::progress::Step;
use workbench::{number, workspace};

use self::verdict::Verdict;
use crate::report::{self, Results};

pub use configuration::{Configuration, Load};
pub use exits::Counted;
pub use setup::{Measured, Setup};
pub use table::judge;

/// Each page has them where its figures are QEMU's, since a path length is easily taken for a time.
const NOTES: &[&str] = &[
    "On QEMU an instruction is a nanosecond. These are path lengths: caches, TLBs, memory and buses, through which one \
     VM delays another on real hardware, are not in them.",
    "QEMU executes the CPUs in turns, and the instructions of all of them move the one clock. Without load the other CPUs \
     sleep, and the figures are the measured CPU's own. With load both CPUs take turns of 10 µs: all figures, native ones too, \
     hold the other CPU's turns, and ratios below about 1.5 say nothing.",
];

/// The options of `jitter`.
#[derive(Args, Debug)]
pub struct Options {
    /// Number of periods of a millisecond [default: those of the JSON in --from; else 60000, with
    /// load 10000]
    #[arg(long, value_name = "COUNT", value_parser = number::within(10..=MOST_LOOPS))]
    loops: Option<u64>,
    /// The CPU model
    #[arg(long, value_name = "MODEL", default_value = "cortex-a57")]
    cpu: String,
    /// The version of the interrupt controller
    #[arg(long, value_name = "VERSION", default_value_t = 3, value_parser = number::within(2..=3_u32))]
    gic: u32,
    /// The major version of QEMU; only 10 has the second serial port that a real-time VM needs
    #[arg(long, value_name = "VERSION", default_value_t = 10)]
    qemu: u32,
    /// Load on the other CPU
    #[arg(long, value_enum, default_value_t = Load::Off)]
    load: Load,
    /// Gear2's scheduler, which shares the CPUs out between the guest and the load
    #[arg(long, value_name = "NAME", default_value = "fair", value_parser = scheduler())]
    scheduler: Scheduler,
    /// Configurations to measure [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    configurations: Vec<Configuration>,
    /// The most that a figure of the real-time VM with pass-through may be, native being 1; a maximum
    /// may always be 1.25
    #[arg(long, value_name = "RATIO", default_value_t = 1.05, value_parser = ratio)]
    max_ratio: f64,
    /// Show what has changed since a run whose JSON this is
    #[arg(long, value_name = "OLD.json")]
    compare: Option<PathBuf>,
    /// Only print the steps for a board
    #[arg(long, value_enum, value_name = "NAME")]
    board: Option<workbench::board::Name>,
    /// Make the report from earlier runs' JSON and from consoles' logs, captured on a board,
    /// instead of measuring; configurations that --configurations names are measured anew
    #[arg(long, value_name = "FILE", num_args = 1..)]
    from: Vec<PathBuf>,
    /// Write all figures and samples to this file, and the page beside it, instead of
    /// target/jitter/jitter.json
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Reads the names of the manifests' schedulers that take the VMs of a loaded CPU as they are.
/// Names of the command line are the manifest's own, so that both have one list.
fn scheduler() -> impl TypedValueParser<Value = Scheduler> {
    let names = TAKEN.map(Scheduler::name);
    PossibleValuesParser::new(names).try_map(|name| {
        let all = binding::SCHEDULERS.iter();
        let found = all.clone().find(|(known, _)| *known == name);
        found.map(|(_, scheduler)| *scheduler).context("unknown")
    })
}

/// Reads a ratio of latencies, before anything is measured: none is 0 or less.
fn ratio(text: &str) -> Result<f64, String> {
    let read = text.parse().ok();
    let ratio = read.filter(|ratio: &f64| ratio.is_finite() && *ratio > 0.0);
    ratio.ok_or_else(|| "this is no ratio above 0".to_owned())
}

/// Schedulers that need no parameters of the VMs. `null` has no second VM on a CPU, and `arinc653`
/// needs a time table.
const TAKEN: [Scheduler; 5] = [
    Scheduler::RoundRobin,
    Scheduler::Fair,
    Scheduler::Bvt,
    Scheduler::Edf,
    Scheduler::Priority,
];

/// The most periods: their samples fit into the memory of the guest that measures.
const MOST_LOOPS: u64 = 1_000_000;

impl Options {
    /// Measures, or reads earlier measurements; reports and judges. Faults are an error only after
    /// the report: the figures are what a person needs to find the reason.
    pub fn run(self) -> Result<()> {
        if let Some(board) = self.board {
            let loops = self.loops(&Results::default());
            print!("{}", board::instructions(board, loops, self.load)?);
            return Ok(());
        }
        let old = self.compare.as_deref().map(Results::load).transpose()?;
        let earlier = log::read(&self.from)?;
        let results = match self.from.is_empty() || !self.configurations.is_empty() {
            true => self.measure_all(earlier)?,
            false => earlier,
        };
        let mut faults = failures(&results);
        faults.extend(judge(&results, self.max_ratio));
        self.report(&results, old.as_ref(), &faults)?;
        ensure!(faults.is_empty(), "{}", faults.join("\n       "));
        Ok(())
    }

    /// Prints tables and verdict, and writes the samples and the page. The notes on QEMU's time are
    /// left out for figures of a board.
    fn report(&self, results: &Results, old: Option<&Results>, faults: &[String]) -> Result<()> {
        print!("{}", table::all(results));
        if let Some(old) = old {
            print!("\n{}", table::changes(old, results));
        }
        let verdict = Verdict::of(results, faults);
        println!("\n{}", verdict.text());
        let machine = results.conditions.get(setup::condition::MACHINE);
        let notes = match machine.is_some_and(|machine| machine.starts_with("QEMU")) {
            true => NOTES,
            false => &[],
        };
        for note in notes {
            println!("{note}");
        }
        let page = page::page(results, old, &verdict, notes)?;
        report::save(results, &page, &self.json())
    }

    /// Returns the number of periods. With load there are fewer by default: a machine that is busy
    /// for each nanosecond of virtual time runs slower than the host, and an idle one faster.
    fn loops(&self, earlier: &Results) -> u64 {
        let earlier = earlier.conditions.get(setup::condition::LOOPS);
        let default = match self.load {
            Load::Off => 60_000,
            Load::Cpu | Load::Disk | Load::All => 10_000,
        };
        let earlier = earlier.and_then(|loops| loops.parse().ok());
        self.loops.or(earlier).unwrap_or(default)
    }

    /// Returns where the figures go.
    fn json(&self) -> PathBuf {
        let json = self.json.clone();
        json.unwrap_or_else(|| workspace::target_dir().join("jitter/jitter.json"))
    }

    /// Returns the configurations that were asked for, or all.
    fn configurations(&self) -> Vec<Configuration> {
        match self.configurations.as_slice() {
            [] => configuration::ALL.to_vec(),
            some => some.to_vec(),
        }
    }

    /// Refuses a version of QEMU's that cannot run what was asked for, before minutes are spent on
    /// the others.
    fn ensure_serial_ports(&self, configurations: &[Configuration]) -> Result<()> {
        let is_needed = configurations.iter().any(|one| one.is_real_time());
        ensure!(
            self.qemu >= 10 || !is_needed,
            "QEMU {} has no second serial port, which the real-time VM needs as its own: take --qemu 10, \
             or --configurations native,kvm,guest",
            self.qemu
        );
        Ok(())
    }

    /// Measures one configuration after the other into the earlier results. A measurement of
    /// minutes outlives whatever comes after it: the JSON is written after each.
    fn measure_all(&self, earlier: Results) -> Result<Results> {
        let configurations = self.configurations();
        self.ensure_serial_ports(&configurations)?;
        let loops = self.loops(&earlier);
        let setup = Setup::new(self.qemu, &self.cpu, self.gic, self.load, loops)?;
        let setup = setup.scheduled_by(self.scheduler);
        let new = setup.results()?;
        ensure_alike(&earlier, &new)?;
        let mut results = earlier;
        results.guest = new.guest;
        results.conditions.extend(new.conditions);
        let json = self.json();
        keep_before(&json)?;
        for configuration in configurations {
            measure_into(&mut results, configuration, |results| {
                let measured = setup.measure(configuration)?;
                let brief = table::brief(&measured);
                setup.add(results, configuration, measured)?;
                Ok(brief)
            });
            results.save(&json)?;
        }
        Ok(results)
    }
}

/// Refuses earlier figures that were measured under other conditions.
fn ensure_alike(earlier: &Results, new: &Results) -> Result<()> {
    let differences = setup::differences(earlier, new);
    ensure!(
        differences.is_empty(),
        "the figures in --from were measured otherwise, and would not compare: {}",
        differences.join("; ")
    );
    Ok(())
}

/// Keeps the figures of the run before under another name: a short run costs no long one.
fn keep_before(json: &Path) -> Result<()> {
    let stem = json.file_stem().unwrap_or_default().to_string_lossy();
    let before = json.with_file_name(format!("{stem}-before.json"));
    match json.is_file() {
        true => fs::rename(json, &before).with_context(|| before.display().to_string()),
        false => Ok(()),
    }
}

/// Measures a configuration by `measure`, which takes its figures into the results and says them in
/// brief. A failure costs this configuration's new figures alone, and its reason is a fact.
fn measure_into(
    results: &mut Results,
    configuration: Configuration,
    measure: impl FnOnce(&mut Results) -> Result<String>,
) {
    let name = configuration.text();
    let step = Step::start(name);
    match measure(results) {
        Ok(brief) => step.done(&format!("{name}: {brief}")),
        Err(error) => {
            step.done(&format!("{name} was not measured"));
            let facts = results.facts.entry(name.to_owned()).or_default();
            facts.insert(fact::FAILURE.to_owned(), format!("{error:#}"));
        }
    }
    setup::sort(results);
}

/// Returns a line for each configuration that could not be measured.
fn failures(results: &Results) -> Vec<String> {
    let failures = results.facts.iter().filter_map(|(name, facts)| {
        let failure = facts.get(fact::FAILURE)?;
        Some(format!("{name} was not measured: {failure}"))
    });
    failures.collect()
}

#[cfg(test)]
mod tests;
