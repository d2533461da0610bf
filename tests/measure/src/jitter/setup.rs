//! Setup that the configurations of a run share, the result of one of them, and the names of what
//! is known about it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use gearv_manifest::Scheduler;
use workbench::cache::sha256;
use workbench::qemu::{Machine, Qemu};
use workbench::{jitter_userland, payloads, workspace};

use super::configuration::{self, Configuration, Load};
use super::exits::Counted;
use super::fact;
use crate::report::{Figures, Origin, Results};

/// The one row of the results.
pub(super) const ROW: &str = "latency";

/// Conditions that all configurations of a run share, which make figures comparable.
pub(super) mod condition {
    /// Machine.
    pub(in super::super) const MACHINE: &str = "machine";
    /// Load on the other CPU.
    pub(in super::super) const LOAD: &str = "load";
    /// Number of periods.
    pub(in super::super) const LOOPS: &str = "loops";
}

/// Time that a CPU runs under load until QEMU switches to another one.
const TURN_US: u32 = 10;

/// Setup that all configurations of a run share.
pub struct Setup {
    /// QEMU that starts the machine.
    pub qemu: Qemu,
    /// Machine of all configurations.
    pub machine: Machine,
    /// Load on the other CPU.
    pub load: Load,
    /// Number of periods of a millisecond.
    pub loops: u64,
    /// Gear2's scheduler.
    pub scheduler: Scheduler,
    /// Sources, time and command of the measurement.
    pub origin: Origin,
}

/// Result of one configuration.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Latencies.
    pub figures: Figures,
    /// Exits of the vCPU during the measurement, where Gear1 counts them.
    pub exits: Option<Counted>,
}

impl Setup {
    /// Finds QEMU and describes the machine.
    pub fn new(qemu: u32, cpu: &str, gic: u32, load: Load, loops: u64) -> Result<Setup> {
        Ok(Setup {
            qemu: Qemu::prepare(qemu)?,
            machine: Machine {
                cpu: cpu.to_owned(),
                gic,
                icount: true,
                turn_us: (load != Load::Off).then_some(TURN_US),
                ..Machine::default()
            },
            load,
            loops,
            scheduler: Scheduler::Fair,
            origin: Origin::now(),
        })
    }

    /// Has Gear2 schedule by another policy than `fair`.
    #[must_use]
    pub fn scheduled_by(self, scheduler: Scheduler) -> Setup {
        Setup { scheduler, ..self }
    }

    /// Longest time of a machine for all its work.
    pub fn timeout(&self) -> Duration {
        let (boot, loops_a_second) = match self.load {
            Load::Off => (300, 100),
            Load::Cpu | Load::Disk | Load::All => (1800, 10),
        };
        Duration::from_secs(boot + self.loops / loops_a_second)
    }

    /// Returns results without figures, with the conditions that all configurations share.
    pub fn results(&self) -> Result<Results> {
        Ok(Results {
            guest: sha256(&self.initramfs()?)?,
            conditions: self.conditions(),
            ..Results::default()
        })
    }

    /// Takes in what was measured, with the facts about it.
    pub fn add(
        &self,
        results: &mut Results,
        configuration: Configuration,
        measured: Measured,
    ) -> Result<()> {
        let mut facts = self.origin.facts();
        facts.insert(fact::KERNEL.to_owned(), payloads::rt_kernel_release()?);
        facts.insert(fact::INITRAMFS.to_owned(), sha256(&self.initramfs()?)?);
        if configuration == Configuration::Guest {
            facts.insert(fact::SCHEDULER.to_owned(), self.scheduler.name().to_owned());
        }
        if let Some(counted) = measured.exits {
            facts.extend(counted.facts());
        }
        results.replace(configuration.text(), measured.figures, facts);
        Ok(())
    }

    fn initramfs(&self) -> Result<PathBuf> {
        jitter_userland::initramfs(&workspace::output_dir())
    }

    fn conditions(&self) -> BTreeMap<String, String> {
        let Machine { cpu, gic, .. } = &self.machine;
        let cpus = configuration::CPUS;
        let machine = format!("QEMU virt, {cpus} x {cpu}, GICv{gic}, one instruction a nanosecond");
        BTreeMap::from([
            (condition::MACHINE.to_owned(), machine),
            (condition::LOAD.to_owned(), self.load.text().to_owned()),
            (condition::LOOPS.to_owned(), self.loops.to_string()),
        ])
    }
}

/// Returns the conditions in which new measurements differ from earlier ones, a line each. Figures
/// of different conditions are not comparable.
pub(super) fn differences(earlier: &Results, new: &Results) -> Vec<String> {
    let names = [condition::MACHINE, condition::LOAD, condition::LOOPS];
    let differing = names.into_iter().filter_map(|name| {
        let (then, now) = (earlier.conditions.get(name)?, new.conditions.get(name)?);
        (then != now).then(|| format!("{name}: {then}, now {now}"))
    });
    differing.collect()
}

/// Brings the configurations into the order of the tables, whatever order they were measured in.
pub(super) fn sort(results: &mut Results) {
    let columns = &mut results.columns;
    columns.sort_by_key(|(name, _)| configuration::place(name));
}
