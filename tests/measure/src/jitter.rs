//! `cargo xtask jitter`: how late cyclictest wakes up natively, under KVM, and in GearV's kinds of
//! VMs.
//!
//! One kernel with PREEMPT_RT, one initramfs and one cyclictest run everywhere (gearv 4.5, tables
//! 10 and 11). QEMU's virtual time is counted in instructions, so figures repeat; docs/rtvm.md says
//! what that can tell.

mod board;
mod configuration;
mod drive;
mod exits;
mod log;
mod setup;
mod table;

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::Args;
use workbench::progress::Step;
use workbench::workspace;

use crate::report::{self, Results};

pub use configuration::{Configuration, Load};
pub use exits::Counted;
pub use setup::{Measured, Setup};
pub use table::judge;

const TITLE: &str = "GearV: jitter";
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
    /// Number of periods of a millisecond [default: 60000, with load 10000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(10..))]
    loops: Option<u64>,
    /// The CPU model
    #[arg(long, value_name = "MODEL", default_value = "cortex-a57")]
    cpu: String,
    /// The version of the interrupt controller
    #[arg(long, value_name = "VERSION", default_value_t = 3)]
    gic: u32,
    /// The major version of QEMU; only 10 has the second serial port that a real-time VM needs
    #[arg(long, value_name = "VERSION", default_value_t = 10)]
    qemu: u32,
    /// Load on the other CPU
    #[arg(long, value_enum, default_value_t = Load::Off)]
    load: Load,
    /// Configurations to measure [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    configurations: Vec<Configuration>,
    /// The most that the maximum of the real-time VM with pass-through may be, native being 1
    #[arg(long, value_name = "RATIO", default_value_t = 1.05)]
    max_ratio: f64,
    /// Show what has changed since a run whose JSON this is
    #[arg(long, value_name = "OLD.json")]
    compare: Option<PathBuf>,
    /// Only print the steps for a board
    #[arg(long, value_enum, value_name = "NAME")]
    board: Option<workbench::board::Name>,
    /// Make the report from consoles' logs, captured on a board, instead of measuring
    #[arg(long, value_name = "LOG", num_args = 1..)]
    from: Vec<PathBuf>,
}

impl Options {
    /// Measures, or reads earlier measurements; reports and judges.
    pub fn run(self) -> Result<()> {
        if let Some(board) = self.board {
            print!("{}", board::instructions(board, self.loops(), self.load)?);
            return Ok(());
        }
        let old = self.compare.as_deref().map(Results::load).transpose()?;
        let (results, mut faults) = match self.from.as_slice() {
            [] => self.measure_all()?,
            logs => (log::read(logs)?, Vec::new()),
        };
        self.report(&results, old.as_ref())?;
        faults.extend(judge(&results, self.max_ratio));
        ensure!(faults.is_empty(), "{}", faults.join("\n       "));
        Ok(())
    }

    /// Prints the table, and writes the samples and the plots.
    fn report(&self, results: &Results, old: Option<&Results>) -> Result<()> {
        print!("{}", table::all(results));
        if let Some(old) = old {
            print!("\n{}", table::changes(old, results));
        }
        println!();
        let notes = if self.from.is_empty() { NOTES } else { &[] };
        for note in notes {
            println!("{note}");
        }
        let page = report::Page {
            title: TITLE,
            notes,
            order: &[],
            old,
        };
        let json = workspace::target_dir().join("jitter/jitter.json");
        report::save(&page, results, &json)
    }

    /// A busy machine of a nanosecond an instruction runs slower than the host, an idle one faster.
    fn loops(&self) -> u64 {
        let default = match self.load {
            Load::Off => 60_000,
            Load::Cpu | Load::Disk | Load::All => 10_000,
        };
        self.loops.unwrap_or(default)
    }

    /// Returns the configurations that were asked for, or all.
    fn configurations(&self) -> Vec<Configuration> {
        match self.configurations.as_slice() {
            [] => configuration::ALL.to_vec(),
            some => some.to_vec(),
        }
    }

    /// Measures one configuration after the other. Returns the results, and the reasons of
    /// failures: a measurement of minutes is reported whatever comes after it.
    fn measure_all(&self) -> Result<(Results, Vec<String>)> {
        let configurations = self.configurations();
        if self.qemu < 10 && configurations.iter().any(|one| one.is_real_time()) {
            bail!(
                "QEMU {} has no second serial port, which the real-time VM needs as its own: take --qemu 10, \
                 or --configurations native,kvm,guest",
                self.qemu
            );
        }
        let setup = Setup::new(self.qemu, &self.cpu, self.gic, self.load, self.loops())?;
        let (measured, failures) = each(&configurations, |one| setup.measure(one));
        Ok((setup.results(measured)?, failures))
    }
}

/// Measures each configuration, whatever becomes of the others. Returns the results, and the
/// reasons of failures.
fn each(
    configurations: &[Configuration],
    measure: impl Fn(Configuration) -> Result<Measured>,
) -> (Vec<(Configuration, Measured)>, Vec<String>) {
    let (mut measured, mut failures) = (Vec::new(), Vec::new());
    for &configuration in configurations {
        let name = configuration.text();
        let step = Step::start(name);
        match measure(configuration) {
            Ok(one) => {
                step.done(&format!("{name}: {}", table::brief(&one)));
                measured.push((configuration, one));
            }
            Err(error) => {
                step.done(&format!("{name} was not measured"));
                failures.push(format!("{name} was not measured: {error:#}"));
            }
        }
    }
    (measured, failures)
}

#[cfg(test)]
mod tests;
