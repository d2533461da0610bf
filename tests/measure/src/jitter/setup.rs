//! Setup that the configurations of a run share, and the result of one of them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use workbench::cache::sha256;
use workbench::qemu::{Machine, Qemu};
use workbench::{jitter_userland, payloads, workspace};

use super::configuration::{self, Configuration, Load};
use super::exits::Counted;
use crate::report::{Figures, Results};

/// The one row of the results.
pub(super) const ROW: &str = "latency";
/// Row with the number of exits of the RTVM's CPUs during the measurement; part of the conditions.
pub(super) const EXITS: &str = "exits while measuring";
/// Row with the number of SGIs that the RTVM sent during the measurement, each of which costs one
/// more exit.
pub(super) const SGIS: &str = "SGIs sent while measuring";
/// Row with the number of SGIs by the count of the RTVM's kernel.
pub(super) const OWN: &str = "SGIs by its kernel's count";
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
        })
    }

    /// Longest time of a machine for all its work.
    pub fn timeout(&self) -> Duration {
        let (boot, loops_a_second) = match self.load {
            Load::Off => (300, 100),
            Load::Cpu | Load::Disk | Load::All => (1800, 10),
        };
        Duration::from_secs(boot + self.loops / loops_a_second)
    }

    /// Combines the measurements.
    pub fn results(&self, measured: Vec<(Configuration, Measured)>) -> Result<Results> {
        let mut conditions = self.conditions()?;
        for (configuration, one) in &measured {
            let Some(Counted { others, sgis, own }) = one.exits else {
                continue;
            };
            for (what, count) in [(EXITS, others), (SGIS, sgis), (OWN, own)] {
                let name = format!("{what}, {}", configuration.text());
                conditions.insert(name, count.to_string());
            }
        }
        let columns = measured.into_iter();
        let columns =
            columns.map(|(configuration, one)| (configuration.text().to_owned(), one.figures));
        Ok(Results {
            counts: Default::default(),
            guest: sha256(&jitter_userland::initramfs(&workspace::output_dir())?)?,
            conditions,
            columns: columns.collect(),
        })
    }

    /// Returns the conditions that all measurements share.
    fn conditions(&self) -> Result<BTreeMap<String, String>> {
        let Machine { cpu, gic, .. } = &self.machine;
        let cpus = configuration::CPUS;
        let machine = format!("QEMU virt, {cpus} x {cpu}, GICv{gic}, one instruction a nanosecond");
        Ok(BTreeMap::from([
            ("machine".to_owned(), machine),
            ("kernel".to_owned(), payloads::rt_kernel_release()?),
            ("load".to_owned(), self.load.text().to_owned()),
            ("loops".to_owned(), self.loops.to_string()),
        ]))
    }
}
