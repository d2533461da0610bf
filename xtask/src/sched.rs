//! `cargo xtask sched`: the policies of a manifest against loads, in virtual time on this machine.
//!
//! Nothing is built for the target and no machine starts: policies are compared in seconds, and the
//! same seed gives the same result. What a simulation does not have, caches and interrupts above
//! all, a board has to show.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use gear1_abi::id::MAX_CPUS;
use workbench::sched::picture::{self, Section};
use workbench::sched::{self, Costs, Figures, Loads, Setup, Simulated, trace_events};
use workbench::tools::Tools;
use workbench::{manifest, number, workspace};

/// The options of `sched`. Costs have measured defaults, so that a simulation without options is of
/// this build.
#[derive(Args, Debug)]
#[command(after_help = LOADS)]
pub struct Options {
    /// The manifest [default: manifests/qemu-virt.dts]
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Work of a VM: VM=LOAD, or a file with a VM = LOAD in each line; VMs without one are idle
    #[arg(long, value_name = "SPEC")]
    load: Vec<String>,
    /// Simulated time in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds: f64,
    /// Source of random numbers: one seed gives one result
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Policy of all CPUs, instead of the manifest's
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// CPUs of the machine [default: as many as the manifest names]
    #[arg(long, value_name = "COUNT",
          value_parser = number::within(1..=MAX_CPUS as u32))]
    cpus: Option<u32>,
    /// From the end of a turn to another vCPU, in ns [default: measured]
    #[arg(long, value_name = "NS")]
    switch: Option<u64>,
    /// From a wake-up to the vCPU that it wakes, if another one ran, in ns [default: measured, or
    /// `--switch`]
    #[arg(long, value_name = "NS")]
    preempt: Option<u64>,
    /// The part of each way that is charged to the vCPU that ran, in ns [default: measured, or 0
    /// with `--switch`]
    #[arg(long, value_name = "NS")]
    entry: Option<u64>,
    /// From the WFI of a vCPU to another one, in ns [default: measured, or `--switch`]
    #[arg(long, value_name = "NS")]
    resume: Option<u64>,
    /// From an event through Gear2 back to the vCPU that ran, in ns [default: measured]
    #[arg(long, value_name = "NS")]
    exit: Option<u64>,
    /// From a wake-up on an idle CPU to the vCPU, in ns [default: measured, timer_wfi]
    #[arg(long, value_name = "NS")]
    wake: Option<u64>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Draw the time line
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the time line in the Trace Event format, which Perfetto opens
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// First instant that is drawn, such as 20ms
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "0ms")]
    from: u64,
    /// Last instant that is drawn
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "50ms")]
    to: u64,
}

/// Behind the options, as clap's `after_help`.
const LOADS: &str = "Loads:
  periodic:period=1000us,work=200us[,phase=..][,jitter=..]  a job in each period, due at its end
  burst:work=3ms,sleep=3ms[,phase=..]                       work, then sleep
  random:work=3ms,sleep=3ms[,phase=..]                      the same with random lengths up to these
  spin                                                      work without an end
  idle                                                      nothing
  trace:FILE                                                recorded jobs, see docs/schedulers.md

A VM with several vCPUs has one load for each of them; VM.1=LOAD is for its second vCPU.";

/// A unit has to be there.
fn parse_time(text: &str) -> Result<u64, String> {
    sched::time(text).ok_or_else(|| "write a time such as 200us, 1.5ms or 2s".to_owned())
}

impl Options {
    /// Simulates, and says what became of each vCPU. The manifest goes through the rules first,
    /// like that of a boot.
    pub fn run(self) -> Result<()> {
        let default = || workspace::root().join("manifests/qemu-virt.dts");
        let dts = self.manifest.clone().unwrap_or_else(default);
        let folder = workspace::output_dir().join("sched");
        fs::create_dir_all(&folder)?;
        let loads = Loads::read(&self.load)?;
        let compiled = manifest::compile(&dts, &Tools::prepare()?, &folder)?;
        let setup = self.setup(compiled.cpu_count, loads)?;
        let simulated = sched::simulate(&compiled.blob, &setup);
        let simulated = simulated.with_context(|| dts.display().to_string())?;
        if simulated.is_empty() {
            bail!("{}: Gear2 schedules no VM", dts.display());
        }
        self.print(&Figures::of(&simulated))?;
        self.write_files(&simulated, setup.length)
    }

    /// Files are optional; the figures are always printed.
    fn write_files(&self, simulated: &[Simulated], length: u64) -> Result<()> {
        if let Some(file) = &self.svg {
            let section = self.section(length)?;
            write(file, &picture::draw(simulated, section))?;
        }
        if let Some(file) = &self.trace {
            write(file, &trace_events::document(simulated).to_string())?;
        }
        Ok(())
    }

    /// One JSON document, for scripts that compare policies.
    fn print(&self, figures: &Figures) -> Result<()> {
        if self.json {
            println!("{}", serde_json::to_string_pretty(&figures.json())?);
        } else {
            print!("{}", figures.text());
        }
        Ok(())
    }

    /// `--switch` alone sets every switch, as papers state one figure.
    fn setup(&self, named: usize, loads: Loads) -> Result<Setup> {
        let length = self.seconds * f64::from(sched::HZ);
        ensure!(length.is_finite(), "--seconds {} is no time", self.seconds);
        let length = length.round() as u64;
        sched::check_length(length)?;
        Ok(Setup {
            cpu_count: self.cpus.map_or(named, |count| count as usize),
            loads,
            costs: self.costs(sched::measured_costs(3)?),
            // Figures that the user gives are those of the policy.
            by_policy: [self.switch, self.preempt, self.resume, self.exit] == [None; 4],
            length,
            seed: self.seed,
            policy: self.policy.clone(),
        })
    }

    /// Returns costs with the figures that the user gives: one for all switches, if `--switch` is.
    fn costs(&self, measured: Costs) -> Costs {
        let new = |switch| Costs::new(switch, measured.end.same, measured.wake);
        let mut costs = self.switch.map_or(measured, new);
        costs.wake_up.other = self.preempt.unwrap_or(costs.wake_up.other);
        costs.block.other = self.resume.unwrap_or(costs.block.other);
        costs.wake = self.wake.unwrap_or(costs.wake);
        for way in [&mut costs.end, &mut costs.wake_up, &mut costs.block] {
            way.entry = self.entry.unwrap_or(way.entry);
            way.same = self.exit.unwrap_or(way.same);
        }
        costs
    }

    /// The default shows the first 50 ms, in which a run settles.
    fn section(&self, length: u64) -> Result<Section> {
        let (start, end) = (self.from, self.to.min(length));
        ensure!(
            start < end,
            "--from and --to: nothing of the simulation is between them"
        );
        Ok(Section { start, end })
    }
}

/// The error names the file.
fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
